"""A TREC run of Anserini's results, written by Java: to fetch one hit into Python takes 12 microseconds."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

RUN_WRITER = "io.anserini.search.RunOutputWriter"
DIGITS = 10  # of a key; as many for all, so that keys are in the order of their numbers


def search_into_run(
    searcher: Any, queries: Sequence[tuple[str, str]], hits: int, threads: int, tag: str, scratch: Path
) -> Iterator[str]:
    """Search the queries (id, text) with Anserini's `searcher`; yield the lines of the run, which is in the
    file `scratch` in between.

    Numbers are the keys of queries in Java, so that ids never pass through it. A lone surrogate of a text has
    no UTF-8 form and is replaced. Scores have six decimals; Java rounds a seventh of exactly 5 up. Raises
    OSError if the file cannot be written.
    """
    from jnius import autoclass, cast

    texts, keys = autoclass("java.util.ArrayList")(), autoclass("java.util.ArrayList")()
    for number, (_, text) in enumerate(queries):
        texts.add(text.encode("utf-8", "replace").decode())
        keys.add(f"{number:0{DIGITS}d}")
    found = autoclass("java.util.TreeMap")(searcher.batch_search(texts, keys, hits, threads))
    writer = autoclass(RUN_WRITER)(str(scratch), "trec", tag, None)
    try:
        found.forEach(cast("java.util.function.BiConsumer", _write_of_pairs(writer)))
        if writer.out.checkError():  # flushes; a PrintWriter raises nothing
            raise OSError(f"{scratch}, a part of BM25's ranking, could not be written; is the disk full?")
    finally:
        writer.close()
    with open(scratch, encoding="utf-8") as lines:
        for line in lines:
            key, rest = line.split(" ", 1)
            yield f"{queries[int(key)][0]} {rest}"
    scratch.unlink()


def _write_of_pairs(writer: Any) -> Any:
    """The writer's method of (key, query's text, hits) as a BiConsumer of (key, hits), as a map calls it."""
    from jnius import autoclass

    handles = autoclass("java.lang.invoke.MethodHandles")
    to_class = autoclass("java.lang.Class").forName
    method = next(m for m in to_class(RUN_WRITER).getMethods() if m.getName() == "writeTopic")
    of_pairs = handles.insertArguments(handles.publicLookup().unreflect(method).bindTo(writer), 1, "")
    proxies = autoclass("java.lang.invoke.MethodHandleProxies")
    return proxies.asInterfaceInstance(to_class("java.util.function.BiConsumer"), of_pairs)
