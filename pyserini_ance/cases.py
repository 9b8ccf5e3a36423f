"""`python -m pyserini_ance.cases RUN OTHER`: the queries that RUN wins and loses most against OTHER, with texts, as Markdown.

Both are run directories over the same data and test split. FOLDER is its final ranking, FOLDER:ROW that of a row of its closing table:
`cases runs/demo-ance runs/demo-ance:bm25`.
"""

import argparse
from collections.abc import Sequence

from pyserini_ance import cli
from pyserini_ance.data.trec import Qrels, Run, read_qrels, read_run
from pyserini_ance.experiment.collection import collection_of
from pyserini_ance.experiment.ranked import named, ranking_file
from pyserini_ance.measures.cases import Cases
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.measure import parse


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.cases", description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN", help="FOLDER of a run, or FOLDER:ROW for a row of its closing table")
    parser.add_argument("other", metavar="OTHER", help="the same; of the first run too")
    parser.add_argument("--measure", default="RR@10", help="default: %(default)s")
    parser.add_argument("--most", type=cli.from_one_on, default=10, help="of the queries won, and of those lost (default: %(default)s)")
    parser.add_argument("--split", help="default: the first test split")
    parser.add_argument("--characters", type=cli.from_one_on, default=300, help="of each text (default: %(default)s)")
    args = parser.parse_args(arguments)
    if args.run == args.other:
        parser.error("give two different rankings")
    (measure,) = parse([args.measure])
    folder, _ = named(args.run)
    collection = collection_of(folder)
    split = args.split or load(folder.recipe).recipe.test.split[0]
    (qrels, run), (others, other) = (_ranking(name, split) for name in (args.run, args.other))
    if qrels != others:
        raise ValueError(f"{args.run} and {args.other} judge split {split!r} differently; name two runs over the same data and split")
    rankings = {args.run: run, args.other: other}
    print(Cases(qrels, collection.split(split).queries, collection.documents, rankings, measure, args.characters).as_markdown(args.most))


def _ranking(name: str, split: str) -> tuple[Qrels, Run]:
    folder, row = named(name)
    path = ranking_file(folder, row, split)
    if not folder.qrels(split).exists():
        raise ValueError(f"{folder.folder} has no judgments of split {split!r}, whose passages are judged by answers; name another by --split")
    return read_qrels(folder.qrels(split)), read_run(path)


if __name__ == "__main__":
    cli.run(main)
