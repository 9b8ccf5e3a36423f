"""`python -m pyserini_ance.doctor`: versions, which Java and faiss, devices, and what is missing with its cure."""

import argparse
from collections.abc import Callable, Sequence

from pyserini_ance import cli
from pyserini_ance.health import packages
from pyserini_ance.health.finding import Finding

SOMETHING_MISSING = 1


def devices() -> list[Finding]:
    try:
        from pyserini_ance.health import machine
    except (ImportError, OSError) as error:
        return [Finding("torch", f"cannot be imported: {error}", "missing", "pip install --force-reinstall torch")]
    return [*machine.processor(), *machine.gpus()]


CHECKS = (packages.python, packages.requirements, packages.faiss, packages.java, devices)


def main(arguments: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m pyserini_ance.doctor", description=__doc__).parse_args(arguments)
    return report(CHECKS)


def report(checks: Sequence[Callable[[], list[Finding]]]) -> int:
    """Print what every check finds; 1 if something needed is missing, else 0."""
    missing = 0
    for check in checks:
        for finding in check():
            print(finding)
            missing += finding.state == "missing"
    print(f"{missing} missing" if missing else "everything needed is here")
    return SOMETHING_MISSING if missing else 0


if __name__ == "__main__":
    cli.run(main)
