import pytest

from pyserini_ance.data.formats.docstrings import Docstrings, package_docstrings

REST = "Some twenty words must stand behind the first sentence, or it is no text that can be found at all."
# What is split off as the first sentence of a docstring, and what is left.
SPLIT = {"Solve a\nlinear system.": REST, "Solve a system, e.g. by hand.": REST}
SPLIT["Solve in version 2.0 only!"] = f"{REST}\n\nkept\n    in"
SKIPPED = [f"Three words only. {REST}", f"Solve it in this way::\n\n    {REST}"]
SKIPPED += ["A sentence with a short rest. Nineteen words would still be too few."]
SKIPPED += [f"Parameters\n----------\na : some of many values.\n\n{REST}"]


def module(name: str) -> str:
    """Source code of two documents, and of two more that repeat a sentence or a rest."""
    functions = dict(a=("first", "one"), b=("first", "two"), c=("second", "one"), d=("fourth", "four"))
    form = f'def {{}}(): "Solve the {{}} system of {name}. {REST} {name} {{}}"'
    return "\n".join(form.format(function, *own) for function, own in functions.items())


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write the modules of an installed package, `toolbox` unless named, and return its docstrings."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(modules: dict[str, str], name: str = "toolbox"):
        for each, source in modules.items():
            path = tmp_path / name / f"{each.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        return list(package_docstrings(name))

    return write


@pytest.fixture
def toolbox(package):
    """Make the adapter of an installed package of 26 modules with two documents each."""
    package({"__init__": "", **{name: module(name) for name in "abcdefghijklmnopqrstuvwxyz"}})
    return lambda **settings: Docstrings(**{"packages": ["toolbox"], **settings})


def modules_of(texts) -> set[str]:
    return {id.removeprefix("q-").partition(":")[0] for id in texts.ids}


def test_each_query_has_the_rest_of_its_docstring_as_positive(toolbox):
    collection = toolbox().read()
    assert len(collection.documents) == 52
    for name in collection.splits:
        for id, grades in collection.judgments(name).items():
            assert grades == {id.removeprefix("q-"): 1}


def test_the_first_of_repeated_sentences_and_rests_is_kept(toolbox):
    collection = toolbox(packages={"train": ["toolbox"]}).read()
    assert collection.documents.ids[:4] == ["toolbox.a:a", "toolbox.a:d", "toolbox.b:a", "toolbox.b:d"]
    assert collection.documents[1] == {"text": f"{REST} a four"}
    assert collection.split("train").queries[1] == {"text": "Solve the fourth system of a."}
    assert list(collection.splits) == ["train"]


def test_no_module_is_in_two_splits_which_stay_as_they_were(toolbox):
    splits = toolbox().read().splits
    assert list(splits) == ["train", "dev", "test"]
    modules = [modules_of(split.queries) for split in splits.values()]
    assert sum(map(len, modules)) == len(set.union(*modules)) == 26
    assert [sorted(module[-1] for module in part) for part in modules[1:]] == [list("hnp"), list("t")]


def test_packages_of_dev_and_test_are_whole(package):
    for name in ("box", "boxes", "box2"):
        package({each: module(f"{name} {each}") for each in ("__init__", "other")}, name)
    data = Docstrings(packages={"train": ["box"], "dev": ["boxes"], "test": ["box2"]})
    packages = {"train": "box", "dev": "boxes", "test": "box2"}
    found = {name: modules_of(split.queries) for name, split in data.read().splits.items()}
    assert found == {name: {package, f"{package}.other"} for name, package in packages.items()}
    assert len(data.files()) == 6


def function(docstring: str) -> str:
    body = docstring.replace("\n", "\n    ")
    return f'def f():\n    r"""{body}"""\n'


@pytest.mark.parametrize("sentence, rest", SPLIT.items())
def test_a_docstring_is_split_after_its_first_sentence(package, sentence, rest):
    [found] = package({"__init__": function(f"{sentence} {rest}")})
    assert (found.sentence, found.rest) == (sentence.replace("\n", " "), rest)


@pytest.mark.parametrize("docstring", SKIPPED)
def test_docstrings_that_do_not_begin_with_a_sentence_are_skipped(package, docstring):
    assert package({"__init__": function(docstring)}) == []


def test_no_module_is_imported_and_those_of_tests_are_skipped(package):
    source = "raise RuntimeError('imported')\n" + function(f"Solve a linear system. {REST}")
    tests = ["tests.a", "sub.test_a", "conftest", "testing.b", "sub.a_test"]
    found = package(dict.fromkeys(["__init__", "sub.__init__", "sub.contest", *tests], source))
    assert [docstring.id for docstring in found] == ["toolbox:f", "toolbox.sub:f", "toolbox.sub.contest:f"]


def test_files_that_cannot_be_parsed_and_missing_packages_are_errors(package):
    with pytest.raises(ValueError, match=r"b\.py, line 2: .*; expected Python source; remove its package"):
        package({"__init__": "", "b": "a = 1\ndef f(:\n"})
    with pytest.raises(ValueError, match="no installed package 'no_such'; .* pip install no_such$"):
        package({}, "no_such")


def test_no_document_says_why_in_a_line(toolbox, package):
    with pytest.raises(ValueError, match=r"max_documents is 1, but .* toolbox\.\w, has 2 docstrings; "):
        toolbox(max_documents=1).read()
    package(dict.fromkeys(["__init__", "a", "b", "c", "d"], ""), "bare")
    with pytest.raises(ValueError, match=r"bare/b\.py and 2 more: no document was read; "):
        Docstrings(packages=["bare"]).read()
