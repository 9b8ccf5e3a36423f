"""Documents without text that are left out, with their judgments."""

from collections import Counter
from collections.abc import Iterable, Iterator

from pyserini_ance.data.formats.builder import Entry, Judgment, is_empty

DOCUMENTS = "documents without text"
JUDGMENTS = "judgments of documents without text"


class EmptyDocuments:
    """Leaves out documents without text and the judgments of them, and counts both.

    In memory are the ids of these documents. Consume the documents before the judgments.
    """

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self._judgments: Counter[str] = Counter()

    def leave_out(self, documents: Iterable[Entry]) -> Iterator[Entry]:
        """Iterate over the documents that have a text."""
        for document in documents:
            if is_empty(document):
                self.ids.add(document.id)
            else:
                yield document

    def leave_out_judgments(self, split: str, judgments: Iterable[Judgment]) -> Iterator[Judgment]:
        """Iterate over a split's judgments of the other documents."""
        for judgment in judgments:
            if judgment.document in self.ids:
                self._judgments[split] += 1
            else:
                yield judgment

    def counts(self) -> dict[str, int]:
        """What was left out, by description; the documents first."""
        documents = {DOCUMENTS: len(self.ids)} if self.ids else {}
        return documents | {f"{split} {JUDGMENTS}": count for split, count in self._judgments.items()}
