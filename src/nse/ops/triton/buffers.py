"""What the Triton kernels are given: constants to compile for, pointers and sizes.

Letters as in `parts`. All memories of a sequence lie one after the other, L slots in all. Of several LSTM
layers, what each has lies one after the other too, from the top down: so the top one, which is written to the
memories, is found where the only one would be. Layers are counted in that order; R = layers B.
"""

from typing import Any, NamedTuple


class Sizes(NamedTuple):
    """What the kernels are compiled for; as constants, so that addresses are known to be aligned."""

    K: int  # k, the size of a slot
    MEMORIES: int  # own and shared; 0 for a plain LSTM
    LAYERS: int  # of the LSTM
    X: int  # what the write LSTM reads: d, or when folded all m, (1 + n) k; 0 for a plain LSTM
    FOLDED: bool  # whether compose is part of the gates
    MASKED: bool  # whether dropout stands on c
    KEEP: bool  # whether a backward pass will follow
    CELLS: bool  # whether a gradient comes back for the cell states
    KEYS: bool  # whether a gradient comes back for z
    BLOCK_K: int  # the next power of two from k
    PARTS: int  # a memory is divided among so many programs, a power of two
    SLOTS: int  # slots of a memory at a time
    ROWS: int  # sequences of a group at a time, in products
    UNITS: int  # units of the LSTM of a program at a time, four columns each
    COLUMNS: int  # columns at a time of compose, or of the way back through the LSTM
    COLUMNS_M: int  # columns at a time of the way back through compose
    COLUMNS_UP: int  # columns at a time of the way back through an upper layer
    INNER: int  # the summed dimension of products at a time
    AT_ONCE: int  # how often that is loaded before it is multiplied, where weights are held
    STAGES: int  # loads of products under way at a time
    ONE_SLICE: bool  # whether no program has more than one slice of any weights
    HELD_X: bool  # whether a program holds its slice of the LSTM's input weights; backward: of all
    HELD_H: bool  # likewise of its recurrent weights
    HELD_M: bool  # likewise of compose's
    HELD_UP_X: bool  # likewise of every upper layer's input weights; backward: of all
    HELD_UP_H: bool  # likewise of their recurrent weights
    RESIDENT: bool  # whether each program holds its one sequence's one memory in registers
    PRECISION: str  # of float32 products: tf32, or ieee for all bits


class Forward(NamedTuple):
    """Pointers and sizes of the forward pass."""

    order: Any  # [B], sequences from the longest to the shortest
    lengths: Any  # [B], steps
    slot_lengths: Any  # [1 + n, B], slots of each memory
    ahead: Any  # [B, T, 4k] when folded, else [B, T, d]: what needs no memory
    o: Any  # [B, T, k]
    mask: Any  # [B, T, d], dropout
    W_m: Any  # [d, (1 + n) k]
    W_x: Any  # [4k, X], of the first layer
    W_h: Any  # [4k, k], likewise
    bias: Any  # [4k], likewise
    W_up_x: Any  # [layers - 1, 4k, k], of those above it, from what the layer below gives
    W_up_h: Any  # [layers - 1, 4k, k], from their own h
    bias_up: Any  # [layers - 1, 4k]
    M: Any  # [B, L, k], all memories one after the other; overwritten
    H: Any  # [R, T + 1, k], h with the state at the start in front
    C: Any  # [R, T + 1, k], likewise the cell state
    z: Any  # [B, T, L], zero at first
    m: Any  # [B, T, (1 + n) k]
    c: Any  # [B, T, d], composed
    gates: Any  # [R, T, 4k], activated
    kept: Any  # [pieces, B, L, k], the memory before every so many steps
    scores: Any  # [2, B, L], of even and odd steps
    tops: Any  # [2, B, 1 + n, parts], the highest of them, likewise
    totals: Any  # likewise, the sum of exponentials of what is below the highest
    part_m: Any  # [B, 1 + n, parts, k], m before it is divided by that sum
    B: Any
    T: Any
    L: Any  # slots of all memories
    L_0: Any  # slots of the own memory
    L_1: Any  # slots of the first shared memory
    interval: Any  # steps from one kept memory to the next


class Backward(NamedTuple):
    """Pointers and sizes of the backward pass; those of `Forward` mean the same."""

    order: Any
    lengths: Any
    slot_lengths: Any
    o: Any
    mask: Any
    W_mT: Any  # [(1 + n) k, d], transposed
    W_T: Any  # [X + k, 4k], W_x and W_h side by side, transposed
    W_upT: Any  # [layers - 1, 2k, 4k], W_up_x and W_up_h likewise
    H: Any
    C: Any
    z: Any
    m: Any
    gates: Any
    kept: Any
    d_H: Any  # [R, T + 1, k], what came back for H
    d_C: Any  # [R, T + 1, k], likewise for C
    d_z: Any  # [B, T, L], likewise for z
    dh: Any  # [R, k], of h, zero at first; rolled back
    dc: Any  # [2, R, k], of the cell state, likewise, for even and odd steps
    G: Any  # [B, L, k], of the memory; rolled back
    dz: Any  # [2, B, L], the write's part of the gradient of z, for even and odd steps
    z_dz: Any  # [2, B, 1 + n, parts], z . dz of that part
    part_dh: Any  # [B, parts, k]
    part_do: Any  # [B, parts, k]
    da: Any  # [R, T, 4k], of the gates before their activation
    dx: Any  # [B, T, X], of what the write LSTM reads
    dm: Any  # [B, T, (1 + n) k]; the same as dx when folded
    do: Any  # [B, T, k]
    B: Any
    T: Any
    L: Any
    L_0: Any
    L_1: Any
    interval: Any
