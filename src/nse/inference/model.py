"""`Model`: a trained model, ready to be asked."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from nse.errors import InputError, NSEError
from nse.inference.batches import BATCH, compute_request
from nse.inference.inputs import Item
from nse.inference.kinds import KINDS
from nse.inference.requests import Answers, Request, Verb
from nse.nn.folded import fold_model
from nse.text.subwords import Pieces
from nse.text.tokenize import TOKENIZERS
from nse.text.vocabulary import TargetVocabulary, Vocabulary

if TYPE_CHECKING:
    from nse.inference.folder import ModelConfig
    from nse.viz.trace import MemoryTrace


class Model:
    """A trained model: predicts, ranks, translates, encodes and traces.

    `nse.load` makes one. Texts are sorted by length inside, computed in batches and answered in their order.
    On a CPU it answers with weights that are folded once (`nse.nn.folded`), so a module that is changed or
    moved afterwards needs a new model, `with_module`: the old one refuses to answer.

    All methods that answer take `batch`, how many texts to compute at a time, and `strict`, to refuse a text
    that is longer than the model reads instead of cutting it. What else is asked, and `batch`, change no more
    than the last digits of an answer. All raise `InputError` for an empty text or one that is none, and for a
    model of another kind, and `RunError` where the model's scores are not finite.

    Args:
        module: In evaluation mode, as float32.
        config: What the model folder says of it.
        vocabulary: Its words.
        folder: Where it came from.
        target: The words that it translates into; `None` for other models.
        name: What to call it.

    Attributes:
        kind: What it takes and answers: one of `nse.inference.kinds.KINDS`.
        inputs: What the texts that it takes are called, in their order.
        labels: Those that it tells apart.
        does: What it does, such as "gives a sentence a label (negative, positive)".
        task: What it is for: "predict", "rank" or "translate".
        device: Where it computes.
        fast: The module as it answers. What is asked of it directly is not checked.
    """

    def __init__(
        self,
        module: nn.Module,
        config: ModelConfig,
        vocabulary: Vocabulary,
        folder: Path,
        target: TargetVocabulary | None = None,
        name: str = "",
    ):
        self.module, self.config, self.vocabulary = module, config, vocabulary
        self.folder, self.target, self.name = folder, target, name
        self.kind = KINDS[config.kind]
        self.inputs = tuple(config.inputs) or self.kind.inputs
        self.labels, self.task = list(config.labels), self.kind.verb
        self.does = self.kind.describe(self.labels)
        self.device = next(module.parameters()).device
        self.fast: Any = fold_model(module)
        self._pieces = Pieces(vocabulary.words) if config.pieces else None
        self._original = Snapshot(module)

    def with_module(self, module: nn.Module) -> Model:
        """Make the same model of another module, or of its own as it is now."""
        return Model(module, self.config, self.vocabulary, self.folder, self.target, self.name)

    def __getstate__(self) -> bytes:
        """Copy or pickle by value: tensors would take shared memory, of which a container has little."""
        self._original.refuse_changes()
        return pickle.dumps({name: value for name, value in vars(self).items() if name != "_original"})

    def __setstate__(self, state: bytes) -> None:
        """Become a copy."""
        vars(self).update(pickle.loads(state))
        self._original = Snapshot(self.module)

    def __repr__(self) -> str:
        """What it is for, as a person reads it."""
        return f"<nse.Model {self.name}: {self.does}>"

    def tokenize(self, text: str) -> list[str]:
        """Cut a text into words or pieces of words, as the model was trained."""
        words = TOKENIZERS[self.config.tokenizer](text)
        return self._pieces.split_all(words) if self._pieces else words

    def predict(
        self, texts: Sequence[str | tuple[str, str]], batch: int = BATCH, strict: bool = False
    ) -> Answers:
        """Tell the labels of sentences or documents, or of pairs, as of a premise and a hypothesis.

        Returns:
            In the order of the texts: number, text (of a pair `texts`), label, probabilities (by label),
            words (how many were read), cut (how many were left out), unknown (how many of those read are not
            known); of a document also sentences (how many were read; a very long one counts as several).
        """
        return self.answer(self.request("predict", texts, strict=strict), batch)

    def rank(
        self, question: str, candidates: Sequence[str], batch: int = BATCH, strict: bool = False
    ) -> Answers:
        """Order candidate answers to a question, the best first; of equal ones the earlier first.

        Returns:
            For each candidate: rank (from 1), score (the higher the better), probability (that the candidate
            is right, as far as the model knows), number, text, and of candidate and question together words
            (how many were read), cut (how many were left out), unknown (how many of them are not known).
        """
        return self.answer(self.request("rank", candidates, question=question, strict=strict), batch)

    def translate(
        self, texts: Sequence[str], beam: int | None = None, batch: int = BATCH, strict: bool = False
    ) -> Answers:
        """Translate sentences; see `translations`, which gives them one by one."""
        return list(self.translations(texts, beam, batch, strict))

    def translations(
        self, texts: Iterable[str], beam: int | None = None, batch: int = BATCH, strict: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Translate sentences, in their order, as soon as a batch of them is there.

        Args:
            texts: Sentences. No more than a batch of them are read ahead, so that they may be endless.
            beam: How many translations of each are followed at a time; as the model is configured by default.
            batch: How many at a time.
            strict: Refuse a text that is longer than the model reads, once those before it are translated.

        Returns:
            For each text: number, text, translation, words (of the translation), unknown (how many of the
            words that were read are not known), cut (how many were left out). The translation of a text
            without words has none.
        """
        self.require("translate")
        refuse_one_text(texts, "texts")
        if batch < 1 or (beam is not None and beam < 1):
            raise InputError(f"batch and beam: expected at least 1, got {batch} and {beam}")
        chunks = split_items(self.kind.encode_items(self, texts, count(1), strict), batch)
        requests = (self.kind.request(self, chunk, beam) for chunk in chunks)
        return (row for request in requests for row in self.answer(request, batch))

    def encode(self, texts: Sequence[str], batch: int = BATCH, strict: bool = False) -> NDArray[np.float32]:
        """Make a vector of each text [N, d]: what the model's encoder makes of it, pooled as the model does.

        A model of pairs reads each text by itself, with the encoder of its first text; of a translator the
        vector is its encoder's last state.
        """
        request = self.request("encode", texts, strict=strict)
        values = self.compute(request, batch)
        rows = request.format(values)
        return np.stack([row["vector"] for row in rows]) if rows else values.numpy()

    def trace(self, *texts: str, beam: int | None = None, strict: bool = False) -> MemoryTrace:
        """Tell what the memories did with texts, and what the model says to them.

            model.trace("Two dogs play in the snow.", "The animals are outdoors.")

        Args:
            texts: What the model takes: a sentence, a document, a premise and a hypothesis, a sentence to
                translate; for a model that ranks a question and candidates, as many as you like.
            beam: As for `translations`.
            strict: Refuse a text that is longer than the model reads, instead of cutting it.

        Raises:
            InputError: There are too few texts or too many, or the model has no memory.
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
        """Request what a method of this name answers to texts; the question goes with `rank`.

        They are called by numbers, by default 1, 2, 3 and so on, and the answer `repeats` them or not.
        """
        self.require(verb)
        kind = self.kind.answer_by(verb)
        refuse_one_text(texts, "candidates" if kind.ranks else "texts")
        items = list(kind.encode_items(self, texts, numbers or count(1), strict, question))
        items = items if repeats else [item._replace(given={}) for item in items]
        return kind.request(self, items, beam)

    def compute(self, request: Request, batch: int = BATCH) -> Tensor:
        """Compute what a request asks of each of its rows; its `format` makes an answer of that."""
        self._original.refuse_training()
        self._original.refuse_changes()
        return compute_request(self, request.what, request.rows, request.beam, batch)

    def answer(self, request: Request, batch: int = BATCH) -> Answers:
        """Answer a request."""
        return request.format(self.compute(request, batch))

    def require(self, verb: Verb) -> None:
        """Refuse to be asked otherwise than the model's kind is."""
        if why := self.kind.describe_lack(self.labels, verb):
            own = self.task
            raise InputError(f"model: {self.folder} {why}; use `nse {own}`, in Python model.{own}")


def refuse_one_text(texts: Iterable[Any], name: str) -> None:
    """Refuse a text in the place of a list of them: it would be taken letter by letter."""
    if isinstance(texts, str):
        raise InputError(f"{name}: expected a list of texts, got the text {texts[:40]!r}")


def split_items(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Split items into lists of this size; those before a mistake come before the mistake is told."""
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


class Snapshot:
    """The parts and weights of a module as they are now, to tell in microseconds whether they still are.

    Compared is which tensors there are, where they lie and how often PyTorch has seen them change; what is
    written into a tensor through `.data` it does not see.
    """

    def __init__(self, module: nn.Module):
        self.modules = list(module.modules())
        tables = [table for m in self.modules for table in (m._modules, m._parameters, m._buffers)]
        self.parts = [(table, name, part) for table in tables for name, part in table.items()]
        tensors = [*module.parameters(), *module.buffers()]
        self.tensors = [(each, each.detach(), count_changes(each)) for each in tensors]

    def refuse_training(self) -> None:
        """Refuse a module in training mode, where dropout changes answers."""
        if any(module.training for module in self.modules):
            why = "in training mode, where dropout changes answers: call model.module.eval()"
            raise InputError(f"model: its module is {why}")

    def refuse_changes(self) -> None:
        """Refuse a module of which a part or a weight is another one now."""
        replaced = [name for table, name, part in self.parts if table.get(name) is not part]
        other = [
            each.data_ptr() != before.data_ptr() or count_changes(each) != count
            for each, before, count in self.tensors
        ]
        if replaced or any(other):
            why = "was changed after nse.Model was made, and answers would be partly of the old weights"
            raise InputError(f"model: its module {why}: make a new one, model.with_module(model.module)")


def count_changes(tensor: Tensor) -> int:
    """Count how often a tensor was changed in place, as far as PyTorch knows it."""
    return -1 if tensor.is_inference() else tensor._version
