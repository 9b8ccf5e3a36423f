"""RAG-Token: a generator that at every token weighs what each passage would say. Lewis et al. 2020, arXiv:2005.11401."""

from collections.abc import Sequence
from typing import Literal

from pydantic import PositiveInt

from pyserini_ance.readers.reader import NO_ANSWER, Answer, Passage, Reader, load_model


class RagToken(Reader):
    """A passage weighs by the softmax of the scores with which it was found: they should be inner products, as the model was trained.

    Generation is that of the evaluation of RAG's authors: beams, short answers, never two begin-of-text tokens in a row.
    """

    kind: Literal["rag_token"] = "rag_token"
    beams: PositiveInt = 4
    answer_tokens: PositiveInt = 50

    def open(self, device: str) -> "Generator":
        return Generator(self, device)


class Generator:
    def __init__(self, settings: RagToken, device: str):
        from transformers import RagTokenForGeneration, RagTokenizer

        self.settings, self.device = settings, device
        self.model = load_model(RagTokenForGeneration, settings.model, device)
        self.tokenizer = RagTokenizer.from_pretrained(settings.model, config=self.model.config)
        start = self.tokenizer.generator.bos_token_id
        self.never = None if start is None else [[start, start]]

    def answers(self, question: str, passages: Sequence[Passage], depths: Sequence[int]) -> list[Answer]:
        """The score is the log-probability of the beam, by its length."""
        return [self._answer(question, passages[:depth]) if passages else NO_ANSWER for depth in depths]

    def _answer(self, question: str, passages: Sequence[Passage]) -> Answer:
        import torch

        texts = [self.context(question, passage.record) for passage in passages]
        length = self.model.config.max_combined_length
        inputs = self.tokenizer.generator(texts, max_length=length, truncation=True, padding=True, return_tensors="pt").to(self.device)
        found = self.model.generate(
            context_input_ids=inputs["input_ids"],
            context_attention_mask=inputs["attention_mask"],
            doc_scores=torch.tensor([[passage.score for passage in passages]], device=self.device),
            n_docs=len(passages),
            num_beams=self.settings.beams,
            min_length=1,
            max_length=self.settings.answer_tokens,
            early_stopping=False,
            bad_words_ids=self.never,
            return_dict_in_generate=True,
            output_scores=True,
        )
        text = self.tokenizer.generator.decode(found.sequences[0], skip_special_tokens=True)
        scores = getattr(found, "sequences_scores", None)  # of beams only
        return Answer(text.strip(), None if scores is None else scores[0].item())

    def context(self, question: str, record: dict[str, str]) -> str:
        """As `RagRetriever.postprocess_docs` writes it, the question as its own tokenizer gives it back (in lower case)."""
        config, asked = self.model.config, self.tokenizer.question_encoder
        question = asked.decode(asked(question)["input_ids"], skip_special_tokens=True)
        title = record.get("title", "").removeprefix('"').removesuffix('"')
        prefix = getattr(self.model.generator.config, "prefix", None) or ""
        return f"{prefix}{title}{config.title_sep}{record['text']}{config.doc_sep}{question}".replace("  ", " ")
