"""Compute rows of any length in batches that are sorted by length; results keep the rows' order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

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

Precision = Literal["float32", "bfloat16"]
BATCH = 128
"""Default batch size: on two cores smaller batches are slower, and larger ones not faster."""

_threads: ThreadPoolExecutor | None = None  # set by `use_thread_pool`


def use_thread_pool() -> None:
    """Compute one batch on each core of this process, from now on.

    By default all cores work at the same batch, and wait for each other after each of its small steps.
    """
    global _threads
    torch.set_num_threads(1)
    _threads = ThreadPoolExecutor(count_cores())


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_batch(batch: int, rows: int) -> int:
    """Return a batch size that leaves rows for every thread, if there are threads."""
    return min(batch, max(1, -(-rows // count_cores()))) if _threads else batch


def compute_request(model: Model, what: str, rows: Sequence[Row], beam: int | None, batch: int) -> Tensor:
    """Compute scores or vectors of rows [N, n], or translations: ids and source positions [N, 2, n]."""
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    if not rows:  # [0, n]: n is the size of one word's vector
        ids = (Vocabulary.UNKNOWN,)
        word = ((ids,) if model.kind.has_sentences else ids,)
        return compute_request(model, "vectors", [word], None, 1)[:0]
    labelled = stack_rows(rows, model.kind.has_sentences)
    if what == "translations":
        assert isinstance(model.config.model, TranslationConfig)
        beam = beam or model.config.model.beam
        function: Any = partial(search_batch, model, beam)
        batch = max(1, batch // beam)
    else:
        function = model.module if what == "scores" else model.module.represent
    return compute_rows(function, labelled, batch, model.device, model.precision)


def search_batch(model: Model, beam: int, ids: Tensor, lengths: Tensor) -> Tensor:
    """Search for the best translations; return their ids and source positions [B, 2, T]."""
    module: Any = model.module
    result = module.translate(ids, lengths, beam)
    if not bool(result.log_probs.isfinite().all()):
        raise RunError(f"{model.folder}: the model's scores are NaN or infinite")
    return torch.stack([result.ids, result.positions], dim=1)


def compute_rows(
    function: Callable[..., Tensor],
    rows: LabelledRows,
    batch: int,
    device: torch.device,
    precision: Precision = "float32",
) -> Tensor:
    """Compute a function of rows in batches; return the results [N, ...] on the CPU, in the rows' order."""

    @torch.inference_mode()  # set for each thread, as autocast is
    def compute(index: Tensor) -> Tensor:
        inputs = rows.select(index).to(device).inputs
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            results = function(*inputs)
        return (results.float() if results.is_floating_point() else results).cpu()

    # The longest rows first, so that no core waits long for another at the end.
    index = list(draw_bounded_batches(rows, limit_batch(batch, len(rows.labels))))[::-1]
    if not index:
        return torch.zeros(0, 1)
    results = _threads.map(compute, index) if _threads else map(compute, index)
    return torch.cat(list(results))[torch.cat(index).argsort()]
