"""How the work of a pass is divided among the programs of a kernel, and what the kernel is compiled for.

The unit of cost below is about a microsecond on an H200; only its proportions matter.
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
"""One launch for all steps, or one for each phase of each step. The interpreter runs programs one after the
other, so there only a team of one program can wait."""

PROGRAMS = 6 if INTERPRETED else 0
"""How many run at a time; 0 for as many as there are multiprocessors."""

INNER = 64  # the summed dimension of a product at a time
STAGES = 3  # loads of it under way at a time, where weights are not held
BLOCK = 8192  # numbers of a memory at a time, where it is read in blocks
RESIDENT = 16384  # numbers of a memory that stays in registers
SHARED = 217 * 1024 if INTERPRETED else None
"""Bytes of a program's shared memory for weights and what they are multiplied by; `None` for all there is."""

RESERVE = 10 * 1024  # bytes of it for sums and changes of layout
MOST_ROWS = 128
FEWEST_AT_ONCE = 4  # tiles to load at once
MOST_AT_ONCE = {4: 16, 2: 12}  # of 16 rows, by the bytes of a number: registers set the limit
MOST_PARTS = 8
ROUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Groups for each team to choose from: few, each of many sequences, or many, whose memories stay on chip."""


class MatrixProduct(NamedTuple):
    """A product of a step: rows of `inner` numbers by a matrix of so many columns."""

    columns: int = 0
    inner: int = 0
    together: int = 1  # columns that must not be divided
    times: int = 1  # of a step, one after the other, each with weights of its own

    def width(self, programs: int) -> int:
        """How many columns a program takes at a time, at most 64 if it has to take several times."""
        share = math.ceil(self.columns / self.together / programs) * self.together
        return min(64, power_of_two(share, 16))

    def count_held_bytes(self, width: int, bytes_: int) -> int:
        """Of shared memory for a slice of the weights."""
        return self.times * width * bytes_ * INNER * math.ceil(self.inner / INNER)


class Work(NamedTuple):
    """What a pass has to do.

    Attributes:
        B: Sequences.
        k: Size.
        slots: Of each memory.
        products: Of each step; which weights are held on chip is decided in this order.
        bytes_: Of a number of the weights.
        most_held_rows: Weights are held on chip for groups of at most so many sequences.
        ragged: Whether sequences have different lengths.
        layers: Of the LSTM.
    """

    B: int
    k: int
    slots: tuple[int, ...]
    products: tuple[MatrixProduct, ...]
    bytes_: int
    most_held_rows: int
    ragged: bool
    layers: int = 1


class Division(NamedTuple):
    """How the work is divided among programs."""

    rows: int  # sequences of a group
    groups: int
    teams: int  # of programs; each takes one group after the other
    programs: int  # of a team
    parts: int  # of a memory
    widths: tuple[int, ...]  # of a program's slice of each product
    one_slice: bool  # whether no program has more than one of each
    held: tuple[bool, ...]  # whether it holds that slice in shared memory
    at_once: int  # tiles of what they are multiplied by that it loads at once
    resident: bool  # whether a program's memory fits its registers


@lru_cache(maxsize=1024)
def divide(work: Work, device: torch.device) -> Division:
    """The division that is reckoned to be the fastest."""
    programs = PROGRAMS or torch.cuda.get_device_properties(device).multi_processor_count
    shared = shared_memory(device) - RESERVE if SHARED is None else SHARED
    return min(divisions(work, programs, shared), key=lambda division: cost(work, division))


def shared_memory(device: torch.device) -> int:
    """Bytes that one program may have, as the launcher will count them."""
    index = torch.cuda.current_device() if device.index is None else device.index
    properties = triton.runtime.driver.active.utils.get_device_properties(index)
    return int(properties["max_shared_mem"])


def divisions(work: Work, all_programs: int, shared: int) -> Iterator[Division]:
    """Those to choose from: so many teams, and groups of so many sequences."""
    for teams in range(1, min(work.B, all_programs) + 1):
        for rows in dict.fromkeys(math.ceil(work.B / teams / rounds) for rounds in ROUNDS):
            yield division(work, teams, rows, all_programs // teams, shared)


def division(work: Work, teams: int, rows: int, programs: int, shared: int) -> Division:
    """The division with so many teams, sequences of a group, programs of a team and bytes for weights."""
    rows = min(MOST_ROWS, rows)
    groups = math.ceil(work.B / rows)
    L, block, persistent = max(work.slots, default=0), power_of_two(work.k, 16), DRIVER == "persistent"
    widths = tuple(product.width(programs) for product in work.products)
    one_slice = all(w * programs >= p.columns for w, p in zip(widths, work.products, strict=True))
    room, held = shared if persistent and one_slice and rows <= work.most_held_rows else 0, []
    for width, product in zip(widths, work.products, strict=True):
        needed = product.count_held_bytes(width, work.bytes_)
        held.append(0 < needed <= room - FEWEST_AT_ONCE * tile_bytes(rows, work.bytes_))
        room -= needed if held[-1] else 0
    # What is reserved is not needed while weights are streamed.
    while any(held) and room + RESERVE < streaming_bytes(work, rows, widths, held):
        last = max(i for i, is_held in enumerate(held) if is_held)
        held[last] = False
        room += work.products[last].count_held_bytes(widths[last], work.bytes_)
    most = MOST_AT_ONCE[work.bytes_] * 16 // power_of_two(rows, 16)
    at_once = min(room // tile_bytes(rows, work.bytes_), most)
    resident = (
        persistent and len(work.slots) == 1 and rows <= programs and power_of_two(L) * block <= RESIDENT
    )
    # No part with less than two blocks of slots: joining the parts costs a phase of its own.
    most = 1 if resident else min(MOST_PARTS, programs // rows, L // (2 * max(1, BLOCK // block)))
    parts = 1 << max(0, most.bit_length() - 1)
    return Division(
        rows,
        groups,
        min(teams, groups),
        programs,
        parts,
        widths,
        one_slice,
        tuple(held),
        max(1, at_once),
        resident,
    )


def tile_bytes(rows: int, bytes_: int) -> int:
    """Of shared memory for a tile of what weights are multiplied by."""
    return power_of_two(rows, 16) * INNER * bytes_


def streaming_bytes(work: Work, rows: int, widths: Sequence[int], held: Sequence[bool]) -> int:
    """Of shared memory for the product that needs the most of those whose weights are not held."""
    numbers = power_of_two(rows, 16) * 4  # float32 until they are multiplied
    return max(
        (
            (STAGES - 1) * INNER * (numbers + width * work.bytes_)
            for width, is_held, product in zip(widths, held, work.products, strict=True)
            if product.columns and not is_held
        ),
        default=0,
    )


def cost(work: Work, division: Division) -> float:
    """Of a step: what waiting and small things take, memories, and what the products read.

    As measured on an H200, a product with held weights waits for each round of loads but the first, another
    one a little for every tile.
    """
    rows, groups, teams, programs, parts, widths, _, held, at_once, resident = division
    memories = 1.5 if resident else 0.15 * math.ceil(max(work.slots, default=0) / parts)
    products = 0.0
    for width, is_held, product in zip(widths, held, work.products, strict=True):
        slices = product.times * math.ceil(product.columns / width / programs)
        tiles = math.ceil(product.inner / INNER)
        moved = product.inner * (4 * rows + (0 if is_held else work.bytes_ * width))
        waiting = 2.3 * (math.ceil(tiles / at_once) - 1) if is_held else 0.1 * tiles
        products += slices * (moved / 60e3 + waiting)
    # Where lengths differ, a team's later groups are shorter.
    rounds = math.ceil(groups / teams)
    rounds_of_full_length = 1 + 0.4 * (rounds - 1) if work.ragged else rounds
    waits = 8 + 2 * (work.layers - 1)
    return rounds_of_full_length * (waits + memories * math.ceil(rows * parts / programs) + products)


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least n, and at least so much."""
    return max(least, 1 << max(0, n - 1).bit_length())


def interval(T: int) -> int:
    """Steps from one kept memory to the next.

    A kept memory costs room; a step since the last one costs a multiplication and an addition for each of
    its numbers.
    """
    return max(1, math.ceil(math.sqrt(T)))


def warps(work: Work) -> int:
    """Of a program: a memory needs the registers of eight, products alone are faster with four."""
    return 8 if work.slots else 4


def sizes(work: Work, division: Division, X: int, **settings: Any) -> Sizes:
    """What to compile for."""
    block, rows = power_of_two(work.k, 16), power_of_two(division.rows, 16)
    x, m, h, up_x, up_h = (*division.held, False, False)[:5]
    chosen = Sizes(
        K=work.k,
        MEMORIES=len(work.slots),
        LAYERS=work.layers,
        X=X,
        BLOCK_K=block,
        PARTS=division.parts,
        SLOTS=power_of_two(work.slots[0]) if division.resident else max(1, min(64, BLOCK // block)),
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
        **{
            "UNITS": 16,
            "COLUMNS": 16,
            "COLUMNS_M": 16,
            "COLUMNS_UP": 16,
            "MASKED": False,
            "CELLS": False,
            "KEYS": False,
            **settings,
        },
    )
    # The compiler wants each field marked as a constant; the interpreter takes plain values.
    return chosen if INTERPRETED else Sizes._make(tl.constexpr(value) for value in chosen)
