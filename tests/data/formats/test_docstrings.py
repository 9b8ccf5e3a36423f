import importlib.util
import os
import subprocess
import sys
from itertools import pairwise

import pytest

from pyserini_ance.data.formats.docstrings import Docstrings

REST = (
    "Some twenty words must stand behind the first sentence, or else the docstring is no document that can "
    "be found."
)


def module(name: str) -> str:
    """Source code of two documents, and of two more that repeat a sentence or a rest."""
    functions = {
        "a": ("first", "one"),
        "b": ("first", "two"),
        "c": ("second", "one"),
        "d": ("fourth", "four"),
    }
    return "\n".join(
        f'def {function}(): "Solve the {sentence} system of {name}. {REST} {name} {rest}"'
        for function, (sentence, rest) in functions.items()
    )


@pytest.fixture
def toolbox(tmp_path, monkeypatch):
    """Make the adapter of an installed package of 26 modules with two documents each."""
    folder = tmp_path / "toolbox"
    folder.mkdir()
    for name in "abcdefghijklmnopqrstuvwxyz":
        (folder / f"{name}.py").write_text(module(name))
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return lambda **settings: Docstrings(packages=("toolbox",), **settings)


def modules_of(texts) -> set[str]:
    return {id.removeprefix("q-").partition(":")[0] for id in texts.ids}


def test_each_query_has_the_rest_of_its_docstring_as_positive(toolbox):
    collection = toolbox().read()
    assert len(collection.documents) == 52
    for split in collection.splits.values():
        for row, id in enumerate(split.queries.ids):
            assert [
                f"q-{collection.documents.ids[result]}" for result in split.known_positives("query").of(row)
            ] == [id]


def test_the_first_of_repeated_sentences_and_rests_is_kept(toolbox):
    collection = toolbox(dev_share=0, test_share=0).read()
    train = collection.split("train")
    assert collection.documents.ids[:4] == ["toolbox.a:a", "toolbox.a:d", "toolbox.b:a", "toolbox.b:d"]
    assert collection.documents[1] == {"text": f"{REST} a four"}
    assert train.queries.take([0, 1]) == [
        {"text": f"Solve the {nth} system of a."} for nth in ("first", "fourth")
    ]
    assert list(collection.splits) == ["train"]


def test_no_module_is_in_two_splits(toolbox):
    splits = toolbox(dev_share=0.2, test_share=0.2).read().splits
    assert list(splits) == ["train", "dev", "test"]
    modules = [modules_of(split.queries) for split in splits.values()]
    assert sum(map(len, modules)) == len(set.union(*modules)) == 26


def test_splits_depend_on_the_seed(toolbox):
    digests = [toolbox(seed=seed, dev_share=0.2, test_share=0.2).read().digest for seed in (1, 2, 1)]
    assert digests[0] == digests[2] != digests[1]


def test_fewer_documents_are_whole_modules_and_nested(toolbox):
    sizes = (9, 10, 30, 52, 99)
    documents = [toolbox(max_documents=size, dev_share=0, test_share=0).read().documents for size in sizes]
    assert [len(part) for part in documents] == [8, 10, 30, 52, 52]
    assert all(len(modules_of(part)) * 2 == len(part) for part in documents)
    assert all(set(small.ids) <= set(large.ids) for small, large in pairwise(documents))


def test_a_split_without_modules_is_an_error(toolbox):
    with pytest.raises(ValueError, match=r"split '(train|dev|test)' has no query .* 0 queries"):
        toolbox(max_documents=2).read()


def test_shares_must_leave_training_data():
    with pytest.raises(ValueError, match=r"dev_share 0\.5 \+ test_share 0\.5: expected a sum below 1"):
        Docstrings(dev_share=0.5, test_share=0.5)


def test_a_package_that_is_not_installed_is_an_error():
    with pytest.raises(
        ValueError, match=r"no installed package 'no_such_package'; .* pip install no_such_package"
    ):
        Docstrings(packages=("no_such_package",)).read()


def test_every_process_reads_the_same_collection():
    code = (
        "from pyserini_ance.data.formats.docstrings import Docstrings; "
        "collection = Docstrings(packages=('numpy',), max_documents=600).read(); print(collection.digest)"
    )
    printed = {
        subprocess.check_output(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, text=True
        )
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_installed_packages_make_a_collection():
    """Two of the five packages of the demo; reading all of them takes 15 seconds."""
    collection = Docstrings(packages=("numpy", "sklearn")).read()
    assert 2000 <= len(collection.documents) <= 4000
    assert list(collection.splits) == ["train", "dev", "test"]
    assert all(len(split.queries) > 100 for split in collection.splits.values())
    lstsq = collection.documents[collection.documents.rows["numpy.linalg._linalg:lstsq"]]["text"]
    assert lstsq.startswith("Computes the vector `x` that approximately solves the equation")


def test_the_packages_of_the_demo_are_installed():
    assert [name for name in Docstrings().packages if importlib.util.find_spec(name) is None] == []
