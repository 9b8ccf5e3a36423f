"""Start the Java machine inside this process, and import Pyserini behind it.

Importing `pyserini.encode`, `.search` or `.index` starts Java, so both steps come before any of them.
"""

import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from urllib.error import URLError

from pyserini_ance.pyserini_bridge.java import choose_java

OFFLINE_VERSION = "2.3.0"  # the newest that imports without a network


def start_java() -> None:
    """Start Java for Pyserini in this process; once it runs, do nothing.

    Raises RuntimeError when there is no fitting Java or no Pyserini.
    """
    resources = _pyserini_folder() / "resources" / "jars"
    import jnius_config

    if jnius_config.vm_running:
        return
    java = choose_java()
    os.environ["JAVA_HOME"] = str(java.home)
    # trec_eval starts a second `java` by name
    os.environ["PATH"] = f"{java.home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    if java.has_vector_module:
        importlib.import_module("pyserini.pyclass")
    else:
        _start_without_vector_module(resources)


def import_pyserini(module: str) -> ModuleType:
    """Import a module of Pyserini with Java running. Raises RuntimeError when Pyserini wants a network that is not there."""
    start_java()
    with offline_explained():
        return importlib.import_module(module)


@contextmanager
def offline_explained() -> Iterator[None]:
    """Turn the URLError of a Pyserini that wants the web while it is imported into a RuntimeError with the cure."""
    try:
        yield
    except (URLError, TimeoutError) as error:
        raise RuntimeError(
            f"Pyserini {version('pyserini')} reads its catalogue of indexes from the web while it is imported, and that failed: "
            f"{error}. Connect this machine, or use the version that imports offline: pip install 'pyserini=={OFFLINE_VERSION}'"
        ) from error


def _start_without_vector_module(resources: Path) -> None:
    """What `pyserini.pyclass` does, less `--add-modules=jdk.incubator.vector`, which ends a Java that lacks the module.

    Pyserini notices that Java runs already and goes on with it.
    """
    import jnius_config

    root = Path(os.environ.get("ANSERINI_CLASSPATH", resources))
    jars = sorted(root.glob("anserini-*-fatjar.jar"), key=lambda path: path.stat().st_ctime)
    if not jars:
        raise RuntimeError(f"no anserini-*-fatjar.jar in {root}; install Pyserini again: pip install --force-reinstall pyserini")
    jnius_config.add_classpath(str(jars[-1]))
    jnius_config.add_options("--enable-native-access=ALL-UNNAMED", "-Dslf4j.internal.verbosity=WARN")
    jnius_config.add_options(f"-Djava.util.logging.config.file={resources / 'logging.properties'}")
    importlib.import_module("jnius")
    _silence_vector_warning()


@cache  # Java forgets the level of a logger that nobody holds
def _silence_vector_warning():
    """Lucene warns once a process that the module is missing, which is what was chosen here."""
    from jnius import autoclass

    logger = autoclass("java.util.logging.Logger").getLogger("org.apache.lucene.internal.vectorization.VectorizationProvider")
    logger.setLevel(autoclass("java.util.logging.Level").SEVERE)
    return logger


def _pyserini_folder() -> Path:
    """Found without importing Pyserini."""
    spec = importlib.util.find_spec("pyserini")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"Pyserini is not installed: pip install 'pyserini=={OFFLINE_VERSION}'")
    return Path(spec.submodule_search_locations[0])
