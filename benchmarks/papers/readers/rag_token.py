"""RAG-Token: a generator that marginalizes over the passages at every token.

Lewis et al. 2020, arXiv:2005.11401.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import PositiveInt

from benchmarks.papers.readers.base import NO_ANSWER, Answer, Passage, Reader, load_model


class RagToken(Reader):
    """Settings of a RAG-Token reader.

    The weights of the passages are the softmax of their retrieval scores, which should be inner products, as
    in the model's training. Generation follows the evaluation of RAG's authors: beams, short answers, never
    two begin-of-text tokens in a row.
    """

    kind: Literal["rag_token"] = "rag_token"
    beams: PositiveInt = 4
    """The number of beams of the generation."""
    answer_tokens: PositiveInt = 50
    """The maximum length of an answer."""

    def open(self, device: str) -> "Generator":
        return Generator(self, device)


class Generator:
    """An `OpenReader` with a RAG model."""

    def __init__(self, settings: RagToken, device: str):
        from transformers import RagTokenForGeneration, RagTokenizer

        self.settings, self.device = settings, device
        self.model = load_model(RagTokenForGeneration, settings.model, device)
        self.tokenizer = RagTokenizer.from_pretrained(settings.model, config=self.model.config)
        start = self.tokenizer.generator.bos_token_id
        self.bad_words_ids = None if start is None else [[start, start]]

    def answers(self, question: str, passages: Sequence[Passage], cutoffs: Sequence[int]) -> list[Answer]:
        """See `OpenReader.answers`; the score is the log-probability of the beam, divided by its length."""
        return [self._answer(question, passages[:cutoff]) if passages else NO_ANSWER for cutoff in cutoffs]

    def _answer(self, question: str, passages: Sequence[Passage]) -> Answer:
        import torch

        texts = [self.context(question, passage.record) for passage in passages]
        length = self.model.config.max_combined_length
        inputs = self.tokenizer.generator(
            texts, max_length=length, truncation=True, padding=True, return_tensors="pt"
        ).to(self.device)
        output = self.model.generate(
            context_input_ids=inputs["input_ids"],
            context_attention_mask=inputs["attention_mask"],
            doc_scores=torch.tensor([[passage.score for passage in passages]], device=self.device),
            n_docs=len(passages),
            num_beams=self.settings.beams,
            min_length=1,
            max_length=self.settings.answer_tokens,
            early_stopping=False,
            bad_words_ids=self.bad_words_ids,
            return_dict_in_generate=True,
            output_scores=True,
        )
        text = self.tokenizer.generator.decode(output.sequences[0], skip_special_tokens=True)
        scores = getattr(output, "sequences_scores", None)  # with beams only
        return Answer(text.strip(), None if scores is None else scores[0].item())

    def context(self, question: str, record: dict[str, str]) -> str:
        """The generator's input as `RagRetriever.postprocess_docs` writes it; the question's own tokenizer
        lower-cases it."""
        config, tokenizer = self.model.config, self.tokenizer.question_encoder
        question = tokenizer.decode(tokenizer(question)["input_ids"], skip_special_tokens=True)
        title = record.get("title", "").removeprefix('"').removesuffix('"')
        prefix = getattr(self.model.generator.config, "prefix", None) or ""
        text = f"{prefix}{title}{config.title_sep}{record['text']}{config.doc_sep}{question}"
        return text.replace("  ", " ")
