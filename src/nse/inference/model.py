"""`Model`: a trained model that predicts, ranks, translates, encodes and traces."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nse.errors import InputError, NSEError
from nse.inference.batches import BATCH, Precision, compute_request
from nse.inference.inputs import Answers, Item, Request, Verb
from nse.inference.kinds import KINDS
from nse.text.subwords import Pieces
from nse.text.tokenize import TOKENIZERS
from nse.text.vocabulary import TargetVocabulary, Vocabulary

if TYPE_CHECKING:
    from nse.inference.folder import ModelConfig
    from nse.viz.trace import MemoryTrace


MAX_WORDS = 1_000  # of a text, if the model sets no limit itself
MAX_DOCUMENT_WORDS = 10_000


class Model:
    """Trained model, as `nse.load` returns it.

    Texts are sorted by length and computed in batches; answers keep the order of the texts. On a CPU equal
    sentences of a batch are encoded once.

    All methods that answer take `batch`, the batch size, and `strict`, which refuses a text longer than the
    model reads instead of truncating it. The batch size and the other texts change at most the last digits of
    an answer. All raise `InputError` for an empty text, a value that is not a text, or a model of another
    kind, and `RunError` if the model's scores are not finite.

    Args:
        module: Module in evaluation mode, with float32 weights.
        config: Configuration of the model folder.
        vocabulary: Words.
        folder: Path of the model folder.
        target: Target words of a translator.
        name: Name in messages and traces.
        precision: Type in which matrices are multiplied to answer; traces always use float32.

    Attributes:
        kind: Kind of the model, one of `nse.inference.kinds.KINDS`.
        inputs: Names of the texts that it takes, in order.
        labels: Labels in the order of its scores.
        does: Description, such as "gives a sentence a label (negative, positive)".
        task: Its main method: "predict", "rank" or "translate".
        module: Module that computes; a change of its weights changes the answers.
    """

    def __init__(
        self,
        module: nn.Module,
        config: ModelConfig,
        vocabulary: Vocabulary,
        folder: Path,
        target: TargetVocabulary | None = None,
        name: str = "",
        precision: Precision = "float32",
    ):
        self.module, self.config, self.vocabulary = module, config, vocabulary
        self.folder, self.target, self.name, self.precision = folder, target, name, precision
        self.kind = KINDS[config.kind]
        self.inputs = tuple(config.inputs) or self.kind.inputs
        self.labels, self.task = list(config.labels), self.kind.verb
        self.does = self.kind.describe(self.labels)
        self._pieces = Pieces(vocabulary.words) if config.pieces else None

    def __getstate__(self) -> bytes:
        """Pickle tensors by value, because containers have little shared memory."""
        return pickle.dumps(vars(self))

    def __setstate__(self, state: bytes) -> None:
        """Restore from a pickle."""
        vars(self).update(pickle.loads(state))

    def __repr__(self) -> str:
        """Show the name and what the model does."""
        return f"<nse.Model {self.name}: {self.does}>"

    @property
    def device(self) -> torch.device:
        """Device on which the model computes."""
        return next(self.module.parameters()).device

    @property
    def max_words(self) -> int:
        """Number of words of a text that the model reads."""
        return MAX_DOCUMENT_WORDS if self.kind.has_sentences else self.config.model.max_words or MAX_WORDS

    def tokenize(self, text: str) -> list[str]:
        """Split a text into words or subwords."""
        words = TOKENIZERS[self.config.tokenizer](text)
        return self._pieces.split_all(words) if self._pieces else words

    def predict(
        self, texts: Sequence[str | tuple[str, str]], batch: int = BATCH, strict: bool = False
    ) -> Answers:
        """Classify sentences, documents, or pairs such as (premise, hypothesis).

        Returns:
            For each text: number, text (of a pair `texts`), label, probabilities (by label), words (number of
            words read), cut (number of truncated words), unknown (number of words read that are not in the
            vocabulary); of a document also sentences (number read; a very long one counts as several).
        """
        return self.answer(self.request("predict", texts, strict=strict), batch)

    def rank(
        self, question: str, candidates: Sequence[str], batch: int = BATCH, strict: bool = False
    ) -> Answers:
        """Sort candidate answers to a question, the best first; ties keep their order.

        Returns:
            For each candidate: rank (from 1), score (higher is better), probability (that the candidate is
            right), number, text; words, cut and unknown (see `predict`) of candidate and question together.
        """
        return self.answer(self.request("rank", candidates, question=question, strict=strict), batch)

    def translate(
        self, texts: Sequence[str], beam: int | None = None, batch: int = BATCH, strict: bool = False
    ) -> Answers:
        """Translate sentences; see `translations`, which yields one at a time."""
        return list(self.translations(texts, beam, batch, strict))

    def translations(
        self, texts: Iterable[str], beam: int | None = None, batch: int = BATCH, strict: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Translate sentences of any iterable, one batch at a time.

        Args:
            texts: Sentences; at most one batch is read ahead.
            beam: Beam size; that of the model's configuration by default.
            batch: Batch size.
            strict: Refuse a text that is longer than the model reads, after translating the texts before it.

        Returns:
            For each text: number, text, translation, words (of the translation), unknown and cut (see
            `predict`). The translation of an empty text is empty.
        """
        self.require("translate")
        refuse_one_text(texts, "texts")
        if batch < 1 or (beam is not None and beam < 1):
            raise InputError(f"batch and beam: expected at least 1, got {batch} and {beam}")
        chunks = split_items(self.kind.encode_items(self, texts, count(1), strict), batch)
        requests = (self.kind.request(self, chunk, beam) for chunk in chunks)
        return (row for request in requests for row in self.answer(request, batch))

    def encode(self, texts: Sequence[str], batch: int = BATCH, strict: bool = False) -> NDArray[np.float32]:
        """Encode each text as a vector [N, d]: the model's pooled encoder outputs.

        A pair model reads single texts with its first encoder; a translator returns its encoder's last state.
        """
        request = self.request("encode", texts, strict=strict)
        values = self.compute(request, batch)
        rows = request.format(values)
        return np.stack([row["vector"] for row in rows]) if rows else values.numpy()

    def trace(self, *texts: str, beam: int | None = None, strict: bool = False) -> MemoryTrace:
        """Record what the memories read and wrote for texts, and the model's answer.

            model.trace("Two dogs play in the snow.", "The animals are outdoors.")

        Args:
            texts: A sentence, a document, a premise and a hypothesis, or a sentence to translate; for a
                ranking model a question and any number of candidates.
            beam: Beam size, as for `translations`.
            strict: Refuse a text that is longer than the model reads, instead of truncating it.

        Raises:
            InputError: The number of texts is wrong, or the model has no memory.
        """
        from nse.inference.tracing import record_memories

        return record_memories(self, texts, beam, strict)

    def request(
        self,
        verb: Verb,
        texts: Sequence[Any],
        *,
        question: str = "",
        beam: int | None = None,
        strict: bool = False,
        numbers: Iterable[int] | None = None,
        repeats: bool = True,
    ) -> Request:
        """Prepare a request for the method of this name; `question` is for `rank`.

        Texts have `numbers`, by default 1, 2, 3 and so on, and the answers include them if `repeats`.
        """
        self.require(verb)
        kind = self.kind.for_verb(verb)
        refuse_one_text(texts, "candidates" if kind.ranks else "texts")
        items = list(kind.encode_items(self, texts, numbers or count(1), strict, question))
        items = items if repeats else [item._replace(echo={}) for item in items]
        return kind.request(self, items, beam)

    def compute(self, request: Request, batch: int = BATCH) -> Tensor:
        """Compute the rows of a request; its `format` makes answers of the results."""
        self.refuse_training()
        return compute_request(self, request.output, request.rows, request.beam, batch)

    def answer(self, request: Request, batch: int = BATCH) -> Answers:
        """Answer a request."""
        return request.format(self.compute(request, batch))

    def refuse_training(self) -> None:
        """Raise an `InputError` for a module in training mode, where dropout changes answers."""
        if any(module.training for module in self.module.modules()):
            why = "in training mode, where dropout changes answers: call model.module.eval()"
            raise InputError(f"model: its module is {why}")

    def require(self, verb: Verb) -> None:
        """Raise an `InputError` if models of this kind have no answer to a verb."""
        if why := self.kind.explain_mismatch(self.labels, verb):
            raise InputError(f"model: {self.folder} {why}: use {self.task}")


def refuse_one_text(texts: Iterable[Any], name: str) -> None:
    """Raise an `InputError` for a text instead of a list of texts, which would be split into letters."""
    if isinstance(texts, str):
        raise InputError(f"{name}: expected a list of texts, got the text {texts[:40]!r}")


def split_items(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Split items into lists of this size; before an error is raised, the items before it are yielded."""
    chunk: list[Item] = []
    try:
        for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except NSEError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
