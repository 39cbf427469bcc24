"""From ids to numbers: rows of any length and in any number, computed in batches.

They are sorted by length, computed so many at a time, and come out in their order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nse.errors import InputError, RunError
from nse.inference.inputs import Row, stack_rows
from nse.nn.translator import TranslationConfig
from nse.text.sampler import draw_bounded_batches
from nse.text.tensors import LabelledRows
from nse.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from nse.inference.model import Model

BATCH = 128
"""Texts computed at a time: on two cores fewer are slower, and more are not faster."""

_threads: ThreadPoolExecutor | None = None  # that compute batches side by side, if that was asked for


def side_by_side() -> None:
    """Let this process compute as many batches at a time as it has cores, from now on, each on one core.

    By default all cores work at one batch, and wait for each other after each of its small steps.
    """
    global _threads
    torch.set_num_threads(1)
    _threads = ThreadPoolExecutor(cores())


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_once(batch: int, rows: int) -> int:
    """How many rows to compute at a time: side by side no more than leaves some for every core."""
    return min(batch, max(1, -(-rows // cores()))) if _threads else batch


def compute_request(model: Model, what: str, rows: Sequence[Row], beam: int | None, batch: int) -> Tensor:
    """Compute scores or vectors of rows [N, n], or translations: ids and places [N, 2, n]."""
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    if not rows:  # as many numbers as a word has
        ids = (Vocabulary.UNKNOWN,)
        word = ((ids,) if model.kind.has_sentences else ids,)
        return compute_request(model, "vectors", [word], None, 1)[:0]
    labelled = stack_rows(rows, model.kind.has_sentences)
    if what == "translations":
        assert isinstance(model.config.model, TranslationConfig)
        beam = beam or model.config.model.beam
        return compute_rows(partial(search, model, beam), labelled, max(1, batch // beam), model.device)
    function = model.fast if what == "scores" else model.fast.represent
    return compute_rows(function, labelled, batch, model.device)


def search(model: Model, beam: int, ids: Tensor, lengths: Tensor) -> Tensor:
    """Search the best translations: their ids and, for each, the place in the source [B, 2, most]."""
    found = model.fast.translate(ids, lengths, beam)
    if not bool(found.log_probs.isfinite().all()):
        raise RunError(f"{model.folder}: the model's scores are NaN or infinite")
    return torch.stack([found.ids, found.positions], dim=1)


def compute_rows(
    function: Callable[..., Tensor], rows: LabelledRows, batch: int, device: torch.device
) -> Tensor:
    """Compute a function of rows, many at a time; the results [N, ...] are on the host, in their order."""

    @torch.inference_mode()  # which is of a thread
    def compute(index: Tensor) -> Tensor:
        return function(*rows.select(index).to(device).inputs).cpu()

    # The longest first, so that no core waits long for another in the end.
    index = list(draw_bounded_batches(rows, at_once(batch, len(rows.labels))))[::-1]
    if not index:
        return torch.zeros(0, 1)
    computed = _threads.map(compute, index) if _threads else map(compute, index)
    return torch.cat(list(computed))[torch.cat(index).argsort()]
