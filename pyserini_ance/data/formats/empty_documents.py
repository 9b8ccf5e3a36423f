"""Documents without text that are left out, with their judgments."""

from collections import Counter
from collections.abc import Iterable, Iterator

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.formats.builder import Entry, Judgment, is_empty, repeated_id
from pyserini_ance.data.formats.lines import Line, LineOrigins, shown

DOCUMENTS = "documents without text"
JUDGMENTS = "judgments of documents without text"


class EmptyDocuments:
    """Leaves out documents without text and the judgments of them, and counts both.

    In memory are the ids of these documents and their lines. Consume the documents before the judgments.
    """

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self._judgments: Counter[str] = Counter()

    def leave_out(self, documents: Iterable[Entry]) -> Iterator[Entry]:
        """Iterate over the documents that have a text. Raises ValueError for a repeated id of the others."""
        for document in documents:
            if is_empty(document):
                if first := self.lines.get(document.id):
                    raise repeated_id("document", document.id, first, document.line)
                self.lines[document.id] = document.line._replace(text="")
            else:
                yield document

    def check(self, documents: Texts, origins: LineOrigins) -> None:
        """Raise ValueError if one of `documents`, which have a text, has the id of one without."""
        for id, line in self.lines.items():
            if (row := documents.rows.get(id)) is not None:
                other = origins.line(row)
                problem = f"document {shown(id)} is empty, but has a text in {other.place}"
                raise line.error(problem, "each id once", "delete one of the two, or rename it")

    def leave_out_judgments(self, split: str, judgments: Iterable[Judgment]) -> Iterator[Judgment]:
        """Iterate over a split's judgments of the other documents."""
        for judgment in judgments:
            if judgment.document in self.lines:
                self._judgments[split] += 1
            else:
                yield judgment

    def counts(self) -> dict[str, int]:
        """What was left out, by description; the documents first."""
        documents = {DOCUMENTS: len(self.lines)} if self.lines else {}
        return documents | {f"{split} {JUDGMENTS}": count for split, count in self._judgments.items()}
