"""The lines that Java writes are those that Python would write of Pyserini's own results, hit by hit."""

import json

CHILD = """
import json, random, sys
from pathlib import Path
from pyserini_ance.pyserini_bridge.java import import_pyserini
from pyserini_ance.pyserini_bridge.run_writer import search_into_run
from pyserini_ance.pyserini_bridge.searchers import open_anserini_searcher, open_searcher

folder, rng = Path(sys.argv[1]), random.Random(7)
words = [f"word{number}" for number in range(30)] + ["caf\\u00e9", "\\u6f22\\u5b57"]
indexer = import_pyserini("pyserini.index.lucene").LuceneIndexer(str(folder / "index"))
for number in range(200):
    text = " ".join(rng.choices(words, k=rng.randrange(1, 12)))
    indexer.add_doc_raw(json.dumps({"id": f"d\\u00e9\\U0001f600{number}", "contents": text}))
indexer.close()
openers = open_anserini_searcher, open_searcher
ours, searcher = (opener(str(folder / "index"), "bm25.index") for opener in openers)
queries = [(f"q\\u00e9-{number}", " ".join(rng.choices(words, k=3))) for number in range(40)]
queries += [("none", "absent"), ("empty", ""), ("surrogate", "word1 \\ud800")]
found = list(search_into_run(ours, queries, 50, 2, "tag", folder / "part"))
texts = [text.encode("utf-8", "replace").decode() for _, text in queries]
results = searcher.batch_search(texts, [str(row) for row in range(len(texts))], k=50, threads=2)
expected = [
    f"{id} Q0 {hit.docid} {rank} {hit.score:.6f} tag\\n"
    for row, (id, _) in enumerate(queries)
    for rank, hit in enumerate(results[str(row)], start=1)
]
left = [path.name for path in folder.iterdir()]
(folder / "full").symlink_to("/dev/full")
try:
    list(search_into_run(ours, queries, 50, 2, "tag", folder / "full"))
    error = None
except OSError as raised:
    error = str(raised)
print(json.dumps([found, expected, left, error]))
"""


def test_lines_are_those_of_the_hits_one_by_one(in_java, tmp_path):
    found, expected, left, error = json.loads(in_java(CHILD, tmp_path).splitlines()[-1])
    assert found == expected and len(found) > 1000
    assert {line.split()[0] for line in found} == {*(f"qé-{number}" for number in range(40)), "surrogate"}
    assert left == ["index"]
    assert error == f"{tmp_path / 'full'}, a part of BM25's ranking, could not be written; is the disk full?"
