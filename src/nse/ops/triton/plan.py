"""Division of a pass's work among the programs of a kernel, and the constants that it is compiled for.

Costs are in microseconds on an H200, roughly; only their proportions matter.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from nse.ops.triton.buffers import Sizes

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DRIVER = "phases" if INTERPRETED else "persistent"
"""One launch for all steps, or one per phase and step: in Triton's interpreter, which runs programs one after
the other, waiting for another program would never end."""

PROGRAMS = 6 if INTERPRETED else 0
"""Number of programs that run at a time; 0 for one per multiprocessor."""

INNER = 64  # size of a tile of a product in the summed dimension
STAGES = 3  # loads in flight, where weights are streamed
BLOCK = 8192  # elements of a memory at a time, where it is read in blocks
RESIDENT = 16384  # largest number of elements of a memory that stays in registers
SHARED = 217 * 1024 if INTERPRETED else None
"""Bytes of shared memory per program for weights and their operands; `None` for all there is."""

RESERVE = 10 * 1024  # bytes of shared memory for sums and layout changes
MAX_ROWS = 128
MIN_AT_ONCE = 4  # tiles to load at once
MAX_AT_ONCE = {4: 16, 2: 12}  # tiles of 16 rows, by bytes per element: limited by registers
MAX_PARTS = 8
ROUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Candidates for the number of groups per team: few large groups, or many whose memories stay on chip."""


class MatrixProduct(NamedTuple):
    """A product of a step: rows of `inner` elements by a matrix [inner, columns]."""

    columns: int = 0
    inner: int = 0
    together: int = 1  # columns that must stay in one slice
    times: int = 1  # per step, one after the other, each with its own weights

    def choose_width(self, programs: int) -> int:
        """Choose the number of columns of a slice, at most 64."""
        columns = math.ceil(self.columns / self.together / programs) * self.together
        return min(64, round_up(columns, 16))

    def count_held_bytes(self, width: int, itemsize: int) -> int:
        """Count the bytes of shared memory for a slice of the weights."""
        return self.times * width * itemsize * INNER * math.ceil(self.inner / INNER)


class Work(NamedTuple):
    """Work of a pass.

    Attributes:
        B: Number of sequences.
        k: Size.
        slots: Number of slots of each memory.
        products: Products of each step; their weights are put into shared memory in this order.
        itemsize: Bytes per element of the weights.
        max_held_rows: Largest number of sequences of a group with weights in shared memory.
        ragged: Whether sequences have different lengths.
        layers: Number of layers of the LSTM.
    """

    B: int
    k: int
    slots: tuple[int, ...]
    products: tuple[MatrixProduct, ...]
    itemsize: int
    max_held_rows: int
    ragged: bool
    layers: int = 1


class Division(NamedTuple):
    """Division of the work among programs."""

    rows: int  # sequences per group
    groups: int
    teams: int  # of programs; each takes one group after the other
    programs: int  # per team
    parts: int  # per memory
    widths: tuple[int, ...]  # columns of a slice, per product
    one_slice: bool  # whether every program has at most one slice of each product
    held: tuple[bool, ...]  # whether a slice is held in shared memory, per product
    at_once: int  # tiles of the other operand that are loaded at once
    resident: bool  # whether a program's memory stays in registers


@lru_cache(maxsize=1024)
def divide(work: Work, device: torch.device) -> Division:
    """Choose the division with the lowest estimated cost."""
    programs = PROGRAMS or torch.cuda.get_device_properties(device).multi_processor_count
    shared = read_shared_memory(device) - RESERVE if SHARED is None else SHARED
    return min(list_divisions(work, programs, shared), key=lambda division: estimate_cost(work, division))


def read_shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory that a program may use."""
    index = torch.cuda.current_device() if device.index is None else device.index
    properties = triton.runtime.driver.active.utils.get_device_properties(index)
    return int(properties["max_shared_mem"])


def list_divisions(work: Work, all_programs: int, shared: int) -> Iterator[Division]:
    """Yield the candidates: every number of teams, with several sizes of groups."""
    for teams in range(1, min(work.B, all_programs) + 1):
        for rows in dict.fromkeys(math.ceil(work.B / teams / rounds) for rounds in ROUNDS):
            yield make_division(work, teams, rows, all_programs // teams, shared)


def make_division(work: Work, teams: int, rows: int, programs: int, shared: int) -> Division:
    """Make the division with these teams, sequences per group, programs per team and bytes for weights."""
    rows = min(MAX_ROWS, rows)
    groups = math.ceil(work.B / rows)
    L, block, persistent = max(work.slots, default=0), round_up(work.k, 16), DRIVER == "persistent"
    widths = tuple(product.choose_width(programs) for product in work.products)
    one_slice = all(w * programs >= p.columns for w, p in zip(widths, work.products, strict=True))
    free, held = shared if persistent and one_slice and rows <= work.max_held_rows else 0, []
    for width, product in zip(widths, work.products, strict=True):
        needed = product.count_held_bytes(width, work.itemsize)
        held.append(0 < needed <= free - MIN_AT_ONCE * count_tile_bytes(rows, work.itemsize))
        free -= needed if held[-1] else 0
    # The reserve is free while weights are streamed.
    while any(held) and free + RESERVE < count_streaming_bytes(work, rows, widths, held):
        last = max(i for i, is_held in enumerate(held) if is_held)
        held[last] = False
        free += work.products[last].count_held_bytes(widths[last], work.itemsize)
    max_at_once = MAX_AT_ONCE[work.itemsize] * 16 // round_up(rows, 16)
    at_once = min(free // count_tile_bytes(rows, work.itemsize), max_at_once)
    resident = persistent and len(work.slots) == 1 and rows <= programs and round_up(L) * block <= RESIDENT
    # Each part has at least two blocks of slots, because joining the parts costs another phase.
    max_parts = 1 if resident else min(MAX_PARTS, programs // rows, L // (2 * max(1, BLOCK // block)))
    parts = 1 << max(0, max_parts.bit_length() - 1)
    teams, at_once = min(teams, groups), max(1, at_once)
    return Division(rows, groups, teams, programs, parts, widths, one_slice, tuple(held), at_once, resident)


def count_tile_bytes(rows: int, itemsize: int) -> int:
    """Count the bytes of shared memory for a tile of rows."""
    return round_up(rows, 16) * INNER * itemsize


def count_streaming_bytes(work: Work, rows: int, widths: Sequence[int], held: Sequence[bool]) -> int:
    """Count the bytes of shared memory for the largest product whose weights are not held."""
    row_bytes = round_up(rows, 16) * 4  # float32 until they are multiplied
    return max(
        (
            (STAGES - 1) * INNER * (row_bytes + width * work.itemsize)
            for width, is_held, product in zip(widths, held, work.products, strict=True)
            if product.columns and not is_held
        ),
        default=0,
    )


def estimate_cost(work: Work, division: Division) -> float:
    """Estimate the cost of a step: waits, memories, and the bytes that products load.

    Measured on an H200: a product with held weights waits for each round of loads but the first, one with
    streamed weights a little for every tile.
    """
    rows, groups, teams, programs, parts, widths, _, held, at_once, resident = division
    memories = 1.5 if resident else 0.15 * math.ceil(max(work.slots, default=0) / parts)
    products = 0.0
    for width, is_held, product in zip(widths, held, work.products, strict=True):
        slices = product.times * math.ceil(product.columns / width / programs)
        tiles = math.ceil(product.inner / INNER)
        loaded = product.inner * (4 * rows + (0 if is_held else work.itemsize * width))
        waiting = 2.3 * (math.ceil(tiles / at_once) - 1) if is_held else 0.1 * tiles
        products += slices * (loaded / 60e3 + waiting)
    # With different lengths, a team's later groups are shorter.
    rounds = math.ceil(groups / teams)
    rounds_of_full_length = 1 + 0.4 * (rounds - 1) if work.ragged else rounds
    waits = 8 + 2 * (work.layers - 1)
    return rounds_of_full_length * (waits + memories * math.ceil(rows * parts / programs) + products)


def round_up(n: int, minimum: int = 1) -> int:
    """Round n up to a power of two, at least `minimum`."""
    return max(minimum, 1 << max(0, n - 1).bit_length())


def choose_interval(T: int) -> int:
    """Choose the number of steps between two kept memories.

    More kept memories need more room; fewer, more recomputation.
    """
    return max(1, math.ceil(math.sqrt(T)))


def choose_warps(work: Work) -> int:
    """Choose the warps of a program: memories need the registers of eight, products are faster with four."""
    return 8 if work.slots else 4


def make_sizes(work: Work, division: Division, X: int, **settings: Any) -> Sizes:
    """Make the constants to compile for."""
    block, rows = round_up(work.k, 16), round_up(division.rows, 16)
    x, m, h, up_x, up_h = (*division.held, False, False)[:5]
    sizes = Sizes(
        K=work.k,
        MEMORIES=len(work.slots),
        LAYERS=work.layers,
        X=X,
        BLOCK_K=block,
        PARTS=division.parts,
        SLOTS=round_up(work.slots[0]) if division.resident else max(1, min(64, BLOCK // block)),
        ROWS=rows,
        INNER=INNER if rows <= 64 else INNER // 2,
        AT_ONCE=division.at_once,
        STAGES=STAGES,
        ONE_SLICE=division.one_slice,
        HELD_X=x,
        HELD_M=m,
        HELD_H=h,
        HELD_UP_X=up_x,
        HELD_UP_H=up_h,
        RESIDENT=division.resident,
        PRECISION="tf32" if torch.backends.cudnn.allow_tf32 else "ieee",
        **(
            dict.fromkeys(("UNITS", "COLUMNS", "COLUMNS_M", "COLUMNS_UP"), 16)
            | dict.fromkeys(("MASKED", "CELLS", "KEYS"), False)
            | settings
        ),
    )
    # The compiler needs each field marked as a constant; the interpreter takes plain values.
    return sizes if INTERPRETED else Sizes._make(tl.constexpr(value) for value in sizes)
