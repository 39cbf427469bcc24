"""Whole training step with the sizes of SNLI.

The paper's pair model (section 4.1) with fixed word vectors: a batch is picked out of data that lies on the
device, both sentences are encoded, and the loss, its gradient, clipping and Adam follow; operation by
operation, and as one CUDA graph. The sentences are random words of the lengths of SNLI's.
"""

from __future__ import annotations

import gc
from itertools import pairwise
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.speed.calls import to_mebibytes
from nse.nn.pair import PairClassifier, PairConfig
from nse.ops.dispatch import choose_backend
from nse.tasks.task import compute_cross_entropy
from nse.text.sampler import draw_batches
from nse.text.tensors import LabelledRows, Shape, Texts
from nse.text.vocabulary import Vocabulary
from nse.train.optimizer import make_adam
from nse.train.train_step import CapturedStep, TrainStep

PAIRS, WORDS, LABELS, BATCH = 20_000, 20_000, 3, 128
MODEL = PairConfig(encoder="nse", size=300, hidden=1024, dropout=0.3)
RATE, L2, CLIP = 3e-4, 3e-5, 15.0
TIMED_PASSES = 2  # over the full batches of the data: 312 steps

# Mean and deviation of the logarithm of a length, and the longest: log-normal fitted to the lengths of the
# first 100,000 training pairs: mean 14.1, deviation 6.1; mean 8.2, deviation 3.2.
PREMISES = (2.56, 0.40, 82)
HYPOTHESES = (2.04, 0.37, 44)


def measure_snli_steps(log: Console) -> list[dict[str, Any]]:
    """Measure the step on random batches and on batches of similar length, without and with a graph.

    Args:
        log: Console for each row as soon as it is measured.

    Returns:
        A row each. `ms` is the mean over steps of different shapes, `ms_least` and `ms_most` are of single
        steps; `T` is how far premises were padded on average; `peak_mb` is the most memory at any time beyond
        weights and data, so with gradients and Adam's state. There is no row with a graph where the backend
        cannot be captured.
    """
    generator = torch.Generator().manual_seed(0)
    premise, hypothesis = (draw_texts(*of, generator) for of in (PREMISES, HYPOTHESES))
    pairs = LabelledRows((premise, hypothesis), torch.randint(LABELS, (PAIRS,), generator=generator))
    plans = {
        "random": draw_batches(PAIRS, BATCH, generator),
        "buckets": draw_batches(PAIRS, BATCH, generator, pairs.lengths),
    }
    rows, backend = [], choose_backend("auto", "cuda")
    for name, plan in plans.items():
        whole = [index for index in plan if len(index) == BATCH]
        full = list(zip(whole, pairs.compute_shapes(whole), strict=True))
        for graph in (False, True):
            figures = measure(pairs, full, graph)
            if figures is None:
                log.print(
                    f"SNLI step, {name} batches, with a graph is left out: {backend} cannot be captured"
                )
                continue
            row = {
                "name": "SNLI step",
                "backend": backend + (" graph" if graph else ""),
                "B": BATCH,
                "T": round(sum(shape[0] for _, shape in full) / len(full), 1),
                "k": MODEL.size,
                "dtype": "float32",
                "mode": "train",
                **figures,
                "kept_mb": None,
                "batches": name,
                "pairs_per_second": round(1e3 * BATCH / figures["ms"]),
            }
            rows.append(row)
            log.print(f"SNLI step, {name} batches, {row['backend']}: {row['ms']} ms", highlight=False)
    return rows


def draw_texts(mean: float, deviation: float, longest: int, generator: torch.Generator) -> Texts:
    """Draw texts of random words with log-normal lengths."""
    logarithms = mean + deviation * torch.randn(PAIRS, generator=generator)
    lengths = logarithms.exp().round().long().clamp(1, longest)
    columns = int(lengths.max())
    ids = torch.randint(2, WORDS, (PAIRS, columns), generator=generator)  # 0 is padding, 1 the unknown word
    return Texts(ids.masked_fill(torch.arange(columns) >= lengths[:, None], Vocabulary.PAD), lengths)


def measure(pairs: LabelledRows, plan: list[tuple[Tensor, Shape]], graph: bool) -> dict[str, Any] | None:
    """Measure time and memory of the steps of a plan; `None` if no graph can be captured."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    device = torch.device("cuda", torch.cuda.current_device())
    model = PairClassifier(MODEL, WORDS, LABELS).to(device)
    model.embedding.weight.requires_grad_(False)
    data = pairs.to(device)

    def compute_loss(index: Tensor, shape: Shape | None) -> tuple[Tensor, Tensor]:
        batch = data.select(index, shape)
        return compute_cross_entropy(model(*batch.inputs), batch.labels)

    step = (CapturedStep if graph else TrainStep)(
        make_adam(model.parameters(), RATE, L2, device), compute_loss, CLIP
    )
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    # At its second step each shape is captured, so the second pass captures those that occurred only once.
    for _ in range(2 if graph else 1):
        for index, shape in plan:
            step(index, shape)
    if graph and not step.needs_shapes:
        return None
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(1 + TIMED_PASSES * len(plan))]
    torch.cuda.synchronize()
    marks[0].record()
    for mark, (index, shape) in zip(marks[1:], TIMED_PASSES * plan, strict=True):
        step(index, shape)
        mark.record()
    torch.cuda.synchronize()
    times = [start.elapsed_time(end) for start, end in pairwise(marks)]
    return {
        "ms": round(sum(times) / len(times), 4),
        "ms_least": round(min(times), 4),
        "ms_most": round(max(times), 4),
        "calls": len(times),
        "peak_mb": to_mebibytes(torch.cuda.max_memory_allocated() - before),
    }
