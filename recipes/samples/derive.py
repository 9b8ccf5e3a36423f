"""Training sets of a few thousand passages, in the official formats, out of small real samples that have no training split.

    python recipes/samples/derive.py SAMPLES data/samples

SAMPLES has, each plain or .gz, msmarco-passage-dl19-pool/{collection.tsv, queries.dl19.tsv, qrels.dl19-passage.txt, runs/*.gz},
msmarco-doc/{msmarco-docs.tsv, msmarco-doctrain-queries.tsv, msmarco-doctrain-qrels.tsv}, dpr/{nq-dev.sample.json, psgs_w100.first100.tsv},
nq-oracle/nq-open-oracle.jsonl. Everything is the samples' own text and judgments; what is chosen, and how it is split, is said at each
function. Nothing is drawn at random.
"""

import argparse
import csv
import gzip
import json
from collections.abc import Iterable
from pathlib import Path

DEPTH = 20  # of each ranking, whose first passages are the collection
RELEVANT = 2  # the grade from which TREC's judges call a passage relevant


def lines_of(path: Path) -> list[str]:
    """Of a plain file, or of the same with .gz after its name."""
    packed = path.with_name(f"{path.name}.gz")
    raw = gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
    return [f"{line}\n" for line in raw.decode().removesuffix("\n").split("\n")]


def write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def passages(samples: Path, folder: Path) -> None:
    """MS MARCO passages: the first 20 of each of six rankings of TREC DL 2019's 43 queries, and all that are relevant to them.

    Queries in the order of their file: each third is for testing, the first of each nine for dev, the others train. qrels.*.tsv are
    binary, as MS MARCO's: a passage of grade 2 or 3 is relevant; 2019qrels-pass.txt is TREC's own file, graded, of all queries.
    """
    source = samples / "msmarco-passage-dl19-pool"
    judged = [line.split() for line in lines_of(source / "qrels.dl19-passage.txt")]
    runs = {path.name: lines_of(path.with_suffix("")) for path in (source / "runs").iterdir()}
    first = {name: [line for line in lines if int(line.split()[3]) <= DEPTH] for name, lines in runs.items()}
    relevant = [(query, passage) for query, _, passage, grade in judged if int(grade) >= RELEVANT]
    kept = {passage for _, passage in relevant} | {line.split()[2] for lines in first.values() for line in lines}
    collection = [line for line in lines_of(source / "collection.tsv") if line.split("\t")[0] in kept]
    there = {line.split("\t")[0] for line in collection}
    write(folder / "collection.tsv", collection)
    write(folder / "2019qrels-pass.txt", lines_of(source / "qrels.dl19-passage.txt"))
    write(folder / "bm25.dl19.top20.trec", first["bm25.dl19.top100.trec.gz"])
    queries = dict(enumerate(lines_of(source / "queries.dl19.tsv")))
    of_split = {"test": lambda n: n % 3 == 2, "dev": lambda n: n % 9 == 0, "train": lambda n: n % 3 != 2 and n % 9 != 0}
    for name, holds in of_split.items():
        asked = [line for number, line in queries.items() if holds(number)]
        ids = {line.split("\t")[0] for line in asked}
        write(folder / f"queries.{name}.tsv", asked)
        write(folder / f"qrels.{name}.tsv", [f"{query}\t0\t{passage}\t1\n" for query, passage in relevant if query in ids and passage in there])


def documents(samples: Path, folder: Path) -> None:
    """MS MARCO documents: all 1,000, and 100 training queries with one relevant document each: the first 60 train, 20 are for dev, 20 for testing."""
    source = samples / "msmarco-doc"
    write(folder / "msmarco-docs.tsv", lines_of(source / "msmarco-docs.tsv"))
    queries = lines_of(source / "msmarco-doctrain-queries.tsv")
    judged = lines_of(source / "msmarco-doctrain-qrels.tsv")
    for name, asked in {"train": queries[:60], "dev": queries[60:80], "test": queries[80:]}.items():
        ids = {line.split("\t")[0] for line in asked}
        write(folder / f"queries.{name}.tsv", asked)
        write(folder / f"qrels.{name}.tsv", [line for line in judged if line.split()[0] in ids])


def questions(samples: Path, folder: Path) -> None:
    """Natural Questions in DPR's files: 2,655 questions with their gold passages, of which eight in ten train, one is for dev, one for testing.

    2,434 of them are questions of DPR's nq-test: what is trained here must not be measured there. Passages are the gold ones, numbered
    from 1, the first hundred of Wikipedia, and those that five questions of DPR's nq-dev list, which are in dev as they stand.
    """
    asked = [json.loads(line) for line in lines_of(samples / "nq-oracle" / "nq-open-oracle.jsonl")]
    real = json.loads("".join(lines_of(samples / "dpr" / "nq-dev.sample.json")))
    wikipedia = list(csv.reader(lines_of(samples / "dpr" / "psgs_w100.first100.tsv"), delimiter="\t"))[1:]
    listed = [one for record in real for key in ("positive_ctxs", "hard_negative_ctxs") for one in record[key]]
    table = {id: (text, title) for id, text, title in wikipedia} | {one["passage_id"]: (one["text"], one["title"]) for one in listed}
    ids = {content: id for id, content in table.items()}
    records: dict[str, list] = {"train": [], "dev": real, "test": []}
    for number, record in enumerate(asked):
        gold = " ".join(record["ctxs"][0]["text"].split()), record["ctxs"][0]["title"]
        id = ids.setdefault(gold, f"gold-{number}")
        table[id] = gold
        contexts = {"positive_ctxs": [{"passage_id": id, "text": gold[0], "title": gold[1]}], "negative_ctxs": [], "hard_negative_ctxs": []}
        split = {8: "dev", 9: "test"}.get(number % 10, "train")
        records[split].append({"question": record["question"], "answers": record["answers"], **contexts})
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "psgs_w100.tsv", "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter="\t", lineterminator="\n")
        rows.writerows([("id", "text", "title"), *((id, *content) for id, content in table.items())])
    for name, found in records.items():
        write(folder / f"biencoder-nq-{name}.json", [json.dumps(found, indent=1)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path, help="the folder with msmarco-passage-dl19-pool, msmarco-doc, dpr and nq-oracle")
    parser.add_argument("folder", type=Path, help="to write into; the recipes expect data/samples")
    args = parser.parse_args()
    passages(args.samples, args.folder / "msmarco-passage")
    documents(args.samples, args.folder / "msmarco-doc")
    questions(args.samples, args.folder / "dpr")


if __name__ == "__main__":
    main()
