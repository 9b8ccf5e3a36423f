"""BM25 by Pyserini's Lucene, in a process of its own: no Java lives in a training process."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pyserini_ance.pyserini_bridge.worker import run_worker
from pyserini_ance.storage.folders import WrittenMeanwhile, whole_folder


class Settings(Protocol):
    """`index` is `build`, a Lucene index folder, or the name of a prebuilt index of Pyserini; `rm3` a pydantic model, or None."""

    k1: float
    b: float
    threads: int
    index: str
    rm3: Any


class Ranking(NamedTuple):
    """A TREC run to write: the best `hits` documents of each (id, text), by BM25, or after it by RM3."""

    queries: list[tuple[str, str]]
    hits: int
    output: Path
    rm3: bool = False


def retrieve(
    documents: Iterable[tuple[str, str]] | None,
    rankings: Sequence[Ranking],
    settings: Settings,
    index_folder: Path | None,
    total: int | None = None,
) -> None:
    """Write the runs, ids as they are; a query that finds nothing has no lines. One process does it all: Java starts slowly.

    `documents` are (id, contents), read only when `settings.index` is `build` and `index_folder` is not there yet;
    the folder appears when everything has gone well. `total`, their number, gives the progress bar its end.
    With `settings.rm3` the index that is built has document vectors. Raises RuntimeError with the last words of Java or Pyserini when they fail.
    """
    rm3 = settings.rm3 and settings.rm3.model_dump()
    job = {"k1": settings.k1, "b": settings.b, "rm3": rm3, "threads": settings.threads, "rankings": [_as_json(ranking) for ranking in rankings]}
    if settings.index != "build":
        run_worker({**job, "index": settings.index, "build": False})
    elif index_folder.exists():
        run_worker({**job, "index": str(index_folder.absolute()), "build": False})
    elif documents is None:
        raise FileNotFoundError(f"there is no BM25 index at {index_folder}, and no documents were given to build it from")
    else:
        records = ({"id": id, "contents": contents} for id, contents in documents)
        # The rankings are written by then, and the other process has indexed the same documents.
        with suppress(WrittenMeanwhile), whole_folder(index_folder) as beside:
            run_worker({**job, "index": str(beside.absolute()), "build": True, "total": total}, records)


def _as_json(ranking: Ranking) -> dict:
    output = ranking.output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    return {"queries": ranking.queries, "hits": ranking.hits, "output": str(output), "rm3": ranking.rm3}
