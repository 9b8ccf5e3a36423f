"""Splits that are made, against slow references: queries from documents, and a dev split that is cut."""

import hashlib
import itertools

import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.formats.beir import Beir
from pyserini_ance.data.given_collection import make_collection
from pyserini_ance.data.made_splits import DocumentQueries, cut_dev, split_words

DOCUMENTS = {
    "d1": ("A title of five words", "One two three four five six. Seven eight nine ten! Eleven."),
    "7": ("", "Dr. Who  met\nthe e.g. small robots. They ran away."),
    "007": ("Too short", "Only three words"),
    "d-1": ("The same four words", "Exactly four words here"),
    "long": ("Long " * 30, " ".join(f"w{number}" for number in range(100))),
}
ROBOTS = "Dr. Who met the e.g. small robots."
TEXTS = Texts(list(DOCUMENTS), dict(zip(("title", "text"), map(list, zip(*DOCUMENTS.values())), strict=True)))
QUERIES = 12
# Query q11 has no relevant document.
JUDGED = {f"q{n}": {f"d{n}": int(n < 11), f"d{(n + 1) % QUERIES}": 0} for n in range(QUERIES)}
BOTH = ["train", "dev"]


def queries(source, **settings) -> DocumentQueries:
    return DocumentQueries.model_validate({"from": source, **settings})


def made(settings: DocumentQueries, texts: Texts = TEXTS, grade: int = 1):
    """The ids, texts and documents of the queries, and what was skipped."""
    skipped: dict[str, int] = {}
    split = settings.make_split(texts, grade, skipped)
    documents = [texts.ids[split.qrels.relevant(row).item()] for row in range(len(split.queries))]
    return list(zip(split.queries.ids, split.queries.columns["text"], documents, strict=True)), skipped


def crop_slowly(text: str, id: str, number: int, shortest: int, longest: int) -> str:
    """List the lengths, then all crops of the length, and take those that the hash points at."""
    words = text.split()
    hexadecimal = hashlib.sha256(f"0 {number} {id}".encode()).hexdigest()
    lengths = [length for length in range(shortest, longest + 1) if length <= len(words)]
    length = lengths[int(hexadecimal[:16], 16) % len(lengths)]
    crops = [words[start : start + length] for start in range(len(words)) if start + length <= len(words)]
    return " ".join(crops[int(hexadecimal[16:32], 16) % len(crops)])


@pytest.mark.parametrize(("shortest", "longest"), [(4, 16), (1, 3), (4, 4), (2, 200)])
def test_crops_are_those_of_the_slow_reference(shortest, longest):
    settings = queries("crops", per_document=5, words=(shortest, longest))
    expected, num_short, num_repeated = [], 0, 0
    for id, (_, text) in DOCUMENTS.items():
        if len(text.split()) < shortest:
            num_short += 1
            continue
        crops = [crop_slowly(text, id, number, shortest, longest) for number in range(5)]
        different = sorted(set(crops), key=crops.index)
        num_repeated += len(crops) - len(different)
        expected += [(f"crops-{id}-{number}", crop, id) for number, crop in enumerate(different)]
    found, skipped = made(settings)
    assert found == expected
    assert skipped.pop("train crops that repeat another of their document") == num_repeated
    assert skipped == {f"train documents with fewer than {shortest} words in text": num_short}


@pytest.mark.parametrize(
    ("min_words", "expected"),
    [
        (1, ["One two three four five six.", "Dr.", "Only three words", "Exactly four words here"]),
        (4, ["One two three four five six.", ROBOTS, "Exactly four words here"]),
        (7, ["One two three four five six. Seven eight nine ten!", ROBOTS]),
        (11, ["One two three four five six. Seven eight nine ten! Eleven."]),
    ],
)
def test_first_sentences_are_as_few_as_have_the_words(min_words, expected):
    found, skipped = made(queries("first_sentences", words=(min_words, 12)))
    long = " ".join(f"w{number}" for number in range(12))
    assert [text for _, text, _ in found] == [*expected, long]
    assert sum(skipped.values()) == len(DOCUMENTS) - len(found)


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        ("北京是中国的首都。它很大。", "北 京 是 中 国 的 首 都。 它 很 大。", "北京是中国的首都。"),
        ("PyTorch 2 は「速い」ライブラリー。", "PyTorch_ 2_ は「 速 い」 ラ イ ブ ラ リ ー。", None),
        ("กินข้าวที่บ้าน ดี", "กิ น ข้ า ว ที่ บ้ า น_ ดี", None),
        ("ខ្ញុំទៅ។ គាត់", "ខ្ញុំ ទៅ។_ គា ត់", "ខ្ញុំទៅ។"),
        ("Tokyo (東京) is a city.", "Tokyo_ (東京)_ is_ a_ city.", None),
    ],
)
def test_scripts_without_blanks_have_a_word_in_each_character(text, words, sentence):
    """`_` is the blank between two words; a mark stays with its character."""
    found = split_words(text)
    assert [word.replace(" ", "_") for word in found] == [*words.split()[:-1], f"{words.split()[-1]}_"]
    assert "".join(found).rstrip() == text
    assert queries("first_sentences", words=(2, 99)).of_text("d", text) == [sentence or text]
    [crop] = queries("crops", words=(3, 3)).of_text("d", text)
    assert crop in text and len(split_words(crop)) == 3


def test_titles_end_after_the_most_words_and_sentences_with_the_marks_of_other_scripts():
    found, skipped = made(queries("titles", words=(4, 6)))
    expected = {"titles-d1-0": "A title of five words", "titles-d-1-0": "The same four words"}
    expected["titles-long-0"] = "Long Long Long Long Long Long"
    assert [(id, text) for id, text, _ in found] == [*expected.items()]
    assert skipped["train documents with fewer than 4 words in title"] == 2
    first = ["यह पहला छोटा वाक्य है।", "ما هو هذا السؤال القصير؟"]
    texts = Texts(["d", "e"], {"text": [f"{first[0]} यह दूसरा वाक्य है।", f"{first[1]} هذا جواب طويل."]})
    assert [query for _, query, _ in made(queries("first_sentences"), texts)[0]] == first


@pytest.mark.parametrize("source", ["titles", "first_sentences"])
def test_documents_share_a_query_of_equal_words(source):
    """Each would otherwise be a negative of the same query."""
    words = ["Red apples are sweet.", "Green pears are not.", "Red  apples are\nsweet.", "Too short"]
    texts = Texts(list("abcd"), {"title": words, "text": [f"{one} And more of it." for one in words]})
    split = queries(source).make_split(texts, 2, {})
    expected = [f"{source}-a-0", f"{source}-b-0", f"{source}-d-0"][: 2 if source == "titles" else 3]
    assert split.queries.ids == expected
    assert [split.qrels.relevant(row).tolist() for row in (0, 1)] == [[0, 2], [1]]
    assert split.qrels.threshold == 2 and set(split.qrels.grades.tolist()) == {2}


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        ("crops", {"words": (9, 8)}, r"words is \[9, 8\]; expected .minimum, maximum.; swap"),
        ("titles", {"per_document": 2}, "a document gives one query from: titles; remove"),
        ("titles", {}, "have no field 'title'; fields: text; use another `from`"),
        ("crops", {"words": (500, 500)}, "none of 1 documents has 500 words in 'text'; lower"),
    ],
)
def test_settings_and_documents_that_give_no_query_are_errors(source, settings, message):
    with pytest.raises(ValueError, match=message):
        queries(source, **settings).make_split(Texts(["d"], {"text": ["one two three four"]}), 1, {})


def test_dev_and_test_stay_those_of_the_data():
    documents = {id: {"title": title, "text": text} for id, (title, text) in DOCUMENTS.items()}
    given = {"dev": {"q1": "who"}, "test": {"q2": "w7"}}
    judged = {"dev": {"q1": {"long": 2}}, "test": {"q2": {"long": 2}}}
    crops = {"from": "crops", "per_document": 2}
    made = make_collection(documents, given, judged, train_queries=crops, relevance_threshold=2)
    assert list(made.splits) == ["train", "dev", "test"]
    assert (made.split("dev").queries.ids, made.split("test").queries.ids) == (["q1"], ["q2"])
    expected = queries("crops", per_document=2).make_split(made.documents, 2, {})
    assert made.split("train").queries.digest == expected.queries.digest
    assert made.split("train").qrels.digest == expected.qrels.digest
    assert made.skipped["train documents with fewer than 4 words in text"] == 1
    assert made.documents.digest == make_collection(documents, given, judged).documents.digest  # stay whole


def test_made_queries_may_be_a_split_beside_train():
    documents, given = {"a": "one two three four five"}, {"train": {"q": "who"}, "test": {"t": "what"}}
    judged = {"train": {"q": {"a": 1}}, "test": {"t": {"a": 1}}}
    crops = {"from": "crops", "split": "made", "words": (2, 3)}
    made = make_collection(documents, given, judged, train_queries=crops)
    assert list(made.splits) == ["made", "train", "test"]
    assert made.split("made").queries.ids == ["crops-a-0"] and made.split("train").queries.ids == ["q"]


def cut(count: int | None, judged: dict = JUDGED, texts: dict | None = None) -> Collection:
    """`count` queries of a split without dev."""
    documents = {f"d{n}": f"document {n}" for n in range(QUERIES)}
    given = {"train": texts or {f"q{n}": f"query {n}" for n in range(QUERIES)}, "test": {"t": "other"}}
    return make_collection(documents, given, {"train": judged, "test": {"t": {"d0": 1}}}, hold_out=count)


@pytest.mark.parametrize("count", [1, 4, 10])
def test_the_queries_are_those_of_the_slow_reference(count):
    collection = cut(count)
    assert list(collection.splits) == ["train", "dev", "test"]
    dev, train = collection.split("dev"), collection.split("train")
    hashes = {f"q{n}": hashlib.sha256(f"0 d{n}".encode()).hexdigest() for n in range(11)}
    assert set(dev.queries.ids) == set(sorted(hashes, key=lambda id: hashes[id])[:count])
    assert collection.judgments("dev") | collection.judgments("train") == JUDGED
    assert len(dev.queries) + len(train.queries) == QUERIES
    for split in (dev, train):
        assert split.queries.columns["text"] == [f"query {id[1:]}" for id in split.queries.ids]


@pytest.mark.parametrize(("count", "documents"), [(2, 1), (3, 1), (4, 2), (5, 2)])
def test_no_document_is_relevant_to_queries_of_both_splits(count, documents):
    """Each of three has two queries; whole groups are taken, in the order of hashes."""
    order = sorted(["d0", "d3", "d7"], key=lambda id: hashlib.sha256(f"0 {id}".encode()).digest())
    judged = {f"q{n}": {order[n // 2 % 3]: 1} for n in range(6)} | {"q6": {"d11": 0}}
    collection = cut(count, judged)
    judged_of = {name: collection.judgments(name).values() for name in ("train", "dev")}
    asked = {name: {*itertools.chain(*grades)} for name, grades in judged_of.items()}
    assert asked == {"dev": {*order[:documents]}, "train": {*order[documents:], "d11"}}
    with pytest.raises(ValueError, match="each document or text of split 'train' has 2 queries or more"):
        cut(1, judged)


def test_queries_of_one_text_stay_together_with_those_of_their_documents():
    """q0 to q3: by the text of q1 and q2, and by two documents; the others are alone."""
    texts = ["a", "Who  was it", "who was IT", *map(str, range(3, QUERIES))]
    documents = ["d0", "d0", "d1", "d1", *(f"d{n}" for n in range(4, QUERIES))]
    judged = {f"q{n}": {document: 1} for n, document in enumerate(documents)}
    together = {f"q{n}" for n in range(4)}
    for count in range(1, QUERIES):
        dev = cut(count, judged, {f"q{n}": text for n, text in enumerate(texts)}).split("dev")
        assert len(together.intersection(dev.queries.ids)) in (0, 4) and len(dev.queries) <= count
    assert together < set(dev.queries.ids)


def test_the_cut_depends_neither_on_the_order_of_copies_nor_on_judgments_of_a_text():
    """Two copies of each document, of which one is judged; u0 to u11 ask the same without judgments."""
    documents = {f"{copy}{n}": f"document {n}" for n in range(QUERIES) for copy in "dc"}
    texts = {f"{kind}{n}": f"query {n}" for n in range(QUERIES) for kind in "qu"}
    judged = {f"q{n}": {f"{'dc'[n % 2]}{n}": 1} for n in range(QUERIES)}
    cuts = []
    for order in (1, -1):
        ids = [*documents][::order]
        whole = make_collection({one: documents[one] for one in ids}, {"train": texts}, {"train": judged})
        cut = cut_dev(whole.splits, 4, whole.documents)
        asked = {name: {*split.queries.columns["text"]} for name, split in cut.items()}
        assert not asked["train"] & asked["dev"] and len(cut["dev"].queries) == 4
        cuts.append({*cut["dev"].queries.ids})
    assert cuts[0] == cuts[1]


@pytest.mark.parametrize("wanted, splits", [(["train"], BOTH), (["dev"], BOTH), (["test"], ["test"])])
def test_the_cut_is_the_same_whichever_splits_are_wanted_and_no_dev_is_read(tmp_path, wanted, splits):
    cut(None).to_beir(tmp_path / "set")
    (tmp_path / "set/qrels/dev.tsv").write_text("not qrels at all\n")
    data = Beir(folder=tmp_path / "set", hold_out=4)
    assert "dev.tsv" not in {path.name for path in data.of_splits(["train", "dev", "test"]).input_files()}
    whole, part = cut(4), data.of_splits(wanted).read()
    assert list(part.splits) == splits
    for name in splits:
        assert part.split(name).queries.digest == whole.split(name).queries.digest
        assert part.split(name).qrels.digest == whole.split(name).qrels.digest


def test_published_counts_do_not_hold_for_what_is_cut():
    counts = {f"{name} queries": 12 for name in ("train", "dev", "test")}
    both = Beir(folder="any", official=counts, hold_out=2)
    assert [both.published("queries", name) for name in ("train", "dev", "test")] == [None, None, 12]


@pytest.mark.parametrize("name", ["train", "test"])
def test_a_split_that_does_not_exist_or_has_no_judgments(name):
    unjudged = Split(name, Texts(["q"], {"text": ["who"]}), Qrels.of([], [], [], 1))
    with pytest.raises(ValueError, match=f"hold_out is 1, but split 'train' has 0 .*; splits: {name};"):
        cut_dev({name: unjudged}, 1, TEXTS)
