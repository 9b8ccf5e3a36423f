import subprocess
import sys
from itertools import pairwise

import pytest

from pyserini_ance.data.formats.docstrings import Docstrings, package_docstrings

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


@pytest.fixture
def three_packages(tmp_path, monkeypatch):
    """Make the adapter of three installed packages, whose names begin alike, of two modules each."""
    for package in ("box", "boxes", "box2"):
        (tmp_path / package).mkdir()
        for name in ("__init__", "other"):
            (tmp_path / package / f"{name}.py").write_text(module(f"{package} {name}"))
    monkeypatch.syspath_prepend(tmp_path)
    return lambda **settings: Docstrings(**{"packages": ("box",), **settings})


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


def test_no_module_is_in_two_splits_which_depend_on_the_seed(toolbox):
    shares = {"dev_share": 0.2, "test_share": 0.2}
    assert toolbox(seed=1, **shares).read().digest != toolbox(seed=2, **shares).read().digest
    splits = toolbox(**shares).read().splits
    assert list(splits) == ["train", "dev", "test"]
    modules = [modules_of(split.queries) for split in splits.values()]
    assert sum(map(len, modules)) == len(set.union(*modules)) == 26


def test_the_files_are_those_of_all_packages(three_packages, tmp_path):
    paths = [path for _, path in three_packages(dev_packages=("boxes",)).files()]
    assert sorted(path.relative_to(tmp_path).as_posix() for path in paths) == [
        f"{package}/{name}.py" for package in ("box", "boxes") for name in ("__init__", "other")
    ]


def test_packages_of_dev_and_test_are_whole(three_packages):
    collection = three_packages(dev_packages=("boxes",), test_packages=("box2",)).read()
    assert {name: modules_of(split.queries) for name, split in collection.splits.items()} == {
        "train": {"box", "box.other"},
        "dev": {"boxes", "boxes.other"},
        "test": {"box2", "box2.other"},
    }
    assert len(collection.documents) == 12


def test_fewer_documents_are_whole_modules_and_nested(toolbox):
    sizes = (9, 10, 30, 52, 99)
    documents = [toolbox(max_documents=size, dev_share=0, test_share=0).read().documents for size in sizes]
    assert [len(part) for part in documents] == [8, 10, 30, 52, 52]
    assert all(len(modules_of(part)) * 2 == len(part) for part in documents)
    assert all(set(small.ids) <= set(large.ids) for small, large in pairwise(documents))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write the modules of an installed package `toolbox`, and return its docstrings."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**modules: str):
        for name, source in modules.items():
            path = tmp_path / "toolbox" / f"{name.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        return list(package_docstrings("toolbox"))

    return write


def function(docstring: str, name: str = "f") -> str:
    body = docstring.replace("\n", "\n    ")
    return f'def {name}():\n    r"""{body}"""\n'


@pytest.mark.parametrize(
    ("docstring", "sentence", "rest"),
    [
        (f"Solve a linear system. {REST}", "Solve a linear system.", REST),
        (f"Solve a\nlinear system.\n\n  {REST}", "Solve a linear system.", REST),
        (f"Solve a system, e.g. by hand. {REST}", "Solve a system, e.g. by hand.", REST),
        (
            f"Solve in version 2.0 only! {REST}\n\nkept\n    in",
            "Solve in version 2.0 only!",
            f"{REST}\n\nkept\n    in",
        ),
    ],
)
def test_a_docstring_is_split_after_its_first_sentence(package, docstring, sentence, rest):
    [found] = package(__init__=function(docstring))
    assert (found.sentence, found.rest) == (sentence, rest)


@pytest.mark.parametrize(
    "docstring",
    [
        f"Three words only. {REST}",
        "A sentence with a short rest. Nineteen words would still be too few.",
        f"Deprecated since version one point two. {REST}",
        f"f(a, b, c, d) -> float. {REST}",
        f"Parameters\n----------\na : some of many values.\n\n{REST}",
        f"writer : a file or a path. {REST}",
        f".. versionadded:: since the second version. {REST}",
        f"Solve it in this way::\n\n    {REST}",
    ],
)
def test_docstrings_that_do_not_begin_with_a_sentence_are_skipped(package, docstring):
    assert package(__init__=function(docstring)) == []


def test_definitions_inside_functions_are_skipped(package):
    source = f'''
"""The docstring of a module. {REST}"""
if True:
    class Solver:
        """Solve many linear systems. {REST}"""
        @property
        def rank(self):
            """The rank of the system. {REST}"""
            def inner(): "Not to be seen here. {REST}"
        class Options:
            """The options of a solver. {REST}"""
try:
    pass
except ImportError:
    async def later(): "Solve a system some day. {REST}"
'''
    found = package(**{"linear.direct": source})
    names = ["Solver", "Solver.rank", "Solver.Options", "later"]
    assert [docstring.id for docstring in found] == [f"toolbox.linear.direct:{name}" for name in names]
    assert {docstring.module for docstring in found} == {"toolbox.linear.direct"}
    assert (found[0].line.path.name, found[0].line.number) == ("direct.py", 4)


def test_test_modules_are_skipped(package):
    source = "raise RuntimeError('imported')\n" + function(f"Solve a linear system. {REST}")
    tests = ["tests.a", "sub.test_a", "conftest", "testing.b", "sub.a_test"]
    found = package(**dict.fromkeys(["__init__", "sub.__init__", "sub.contest", *tests], source))
    assert [docstring.id for docstring in found] == ["toolbox:f", "toolbox.sub:f", "toolbox.sub.contest:f"]


@pytest.mark.parametrize(
    ("source", "line"),
    [("a = 1\ndef f(:\n", 2), ("a = " + "-" * 50_000 + "1", 1), ("a = '\0'", 1)],
    ids=["syntax", "depth", "NUL"],
)
def test_the_error_for_a_file_that_cannot_be_parsed_names_it(package, source, line):
    message = rf"b\.py, line {line}: .*; expected Python source; remove its package from"
    with pytest.raises(ValueError, match=message):
        package(__init__="", b=source)


@pytest.mark.parametrize(
    ("name", "installed"), [("no_such_package", "no_such_package"), ("sklearn", "scikit-learn")]
)
def test_the_error_for_a_missing_package_says_how_to_install_it(monkeypatch, name, installed):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=f"no installed package '{name}'; .* pip install {installed}$"):
        list(package_docstrings(name))


def test_nothing_is_imported_warned_or_printed():
    code = (
        "import sys; from pyserini_ance.data.formats.docstrings import package_docstrings; "
        "assert next(package_docstrings('matplotlib')); assert 'matplotlib' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""
