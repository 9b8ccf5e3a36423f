"""Docstrings, first sentences and rests."""

import subprocess
import sys

import pytest

from pyserini_ance.data.formats.docstrings import package_docstrings

REST = (
    "Some twenty words must stand behind the first sentence, or else the docstring is no document that can "
    "be found."
)


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
        (f"Solve a linear system\n\n{REST}", "Solve a linear system", REST),
        (f"Solve a\nlinear system.\n\n  {REST}", "Solve a linear system.", REST),
        (f"Solve a system, e.g. by hand. {REST}", "Solve a system, e.g. by hand.", REST),
        (f"Why (solve a system?) {REST}", "Why (solve a system?)", REST),
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


def test_the_error_for_an_unparsable_file_names_it(package):
    with pytest.raises(
        ValueError, match=r"b\.py, line 2: .*; expected Python source; remove its package from"
    ):
        package(__init__="", b="a = 1\ndef f(:\n")


@pytest.mark.parametrize(
    "source",
    [
        "a = 1" + " + 1" * 50_000,
        "a = " + "-" * 50_000 + "1",
        "if a: pass\n" + "elif a: pass\n" * 1500,
        "a = '\0'",
    ],
)
def test_the_error_for_a_file_beyond_the_parser_names_it(package, source):
    with pytest.raises(
        ValueError, match=r"b\.py, line 1: .*; expected Python source; remove its package from"
    ):
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
