"""Readers, one file a kind: models that answer a question from retrieved passages."""

from benchmarks.papers.readers.base import Reader
from benchmarks.papers.readers.dpr import DprReaderSettings
from benchmarks.papers.readers.extractive import Extractive
from benchmarks.papers.readers.rag_token import RagToken

READERS: dict[str, type[Reader]] = {"dpr": DprReaderSettings, "extractive": Extractive, "rag_token": RagToken}
