"""Small things that tests are tried on: a random model, a collection, the settings of a recipe."""

import itertools
import json
import string
from pathlib import Path

# Wide weights: with the usual 0.02 all vectors of a random model are nearly the same.
TINY_SHAPE = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, initializer_range=0.5
)

# Words of passages that readers are tried on; the tiny tokenizer splits most of them into letters.
PASSAGE_WORDS = ["the", "of", "and", "title", "text", "river"]
PASSAGE_WORDS += ["Stone", "apple,", "tiger", "cloud", "U.S.", "1984", "horse"]

# The shortest stage of a recipe, for tests that train nothing or do not look at it.
ONE_STEP = {"steps": 1, "batch_queries": 1, "optimizer": {"learning_rate": 1e-3}}
ONE_STEP["terms"] = {"query": {"negatives": [{"kind": "random"}]}}


def make_tiny_bert(folder: Path) -> Path:
    """A random BERT of 32 dimensions, 128 positions; a lower-casing WordPiece of letters and a few words."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    folder.mkdir(exist_ok=True)
    characters = string.ascii_lowercase + string.digits + string.punctuation
    words = ["the", "of", "and", "query", "title", "text", "document"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *characters, *(f"##{c}" for c in characters), *words]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = BertTokenizer.from_pretrained(str(folder), do_lower_case=True, model_max_length=128)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(pieces), max_position_embeddings=128, **TINY_SHAPE)
    BertModel(config).save_pretrained(folder)
    return folder


def make_tiny_roberta(folder: Path, positions: int = 514) -> Path:
    """A random plain RoBERTa (no ANCE head) of 32 dimensions, with a byte-level tokenizer of two merges."""
    import torch
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

    pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "th", "the", "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e\n")
    RobertaTokenizer.from_pretrained(str(folder), model_max_length=positions - 2).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"vocab_size": len(pieces), "max_position_embeddings": positions, "type_vocab_size": 1}
    RobertaModel(RobertaConfig(**sizes, **TINY_SHAPE)).save_pretrained(folder)
    return folder


def make_tiny_cross_encoder(folder: Path, bert: Path, labels: int = 1) -> Path:
    """A random BERT with a head of `labels` scores, with the vocabulary of `make_tiny_bert`."""
    return _with_head("BertForSequenceClassification", folder, bert, 1, num_labels=labels)


def make_tiny_reader(folder: Path, bert: Path) -> Path:
    """A random BERT with SQuAD's head of start and end, with the vocabulary of `make_tiny_bert`."""
    return _with_head("BertForQuestionAnswering", folder, bert, 2)


def _with_head(name: str, folder: Path, bert: Path, seed: int, **settings: int) -> Path:
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    torch.manual_seed(seed)
    shape = {"vocab_size": len(tokenizer), "max_position_embeddings": 128, **TINY_SHAPE, **settings}
    getattr(transformers, name)(transformers.BertConfig(**shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_finished_run(folder: Path, recipe, qrels: dict[str, str], rankings: dict[str, str]):
    """A run directory as training leaves it: judgments by split, rankings by name (final: run.test.trec)."""
    from pyserini_ance.pipeline.preparation import read_collection
    from pyserini_ance.recipe.load import dump
    from pyserini_ance.runs.rundir import RunDir
    from pyserini_ance.storage.files import write_json

    run = RunDir(folder)
    run.create(dump(recipe))
    write_json(run.environment, {"data": {"digest": read_collection(recipe).digest}})
    run.run_files.mkdir()
    for split, lines in qrels.items():
        run.qrels(split).write_text(lines)
    for name, lines in rankings.items():
        (folder / name).write_text(lines)
    return run


def make_small_collection(folder: Path, others: int = 0, longest: int = 5) -> Path:
    """30 documents of a colour and a thing each, and `others` with up to `longest` words more; 15 training
    queries, for things 1-3 of a colour, the first with two positives; 5 dev and 5 test queries.
    """
    colours = ["red", "green", "blue", "gray", "pink"]
    things = ["apple", "stone", "river", "cloud", "horse", "tiger"]
    both = enumerate(itertools.product(colours, things))
    documents = [(f"{c}-{t}", f"the {t} is {c} {'very ' * (i % 7)}") for i, (c, t) in both]
    texts = [f"{'very ' * (i % longest)}different from document {i} of {others}" for i in range(others)]
    documents += [(f"other-{i}", text) for i, text in enumerate(texts)]
    lines = [json.dumps({"id": id, "contents": text}) + "\n" for id, text in documents]
    (folder / "corpus.jsonl").write_text("".join(lines))
    for split, asked in {"train": things[:3], "dev": things[3:4], "test": things[4:5]}.items():
        queries = [(f"{split}-{i}", c, t) for i, (c, t) in enumerate(itertools.product(colours, asked))]
        judged = [(id, f"{c}-{t}") for id, c, t in queries] + [("train-0", "red-tiger")] * (split == "train")
        (folder / f"{split}.tsv").write_text("".join(f"{id}\tquery of {c} {t}\n" for id, c, t in queries))
        lines = [f"{query} 0 {document} 1\n" for query, document in judged]
        (folder / f"{split}.qrels").write_text("".join(lines))
    return folder


def make_small_beir(folder: Path) -> Path:
    """`make_small_collection` in BEIR's layout, with the splits train and test."""
    (folder / "qrels").mkdir(parents=True)
    small = make_small_collection(folder)
    corpus = [json.loads(line) for line in (small / "corpus.jsonl").read_text().splitlines()]
    queries = []
    for split in ("train", "test"):
        topics = (small / f"{split}.tsv").read_text().splitlines()
        queries += [dict(zip(("_id", "text"), line.split("\t"), strict=True)) for line in topics]
        judged = [line.split() for line in (small / f"{split}.qrels").read_text().splitlines()]
        lines = [f"{query}\t{document}\t{grade}\n" for query, _, document, grade in judged]
        (folder / "qrels" / f"{split}.tsv").write_text("".join(["query-id\tcorpus-id\tscore\n", *lines]))
    documents = [{"_id": each["id"], "title": "", "text": each["contents"]} for each in corpus]
    for name, records in {"corpus": documents, "queries": queries}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def small_settings(collection: Path, model: Path, stages: dict) -> dict:
    """A recipe's, over `make_small_collection` with `make_tiny_bert`; no BM25."""
    lengths = {"query": {"length_tokens": 24}, "document": {"length_tokens": 32, "template": "{text}"}}
    paths = {split: str(collection / split) for split in ("train", "dev", "test")}
    files = {split: {"topics": f"{path}.tsv", "qrels": f"{path}.qrels"} for split, path in paths.items()}
    data = {"kind": "pyserini_jsonl", "corpus": str(collection / "corpus.jsonl"), "splits": files}
    encoder = {"model": str(model), "pooling": "mean", "tokenization": lengths}
    made = {"name": "small", "data": data, "encoder": encoder, "encoding": {"precision": "fp32"}}
    made |= {"bm25": None, "stages": stages, "final_evaluation": {"measures": ["RR@10", "R@20"]}}
    return made | {"device": "cpu", "precision": "fp32", "cache": str(collection / "cache")}
