"""`nse.load`: a model in one line, ready to be asked."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nse.errors import InputError
from nse.inference import api
from nse.inference import folder as hub
from nse.inference import kinds as purpose
from nse.inference.requests import Pair
from nse.nn.folded import folded
from nse.viz.trace import MemoryTrace


def load(name: str | Path, device: str | torch.device = "cpu", revision: str | None = None) -> Model:
    """A model, ready to be asked.

        nse.load("snli").predict([("Two dogs play in the snow.", "The animals are outdoors.")])

    Args:
        name: A shipped model's name (`snli`, `sentiment`, `translate-en-de`), the folder of a model or of
            the run that trained it, or `hf:owner/name` for one on the Hugging Face Hub.
        device: "cpu", "cuda", or "auto", which is a CUDA device where there is one.
        revision: Of a model on the Hub: the commit to take; also written `hf:owner/name@commit`.

    Raises:
        ModelError: There is no such model, or a file of it is missing, broken, or does not fit the others.
    """
    return Model(hub.load(name, device, revision))


class Model:
    """A loaded model: predicts, ranks, translates, encodes and traces, in batches of any size.

    What it computes does not depend on what else is asked at the same time, but for rounding; texts are
    sorted by length inside and answered in their order.

    Args:
        loaded: What `nse.inference.folder.load` gave.

    Attributes:
        loaded: The same: the module, its configuration, vocabulary and tokenizer.
        quick: The same for answers: on a CPU with folded weights (`nse.nn.folded`). They are folded once, so
            a module that is changed or moved afterwards needs a new `Model`: the old one refuses
            to answer. What is asked of `quick` itself is not checked.
    """

    def __init__(self, loaded: hub.Model):
        self.loaded = loaded
        self.quick = loaded._replace(model=folded(loaded.model))
        self._original = Snapshot(loaded.model)

    def __getstate__(self) -> bytes:
        """Copy or pickle what was loaded and what was folded of it, weights that both have once.

        They travel by value: spawning a process with tensors would take shared memory, of which a container
        has little, and a file descriptor for each.
        """
        self._original.refuse_changes()
        return pickle.dumps((self.loaded, self.quick))

    def __setstate__(self, state: bytes) -> None:
        """Become a copy."""
        self.loaded, self.quick = pickle.loads(state)
        self._original = Snapshot(self.loaded.model)

    def __repr__(self) -> str:
        """What it is for, as a person reads it."""
        return f"<nse.Model {self.loaded.name}: {self.does}>"

    @property
    def does(self) -> str:
        """What it does, such as "gives a sentence a label (negative, positive)"."""
        return purpose.purpose(self.loaded)[0]

    @property
    def task(self) -> str:
        """What it is for: "predict", "rank" or "translate"."""
        return purpose.purpose(self.loaded)[1]

    @property
    def labels(self) -> list[str]:
        """The labels that it tells apart."""
        return list(self.loaded.config.labels)

    def predict(
        self, texts: Sequence[str | Pair], batch: int = api.BATCH, strict: bool = False
    ) -> list[dict[str, Any]]:
        """The labels of sentences, of pairs of them, or of documents; see `nse.inference.api.predict`."""
        return api.predict(self._require_unchanged(self.quick), texts, batch, strict)

    def rank(
        self, question: str, candidates: Sequence[str], batch: int = api.BATCH, strict: bool = False
    ) -> list[dict[str, Any]]:
        """Candidate answers to a question, the best first; see `nse.inference.api.rank`."""
        return api.rank(self._require_unchanged(self.quick), question, candidates, batch, strict)

    def translate(
        self, texts: Sequence[str], beam: int | None = None, batch: int = api.BATCH, strict: bool = False
    ) -> list[dict[str, Any]]:
        """Translations of sentences; see `nse.inference.api.translate`."""
        return api.translate(self._require_unchanged(self.quick), texts, beam, batch, strict)

    def translations(
        self, texts: Iterable[str], beam: int | None = None, batch: int = api.BATCH, strict: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Translations one by one, of texts that may be endless; see `nse.inference.api.translations`."""
        return api.translations(self._require_unchanged(self.quick), texts, beam, batch, strict)

    def encode(
        self, texts: Sequence[str], batch: int = api.BATCH, strict: bool = False
    ) -> NDArray[np.float32]:
        """A vector for each text [N, d]; see `nse.inference.api.encode`."""
        return api.encode(self._require_unchanged(self.quick), texts, batch, strict)

    def trace(self, *texts: str, beam: int | None = None, strict: bool = False) -> MemoryTrace:
        """What the memories did with texts, and what the model says to them; see `api.trace`."""
        return api.trace(self._require_unchanged(self.loaded), *texts, beam=beam, strict=strict)

    def _require_unchanged(self, model: hub.Model) -> hub.Model:
        """Give this model back, if its module is as it was loaded."""
        self._original.refuse_training()
        self._original.refuse_changes()
        return model


class Snapshot:
    """The parts and weights of a module as they are now, to tell whether they still are.

    It costs microseconds: not numbers are compared, but which tensors there are, where they lie and how often
    PyTorch has seen them change. What is written into a tensor through `.data` PyTorch does not see.

    Args:
        module: The module.
    """

    def __init__(self, module: nn.Module):
        self.modules = list(module.modules())
        tables = [
            table for each in self.modules for table in (each._modules, each._parameters, each._buffers)
        ]
        self.parts = [(table, name, part) for table in tables for name, part in table.items()]
        tensors = [*module.parameters(), *module.buffers()]
        self.tensors = [(each, each.detach(), count_changes(each)) for each in tensors]

    def refuse_training(self) -> None:
        """Refuse a module in training mode, where dropout changes answers."""
        if any([each.training for each in self.modules]):  # noqa: C419  # twice as fast as a generator
            raise InputError(
                "model: its module is in training mode, where dropout changes answers: "
                "call model.loaded.model.eval()"
            )

    def refuse_changes(self) -> None:
        """Refuse a module of which a part or a weight is another one now."""
        replaced = any([table.get(name) is not part for table, name, part in self.parts])  # noqa: C419
        if replaced or any(
            [  # noqa: C419
                each.data_ptr() != before.data_ptr() or count_changes(each) != count
                for each, before, count in self.tensors
            ]
        ):
            raise InputError(
                "model: its module was changed after nse.Model was made, and answers would be partly of the "
                "old weights: make a new one, nse.Model(model.loaded)"
            )


def count_changes(tensor: Tensor) -> int:
    """Count how often a tensor was changed in place, as far as PyTorch knows it."""
    return -1 if tensor.is_inference() else tensor._version
