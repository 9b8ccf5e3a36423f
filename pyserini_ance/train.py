"""`python -m pyserini_ance.train RECIPE`: the same as `pyserini-ance train RECIPE`."""

from pyserini_ance.commands import console
from pyserini_ance.commands.train import main

if __name__ == "__main__":
    console.run(main)
