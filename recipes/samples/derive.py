"""Derive training sets of a few thousand passages, in the official formats, from small real samples.

    python recipes/samples/derive.py SAMPLES data/samples

The samples have no training split. SAMPLES contains these files, plain or .gz:

    msmarco-passage-dl19-pool/{collection.tsv, queries.dl19.tsv, qrels.dl19-passage.txt, runs/*.gz}
    msmarco-doc/{msmarco-docs.tsv, msmarco-doctrain-queries.tsv, msmarco-doctrain-qrels.tsv}
    dpr/{nq-dev.sample.json, psgs_w100.first100.tsv}
    nq-oracle/nq-open-oracle.jsonl

All texts and judgments are those of the samples. Each function documents its selection and its splits.
Nothing is random.
"""

import argparse
import csv
import gzip
import json
from collections.abc import Iterable
from pathlib import Path

TOP_K = 20  # passages of each ranking that form the collection
RELEVANT = 2  # the lowest grade that TREC counts as relevant for passages


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file, or of its compressed version with the suffix .gz."""
    packed = path.with_name(f"{path.name}.gz")
    raw = gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
    return [f"{line}\n" for line in raw.decode().removesuffix("\n").split("\n")]


def write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def passages(samples: Path, folder: Path) -> None:
    """Write MS MARCO passages: the top 20 of six TREC DL 2019 rankings, and all relevant ones.

    The 43 queries keep the order of their file. Every third query is a test query, the first of each nine a
    dev query, and the others are training queries. qrels.*.tsv are binary, as in MS MARCO: passages of grade
    2 or 3 are relevant. 2019qrels-pass.txt is TREC's own graded file with all queries.
    """
    source = samples / "msmarco-passage-dl19-pool"
    judgments = [line.split() for line in lines_of(source / "qrels.dl19-passage.txt")]
    runs = {path.name: lines_of(path.with_suffix("")) for path in (source / "runs").iterdir()}
    top = {name: [line for line in lines if int(line.split()[3]) <= TOP_K] for name, lines in runs.items()}
    relevant = [(query, passage) for query, _, passage, grade in judgments if int(grade) >= RELEVANT]
    selected = {passage for _, passage in relevant}
    selected |= {line.split()[2] for lines in top.values() for line in lines}
    collection = [line for line in lines_of(source / "collection.tsv") if line.split("\t")[0] in selected]
    available = {line.split("\t")[0] for line in collection}
    write(folder / "collection.tsv", collection)
    write(folder / "2019qrels-pass.txt", lines_of(source / "qrels.dl19-passage.txt"))
    write(folder / "bm25.dl19.top20.trec", top["bm25.dl19.top100.trec.gz"])
    in_split = {
        "test": lambda n: n % 3 == 2,
        "dev": lambda n: n % 9 == 0,
        "train": lambda n: n % 3 != 2 and n % 9 != 0,
    }
    all_queries = lines_of(source / "queries.dl19.tsv")
    for name, belongs in in_split.items():
        queries = [line for number, line in enumerate(all_queries) if belongs(number)]
        ids = {line.split("\t")[0] for line in queries}
        pairs = [(query, passage) for query, passage in relevant if query in ids and passage in available]
        write(folder / f"queries.{name}.tsv", queries)
        write(folder / f"qrels.{name}.tsv", [f"{query}\t0\t{passage}\t1\n" for query, passage in pairs])


def documents(samples: Path, folder: Path) -> None:
    """Write MS MARCO documents: all 1,000, and 100 training queries with one relevant document each.

    The first 60 queries are training queries, the next 20 dev queries, the last 20 test queries.
    """
    source = samples / "msmarco-doc"
    write(folder / "msmarco-docs.tsv", lines_of(source / "msmarco-docs.tsv"))
    all_queries = lines_of(source / "msmarco-doctrain-queries.tsv")
    judgments = lines_of(source / "msmarco-doctrain-qrels.tsv")
    splits = {"train": all_queries[:60], "dev": all_queries[60:80], "test": all_queries[80:]}
    for name, queries in splits.items():
        ids = {line.split("\t")[0] for line in queries}
        write(folder / f"queries.{name}.tsv", queries)
        write(folder / f"qrels.{name}.tsv", [line for line in judgments if line.split()[0] in ids])


def questions(samples: Path, folder: Path) -> None:
    """Write Natural Questions in DPR's format: 2,655 questions with their gold passages, split 8:1:1.

    2,434 of the questions are in DPR's nq-test: a model trained on this set must not be measured there. The
    passages are the gold ones, the first hundred of Wikipedia, and those that five questions of DPR's nq-dev
    list; these five questions are in dev, unchanged. A gold passage without an id of Wikipedia is called
    gold-NUMBER, by the number of its question.
    """
    oracle = [json.loads(line) for line in lines_of(samples / "nq-oracle" / "nq-open-oracle.jsonl")]
    nq_dev = json.loads("".join(lines_of(samples / "dpr" / "nq-dev.sample.json")))
    wikipedia = list(csv.reader(lines_of(samples / "dpr" / "psgs_w100.first100.tsv"), delimiter="\t"))[1:]
    listed = [
        context
        for record in nq_dev
        for key in ("positive_ctxs", "hard_negative_ctxs")
        for context in record[key]
    ]
    table = {id: (text, title) for id, text, title in wikipedia}
    table |= {context["passage_id"]: (context["text"], context["title"]) for context in listed}
    ids = {content: id for id, content in table.items()}
    records: dict[str, list] = {"train": [], "dev": nq_dev, "test": []}
    for number, record in enumerate(oracle):
        gold = " ".join(record["ctxs"][0]["text"].split()), record["ctxs"][0]["title"]
        id = ids.setdefault(gold, f"gold-{number}")
        table[id] = gold
        contexts = {
            "positive_ctxs": [{"passage_id": id, "text": gold[0], "title": gold[1]}],
            "negative_ctxs": [],
            "hard_negative_ctxs": [],
        }
        split = {8: "dev", 9: "test"}.get(number % 10, "train")
        records[split].append({"question": record["question"], "answers": record["answers"], **contexts})
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "psgs_w100.tsv", "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter="\t", lineterminator="\n")
        rows.writerows([("id", "text", "title"), *((id, *content) for id, content in table.items())])
    for name, split_records in records.items():
        write(folder / f"biencoder-nq-{name}.json", [json.dumps(split_records, indent=1)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "samples", type=Path, help="folder with msmarco-passage-dl19-pool, msmarco-doc, dpr and nq-oracle"
    )
    parser.add_argument("folder", type=Path, help="output folder; the recipes expect data/samples")
    args = parser.parse_args()
    passages(args.samples, args.folder / "msmarco-passage")
    documents(args.samples, args.folder / "msmarco-doc")
    questions(args.samples, args.folder / "dpr")


if __name__ == "__main__":
    main()
