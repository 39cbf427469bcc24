"""`nse.load`: a model in one line, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nse import api, hub, purpose
from nse.asking import Pair
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
        loaded: What `nse.hub.load` gave.

    Attributes:
        loaded: The same: the module, its configuration, vocabulary and tokenizer.
        quick: The same for answers: on a CPU with folded weights (`nse.nn.folded`). They are folded once, so
            a module that is changed or moved afterwards needs a new `Model`.
    """

    def __init__(self, loaded: hub.Model):
        self.loaded = loaded
        self.quick = loaded._replace(model=folded(loaded.model))

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
        """The labels of sentences, of pairs of them, or of documents; see `nse.api.predict`."""
        return api.predict(self.quick, texts, batch, strict)

    def rank(
        self, question: str, candidates: Sequence[str], batch: int = api.BATCH, strict: bool = False
    ) -> list[dict[str, Any]]:
        """Candidate answers to a question, the best first; see `nse.api.rank`."""
        return api.rank(self.quick, question, candidates, batch, strict)

    def translate(
        self, texts: Sequence[str], beam: int | None = None, batch: int = api.BATCH, strict: bool = False
    ) -> list[dict[str, Any]]:
        """Translations of sentences; see `nse.api.translate`."""
        return api.translate(self.quick, texts, beam, batch, strict)

    def translations(
        self, texts: Iterable[str], beam: int | None = None, batch: int = api.BATCH, strict: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Translations one by one, of texts that may be endless; see `nse.api.translations`."""
        return api.translations(self.quick, texts, beam, batch, strict)

    def encode(
        self, texts: Sequence[str], batch: int = api.BATCH, strict: bool = False
    ) -> NDArray[np.float32]:
        """A vector for each text [N, d]; see `nse.api.encode`."""
        return api.encode(self.quick, texts, batch, strict)

    def trace(self, *texts: str, beam: int | None = None, strict: bool = False) -> MemoryTrace:
        """What the memories did with texts, and what the model says to them; see `nse.api.trace`."""
        return api.trace(self.loaded, *texts, beam=beam, strict=strict)
