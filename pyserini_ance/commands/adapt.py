"""`pyserini-ance adapt`: from documents to a better retriever, or "keep the base model", with evidence."""

import os
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Annotated

from tqdm.contrib.logging import logging_redirect_tqdm
from typer import Argument

from pyserini_ance.commands import console, parsing

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
EXAMPLE = "pyserini-ance adapt docs --queries log.csv --judgments judged.csv --output adapted"
DETAILS = """DOCUMENTS is a folder of files (text, Markdown, HTML, PDF, DOCX, EPUB), one in BEIR's layout or
with a Lucene index, a file (.jsonl, .csv, .tsv, .parquet; columns have the usual names), a YAML file with the
`data:` section of a recipe, or the name of a data set on the hub.
--queries is a table with a column `query` (and `id`), or lines of text; --judgments TREC's or BEIR's qrels,
or a table of query (id or text), document (id, path in the folder, or its own file name or title) and grade.
--llm is the address of any OpenAI-compatible server, such as http://localhost:8000/v1: without queries, its
model writes questions for passages, by prompt.txt in the folder. Its key comes from OPENAI_API_KEY.
The folder --output gets recipe.yaml, data, run and verdict.json; the same command continues there."""


@parsing.command(EXAMPLE, DETAILS)
def main(
    documents: Annotated[str, Argument(metavar="DOCUMENTS", help="see below")],
    overrides: parsing.Overrides = None,
    queries: Annotated[Path | None, parsing.option("FILE", "what people ask")] = None,
    judgments: Annotated[Path | None, parsing.option("FILE", "which documents answer it")] = None,
    model: Annotated[str, parsing.option("NAME", "the encoder: a folder, a run or a hub name")] = MODEL,
    output: Annotated[Path, parsing.output_folder("FOLDER", "where it all goes")] = Path("adapted"),
    llm: Annotated[str | None, parsing.option("URL", "a server that writes questions (see below)")] = None,
    llm_model: Annotated[str | None, parsing.option("NAME", "the model of that server")] = None,
    max_requests: Annotated[int | None, parsing.count("N", "ask that server at most N times")] = None,
    max_tokens: Annotated[int | None, parsing.count("N", "spend at most N tokens there")] = None,
    plan: Annotated[bool, parsing.flag("plan", "prepare data, measure a few steps; train nothing")] = False,
) -> None:
    """Adapt an encoder to your documents, and show whether it is better than before.

    Held-out judged queries decide; without any, the base model is kept and rankings are compared.
    """
    if (llm is None) != (llm_model is None):
        parsing.refuse("--llm and --llm-model belong together; pass both")
    if llm is None:
        parsing.refuse_options("there is no --llm to limit", max_requests=max_requests, max_tokens=max_tokens)
    for path in filter(os.path.isfile, overrides or ()):
        parsing.refuse(f"{path} is a file, not KEY=VALUE; did you mean --queries {quote(path)}?")
    console.begin()
    from pyserini_ance.adapt.adapt import adapt
    from pyserini_ance.adapt.data import Request
    from pyserini_ance.llm import Server

    is_new = not output.exists()
    server = Server(llm, llm_model, max_requests, max_tokens) if llm and llm_model else None
    try:
        with logging_redirect_tqdm():
            text = adapt(Request(documents, output, model, queries, judgments, server), overrides or (), plan)
    finally:
        with suppress(OSError):  # it is not empty, unless nothing could be read
            if is_new:
                output.rmdir()
    print(f"\n{text}")
    if plan:
        print("to train for a shorter time, add stage_defaults.steps=100 to the command")
