"""Arguments of the Triton kernels: constants to compile for, pointers and sizes.

Letters are those of `nse.ops.types`. All memories of a sequence are concatenated, L slots in all. LSTM layers
are concatenated too, from the top down, so the top layer, which writes the memories, has the same offset for
any number of layers. Layers are counted in that order; R = layers B.
"""

from typing import Any, NamedTuple


class Sizes(NamedTuple):
    """Constants that the kernels are compiled for, so that the compiler knows how addresses are aligned."""

    K: int  # k, the size of a slot
    MEMORIES: int  # own and shared; 0 for a plain LSTM
    LAYERS: int  # of the LSTM
    X: int  # input size of the write LSTM: d, or (1 + n) k if folded; 0 for a plain LSTM
    FOLDED: bool  # whether compose is folded into the gates
    MASKED: bool  # whether there is dropout on c
    KEEP: bool  # whether a backward pass will follow
    CELLS: bool  # whether the cell states have a gradient
    KEYS: bool  # whether z has a gradient
    BLOCK_K: int  # smallest power of two that is at least k
    PARTS: int  # number of programs per memory, a power of two
    SLOTS: int  # slots of a memory at a time
    ROWS: int  # sequences of a group at a time, in products
    UNITS: int  # LSTM units of a program at a time, four columns each
    COLUMNS: int  # columns at a time of compose; backward: of the LSTM
    COLUMNS_M: int  # columns at a time of compose, backward
    COLUMNS_UP: int  # columns at a time of an upper layer, backward
    INNER: int  # size of a tile of products in the summed dimension
    AT_ONCE: int  # tiles to load before multiplying, if weights are held
    STAGES: int  # loads in flight per product
    ONE_SLICE: bool  # whether every program has at most one slice of each weight
    HELD_X: bool  # whether a program holds its slice of the LSTM's input weights; backward: of all weights
    HELD_H: bool  # the same of its recurrent weights
    HELD_M: bool  # the same of compose's weights
    HELD_UP_X: bool  # the same of every upper layer's input weights; backward: of all weights
    HELD_UP_H: bool  # the same of their recurrent weights
    RESIDENT: bool  # whether each program has one sequence, whose one memory it holds in registers
    PRECISION: str  # of float32 products: tf32 or ieee


class Forward(NamedTuple):
    """Arguments of the forward pass."""

    order: Any  # [B], indices of the sequences from longest to shortest
    lengths: Any  # [B], number of steps
    slot_lengths: Any  # [1 + n, B], number of slots of each memory
    hoisted: Any  # [B, T, 4k] if folded, else [B, T, d]: the part that needs no memory
    o: Any  # [B, T, k]
    mask: Any  # [B, T, d], dropout
    W_m: Any  # [d, (1 + n) k]
    W_x: Any  # [4k, X], of the first layer
    W_h: Any  # [4k, k], of the first layer
    bias: Any  # [4k], of the first layer
    W_up_x: Any  # [layers - 1, 4k, k], of the layers above, for the h of the layer below
    W_up_h: Any  # [layers - 1, 4k, k], for their own h
    bias_up: Any  # [layers - 1, 4k]
    M: Any  # [B, L, k], all memories; overwritten
    H: Any  # [R, T + 1, k], h, after the initial one
    C: Any  # [R, T + 1, k], the cell state, after the initial one
    z: Any  # [B, T, L], zero at first
    m: Any  # [B, T, (1 + n) k]
    c: Any  # [B, T, d], composed
    gates: Any  # [R, T, 4k], activated
    kept: Any  # [pieces, B, L, k], the memory before steps 0, interval, 2 interval, ...
    scores: Any  # [2, B, L], for even and odd steps
    tops: Any  # [2, B, 1 + n, parts], the highest score of each part
    totals: Any  # [2, B, 1 + n, parts], sum of exp(score - highest score)
    part_m: Any  # [B, 1 + n, parts, k], m before the division by the total
    B: Any
    T: Any
    L: Any  # number of slots of all memories
    L_0: Any  # of the own memory
    L_1: Any  # of the first shared memory
    interval: Any  # steps between two kept memories


class Backward(NamedTuple):
    """Arguments of the backward pass; those without a comment are as in `Forward`."""

    order: Any
    lengths: Any
    slot_lengths: Any
    o: Any
    mask: Any
    W_mT: Any  # [(1 + n) k, d], transposed
    W_T: Any  # [X + k, 4k], W_x and W_h side by side, transposed
    W_upT: Any  # [layers - 1, 2k, 4k], W_up_x and W_up_h side by side, transposed
    H: Any
    C: Any
    z: Any
    m: Any
    gates: Any
    kept: Any
    d_H: Any  # [R, T + 1, k], gradient of H from outside
    d_C: Any  # [R, T + 1, k], gradient of C from outside
    d_z: Any  # [B, T, L], gradient of z from outside
    dh: Any  # [R, k], gradient of h, zero at first; updated at each step
    dc: Any  # [2, R, k], gradient of the cell state, for even and odd steps; updated at each step
    G: Any  # [B, L, k], gradient of the memory; updated at each step
    dz: Any  # [2, B, L], gradient of z through the write, for even and odd steps
    z_dz: Any  # [2, B, 1 + n, parts], z . dz of it
    part_dh: Any  # [B, parts, k]
    part_do: Any  # [B, parts, k]
    da: Any  # [R, T, 4k], gradient of the gates before their activation
    dx: Any  # [B, T, X], gradient of the write LSTM's input
    dm: Any  # [B, T, (1 + n) k]; the same tensor as dx if folded
    do: Any  # [B, T, k]
    B: Any
    T: Any
    L: Any
    L_0: Any
    L_1: Any
    interval: Any
