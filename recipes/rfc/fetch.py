"""Make a collection of up to a million passages, with queries, from the RFCs in Debian's packages.

    python recipes/rfc/fetch.py data/rfc --passages 1000000

The packages are downloaded by apt and unpacked into FOLDER/packages; nothing is installed. They are in
Debian's component non-free: the RFCs' licence forbids changes. The result is a folder in BEIR's layout,
FOLDER/PASSAGES.

A passage is some 32 words of a section of an RFC, titled by the RFC and the section: with its title it fills
64 tokens. As in the demo set, a query is a first sentence, here a section's, and the relevant document is
the passage that follows it; the sentence is left out. No RFC, nor one with the RFCs that it obsoletes, is in
two splits. The first N lines of corpus.jsonl are what `--passages N` writes; queries and judgments are always
the same. Nothing is random.
"""

import argparse
import gzip
import hashlib
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PARTS = "std std-proposed old-std fyi-bcp informational experimental misc others"
PACKAGES = tuple(f"doc-rfc-{part}" for part in PARTS.split())
QUERIES = {"dev": 500, "test": 1_000, "train": 20_000}
PASSAGE_WORDS = 32
SENTENCE_WORDS = range(6, 31)

# A page's footer, form feed and header.
PAGE_BREAK = re.compile(r"\n*\n[^\n]*\[Page +\w+\][ \t]*\n*\f?\n*(?:RFC \d+ [^\n]*\n)?\n*")
CONTROLS = re.compile(r"[\0-\x08\r\x0e-\x1f]")  # rfc752 has NULs
CONTENTS = re.compile(r"^.*(?:\.{3}|(?:\. ){3}).*$\n", re.MULTILINE)
# At the start of a line, numbered ("1.", "1.2", "Appendix A.", "B.1."), or one of those without content.
HEADING = re.compile(
    r"^(?:(?:\d+\.?|(?:\d+\.)+\d+\.?|(?:Appendix )?[A-Z](?:\.\d+)*[.:]) +(?=\w)"
    r"|(?=Author|Acknowledg|Full Copy))(.{3,70})\n\s*\n",
    re.MULTILINE,
)
NO_CONTENT = re.compile(
    r"author|acknowledg|references|copyright|contributors|status of|contents", re.IGNORECASE
)
SENTENCE = re.compile(r"[A-Z][a-zA-Z]*[ \n][^.?!:|<>=_{}]+\.(?=\s)")


@dataclass
class Section:
    id: str
    title: str
    sentence: str  # the first; "" if it is no query
    text: str  # after the sentence


def unpack(folder: Path) -> None:
    """Download and unpack the packages that the folder lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        unpacked = folder / package
        if unpacked.exists():
            continue
        done = subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(
                f"apt-get download {package}: {done.stderr.strip()}\nThe package is in Debian's component "
                "non-free: add `non-free` to the components of apt's sources, run `apt-get update`, and "
                "start this script again"
            )
        (archive,) = folder.glob(f"{package}_*.deb")
        partial = folder / f"{package}.partial"
        subprocess.run(["dpkg-deb", "-x", archive, partial], check=True)
        partial.rename(unpacked)
        archive.unlink()


def sections(folder: Path) -> Iterator[Section]:
    """Iterate over the sections of all RFCs below a folder, in the order of their numbers."""
    paths = (path for path in sorted(folder.rglob("rfc*.txt*")) if not path.is_symlink())
    named = ((re.fullmatch(r"rfc(\d+)\.txt(?:\.gz)?", path.name), path) for path in paths)
    for number, path in sorted({int(match[1]): path for match, path in named if match}.items()):
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", errors="replace")
        about = path.with_name(f"rfc{number}.json")
        title = json.loads(about.read_text(encoding="utf-8"))["title"] if about.exists() else f"RFC {number}"
        text = CONTENTS.sub("", PAGE_BREAK.sub("\n\n", CONTROLS.sub("", text)))
        # [before the first heading, heading, text, heading, text, ...]
        parts = HEADING.split(text)
        pairs = list(zip(parts[1::2], parts[2::2], strict=True)) or [("", text)]
        for place, (heading, body) in enumerate(pairs):
            if not NO_CONTENT.search(heading):
                match = SENTENCE.match(body.lstrip())
                words, rest = (match[0].split(), body.lstrip()[match.end() :].split()) if match else ([], [])
                asks = len(words) in SENTENCE_WORDS and len(rest) >= PASSAGE_WORDS // 2
                name = " - ".join(" ".join(one.split()) for one in (title, heading) if one)
                sentence, left = (" ".join(words), rest) if asks else ("", body.split())
                if left:
                    yield Section(f"rfc{number}-{place}", name, sentence, " ".join(left))


def families(folder: Path) -> dict[str, str]:
    """Map an RFC to one that stands for it, those that it obsoletes, those that they obsolete, and so on."""
    first: dict[str, str] = {}

    def first_of(name: str) -> str:
        while first.get(name, name) != name:
            name = first[name]
        return name

    for path in sorted(folder.rglob("rfc*.json")):
        for older in json.loads(path.read_text(encoding="utf-8")).get("obsoletes", []):
            first[first_of(path.stem)] = first_of(older.strip().lower())
    return {name: first_of(name) for name in first}


def split_of(family: str) -> str:
    share = drawn(f"split {family}")
    return "dev" if share < 0.05 else "test" if share < 0.15 else "train"


def drawn(name: str) -> float:
    """A number drawn uniformly from [0, 1), the same in every process."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def passages(section: Section, asks: bool) -> list[str]:
    """Cut the section's text, without the sentence that is a query, into passages of equal lengths."""
    words = [*([] if asks else section.sentence.split()), *section.text.split()]
    count = max(1, round(len(words) / PASSAGE_WORDS))
    bounds = [len(words) * part // count for part in range(count + 1)]
    return [" ".join(words[start:end]) for start, end in pairwise(bounds)]


def asking(
    found: list[Section], sizes: dict[str, int], family_of: dict[str, str]
) -> dict[str, list[Section]]:
    """Draw the sections whose first sentences are the queries of each split.

    No other section begins with a query's sentence, or goes on with its relevant passage, in any case.
    """
    able = [(one, one.sentence.lower(), passages(one, True)[0].lower()) for one in found if one.sentence]
    sentences, answers = (Counter(one[place] for one in able) for place in (1, 2))
    unique = [one for one, sentence, answer in able if sentences[sentence] == answers[answer] == 1]
    unique.sort(key=lambda one: drawn(f"query {one.id}"))
    parts: dict[str, list[Section]] = {split: [] for split in sizes}
    for one in unique:
        rfc = one.id.split("-")[0]
        parts[split_of(family_of.get(rfc, rfc))].append(one)
    return {split: part[: sizes[split]] for split, part in parts.items()}


def collection(found: list[Section], asked: set[str], size: int) -> list[dict[str, str]]:
    """Draw `size` passages: the relevant ones and others. Raises SystemExit if there are fewer."""
    known: set[str] = set()
    ordered: list[tuple[float, dict[str, str]]] = []
    cut = [
        (section.id in asked and number == 0, f"{section.id}-{number}", section.title, text)
        for section in found
        for number, text in enumerate(passages(section, section.id in asked))
    ]
    # Relevant passages come first: the first of equal passages stays.
    for relevant, id, title, text in sorted(cut, key=lambda one: not one[0]):
        if text not in known:
            known.add(text)
            record = {"_id": id, "title": title, "text": text}
            ordered.append((-1 if relevant else drawn(f"passage {id}"), record))
    if len(ordered) < size:
        raise SystemExit(f"--passages {size:,}: the packages have {len(ordered):,} different passages")
    ordered.sort(key=lambda pair: pair[0])
    return [record for _, record in ordered[:size]]


def make(packages: Path, folder: Path, size: int, sizes: dict[str, int] = QUERIES) -> None:
    found = list(sections(packages))
    chosen = asking(found, sizes, families(packages))
    (folder / "qrels").mkdir(parents=True)
    queries = []
    for split, part in chosen.items():
        queries += [{"_id": f"q-{one.id}", "text": one.sentence} for one in part]
        rows = ["query-id\tcorpus-id\tscore", *(f"q-{one.id}\t{one.id}-0\t1" for one in part)]
        (folder / "qrels" / f"{split}.tsv").write_text("".join(f"{row}\n" for row in rows))
    asked = {one.id for part in chosen.values() for one in part}
    for name, records in {"queries": queries, "corpus": collection(found, asked, size)}.items():
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{json.dumps(record)}\n" for record in records)


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("folder", type=Path, help="output folder; the recipes expect data/rfc")
    parser.add_argument("--passages", type=int, default=1_000_000)
    args = parser.parse_args()
    unpack(args.folder / "packages")
    make(args.folder / "packages", args.folder / str(args.passages), args.passages)


if __name__ == "__main__":
    main()
