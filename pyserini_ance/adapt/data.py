"""The data of an adaptation in BEIR's layout: documents, queries, and for each split judgments, or what
stands for them."""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.adapt.documents import WORDS, Passage, Reading, read_passages
from pyserini_ance.adapt.queries import Queries, keep_known, read_queries, split, synthetic
from pyserini_ance.adapt.ranking import StartRanker
from pyserini_ance.adapt.recipe_file import COMPARED
from pyserini_ance.data.document_queries import split_words
from pyserini_ance.data.trec import Qrels
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.pipeline.mining import load_collection
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.any_encoder import encoder_settings, load_any_encoder
from pyserini_ance.storage.files import file_state, read_json_object, write_json
from pyserini_ance.storage.publish import whole_folder

MOST_COMPARED = 100
MAX_PASSAGES = 8  # of a judged document that is too long for one
LONG_SHARE = 0.1  # of documents of more than two passages, from which on they are read as passages
ABOUT = "adapt.json"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """What the user has: documents, perhaps queries and judgments, and an encoder to start from."""

    documents: str
    output: Path
    model: str
    queries: Path | None = None
    judgments: Path | None = None

    def identity(self) -> dict[str, Any]:
        """What the data in the folder is made of."""
        paths = (Path(self.documents), self.queries, self.judgments)
        states = [[str(path.absolute()), *file_state(path)] for path in paths if path and path.is_file()]
        return {"documents": self.documents, "files": states, "model": self.model}


@dataclass
class Data:
    """What is written: the texts of queries, and what each split judges; `lines` say where they are from."""

    texts: dict[str, str]
    splits: dict[str, Qrels]
    supervision: str
    lines: list[str]


def prepare(request: Request) -> dict[str, Any]:
    """Write the folder `data` unless it is there; returns its record: `text`, which says what was read, and
    the arguments of `recipe_text`.

    Raises ValueError if the folder was made of something else, and for documents without any text.
    """
    data = request.output / "data"
    if about := read_json_object(data / ABOUT):
        if about["made of"] != request.identity():
            raise ValueError(
                f"{request.output} was made of other documents, queries, judgments or of another model than "
                "these; pass another --output, or remove the folder"
            )
        return about
    encoder = load_any_encoder(request.model)
    source, cache = (
        Path(request.documents).expanduser(),
        Recipe.model_fields["cache"].get_default().expanduser(),
    )
    queries = read_queries(request.queries, request.judgments, source, cache)
    reading, cuts = Reading(), not queries.judgments
    with whole_folder(data) as new:
        ids, are_long = _write_corpus(new, read_passages(request.documents, reading, cuts))
        if not ids:
            raise ValueError(f"{request.documents}: no document with a text\n{reading.as_text()}")
        keep_known(queries, ids)
        split(queries)
        found = _supervised(queries, new, encoder, cache)
        _write_lines(new / "queries.jsonl", ({"_id": id, "text": text} for id, text in found.texts.items()))
        (new / "qrels").mkdir()
        for name, qrels in found.splits.items():
            with open(new / "qrels" / f"{name}.tsv", "w", encoding="utf-8") as file:
                file.write("query-id\tcorpus-id\tscore\n")
                for query, grades in qrels.items():
                    file.writelines(f"{query}\t{document}\t{grade}\n" for document, grade in grades.items())
        recipe = {
            "encoder": encoder_settings(request.model) | {"model": request.model},
            "supervision": found.supervision,
            "splits": list(found.splits),
            "max_passages": MAX_PASSAGES if are_long and not cuts else None,
            "scale": 20 if encoder.config.normalize else 1,
        }
        text = "\n".join([reading.as_text(), *found.lines])
        about = {"made of": request.identity(), "text": text, "recipe": recipe}
        write_json(new / ABOUT, about)
    return about


def _write_corpus(folder: Path, passages: Iterable[Passage]) -> tuple[set[str], bool]:
    """Write the documents; returns their ids, and whether many are longer than a passage."""
    ids: set[str] = set()
    num_long = 0

    def records() -> Iterable[dict[str, str]]:
        nonlocal num_long
        for passage in passages:
            ids.add(passage.id)
            num_long += len(split_words(passage.text)) > 2 * WORDS
            yield {"_id": passage.id, "title": passage.title, "text": passage.text}

    _write_lines(folder / "corpus.jsonl", records())
    return ids, num_long > LONG_SHARE * len(ids)


def _supervised(queries: Queries, folder: Path, encoder: Encoder, cache: Path) -> Data:
    """The splits: judged ones, and, where these do not train, queries with a document that stands for one."""
    judged = {name: {id: queries.judgments[id] for id in of} for name, of in queries.splits.items() if of}
    held = ", ".join(f"{name} {len(of):,}" for name, of in judged.items()) or "none"
    counted = "".join(f"; {count:,} {what}" for what, count in queries.counts.items() if count)
    supervision, unjudged = queries.supervision(), queries.unjudged
    lines = [
        f"judged queries: {held}; without judgments: {len(unjudged):,}{counted}",
        f"what teaches: {supervision} queries",
    ]
    if supervision == "judged":
        if unjudged:
            lines[-1] += "; those without judgments are not used"
        return Data(queries.texts, judged, supervision, lines)
    collection = load_collection({"kind": "beir", "folder": str(folder), "splits": {}}, cache)
    texts = dict(queries.texts)
    if supervision == "unjudged":
        asked = {id: texts[id] for id in unjudged}
        firsts, agreed = StartRanker(encoder, collection, cache).pseudo_judgments(asked)
        lines.append(f"BM25 and the encoder find the same document first for {agreed:,} of {len(asked):,}")
    else:
        documents = collection.documents
        made = synthetic(Passage(id, **documents[row]) for row, id in enumerate(documents.ids))
        texts |= {id: text for id, (text, _) in made.items()}
        firsts = {id: document for id, (_, document) in made.items()}
        lines.append(f"made of the documents: {len(made):,} titles and crops")
    if not firsts:
        raise ValueError(f"nothing teaches: {'; '.join(lines)}; pass queries, or more documents")
    is_judged = judged.keys() >= {"dev", "test"}
    compared = [] if is_judged else list(firsts)[:MOST_COMPARED]
    trained = [id for id in firsts if id not in set(compared)] or list(firsts)
    splits: dict[str, Qrels] = {supervision: {id: {firsts[id]: 1} for id in trained}}
    if is_judged:
        splits |= {name: judged[name] for name in ("dev", "test")}
    else:
        splits[COMPARED] = {id: {firsts[id]: 1} for id in compared}
    return Data(texts, splits, supervision, lines)


def _write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
