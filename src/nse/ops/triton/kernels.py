"""The kernels, which run the phases of `memory` and `products` in two ways.

`forward` and `backward` are persistent: one launch runs all steps. Sequences, sorted by length, are divided
into groups, and programs into teams; a team takes one group after the other. Its programs go from phase to
phase together: each arrives at a barrier when its stores are done, and waits for the others before it reads
their results. In between it does work that does not depend on them. Teams never wait for each other, and
each group stops after its own longest sequence.

`forward_phase` and `backward_phase` run one phase of one step for all groups. They are slower, by the cost of
the launches, but never wait, so they also work in Triton's interpreter, which runs one program at a time.
"""

import triton
import triton.language as tl

from nse.ops.triton.memory import attend, attend_resident, join, join_back, rebuild, recall, recall_whole
from nse.ops.triton.products import (
    add_product,
    backprop_cell,
    backprop_top_cell,
    compose,
    compose_back,
    find_gate_columns,
    finish_upper,
    finish_write,
    hold,
    hold_upper,
    load_cell,
    load_cell_below,
    start_gates,
    start_upper_gates,
    upper_back,
    write,
    write_back,
    write_upper,
)


@triton.jit
def fill_zeros(tensors, sizes, BLOCK: tl.constexpr):
    """Fill this program's block of one of the tensors, of these sizes, with zeros."""
    block = tl.program_id(0)
    for i in tl.static_range(len(tensors)):
        blocks = tl.cdiv(sizes[i], BLOCK)
        if (block >= 0) & (block < blocks):
            offset = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
            tl.store(tensors[i] + offset, tl.zeros([BLOCK], tl.int32), mask=offset < sizes[i])
        block -= blocks


@triton.jit
def load_group(a, group, rows_of_group, S: tl.constexpr):
    """Load a group: rank of its first sequence, number of sequences, their indices, lengths, largest length.

    A group beyond the last is empty.
    """
    first = group * rows_of_group
    rows = tl.minimum(rows_of_group, a.B - first)
    i = tl.arange(0, S.ROWS)
    b = tl.load(a.order + first + i, mask=i < rows, other=0)
    length = tl.load(a.lengths + b, mask=i < rows, other=0)
    return first, rows, b, length, tl.max(length, axis=0)


@triton.jit
def load_own_sequence(a, first, rows, program):
    """Load the index and length of this program's only sequence; without one, the length is 0."""
    b = tl.load(a.order + tl.where(program < rows, first + program, 0))
    return b, tl.load(a.lengths + b) * tl.where(program < rows, 1, 0)


@triton.jit
def arrive(counter):
    """Signal that this program's stores are done."""
    tl.debug_barrier()  # those of every thread
    tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def wait(counter, target):
    """Wait until the programs have arrived `target` times in all."""
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < target:
        pass
    tl.debug_barrier()


@triton.jit
def take_group(group, groups, turn, counters, target, program, programs):
    """Take the longest group that no team has taken; return it and the barrier's new target.

    The first program takes it and publishes it to its team, in two slots by turns: others may still read the
    last one, but not the one before.
    """
    teams = tl.num_programs(0) // programs
    if groups <= teams:
        group += groups  # there is none
    else:
        counter = counters + tl.program_id(0) // programs * 32
        slot = counter + 1 + turn % 2
        if program == 0:
            tl.store(slot, teams + tl.atomic_add(counters + teams * 32, 1, sem="relaxed"))
        arrive(counter)
        target += programs
        wait(counter, target)
        group = tl.load(slot)
    return group, target


@triton.jit
def attend_all(a, first, rows, t, program, programs, S: tl.constexpr):
    """Write h of the step before into this program's parts of memories, and read them."""
    for i in range(program, rows * S.PARTS, programs):
        attend(a, tl.load(a.order + first + i // S.PARTS), i % S.PARTS, t, S)


@triton.jit
def join_all(a, first, rows, t, program, programs, S: tl.constexpr):
    """Join what was read from the parts of this program's memories."""
    for i in range(program, rows, programs):
        join(a, tl.load(a.order + first + i), t, S)


@triton.jit
def recall_all(a, first, rows, t, program, programs, S: tl.constexpr):
    """Run the backward pass of a read and of the write before it, for this program's parts of memories.

    Where memories are not divided, also that of the LSTM cell.
    """
    for i in range(program, rows * S.PARTS, programs):
        b = tl.load(a.order + first + i // S.PARTS)
        if S.MEMORIES > 0:
            dh = recall(a, b, i % S.PARTS, t, S)
        else:
            dh = tl.zeros([S.BLOCK_K], tl.float32)
        if S.PARTS == 1:
            backprop_top_cell(a, b, t, dh, S)


@triton.jit
def backprop_top_cell_all(a, first, rows, t, program, programs, S: tl.constexpr):
    """Join the gradients of parts and run the backward pass of the cell, for this program's sequences."""
    for i in range(program, rows, programs):
        b = tl.load(a.order + first + i)
        backprop_top_cell(a, b, t, join_back(a, b, t, S), S)


@triton.jit
def compose_all(a, b, length, t, program, programs, held, S: tl.constexpr):
    """Compute this program's columns of c_t."""
    if S.ONE_SLICE:  # with a loop, the compiler would hold two copies of the weights
        compose(a, b, length, t, program * S.COLUMNS, held, S)
    else:
        for start in range(program * S.COLUMNS, S.X, programs * S.COLUMNS):
            compose(a, b, length, t, start, held, S)


@triton.jit
def write_all(a, b, length, t, program, programs, held_x, held_h, S: tl.constexpr):
    """Compute this program's units of the LSTM's first layer."""
    if S.ONE_SLICE:
        write(a, b, length, t, program * S.UNITS, held_x, held_h, S)
    else:
        for start in range(program * S.UNITS, S.K, programs * S.UNITS):
            write(a, b, length, t, start, held_x, held_h, S)


@triton.jit
def write_upper_all(a, b, length, t, program, programs, layer, S: tl.constexpr):
    """Compute this program's units of an upper layer, if it has several slices or holds none."""
    for start in range(program * S.UNITS, S.K, programs * S.UNITS):
        write_upper(a, b, length, t, start, layer, (0,), (0,), S)


@triton.jit
def upper_back_all(a, b, length, t, program, programs, layer, S: tl.constexpr):
    """Compute this program's columns of the gradient of an upper layer's input, in the same case."""
    for start in range(program * S.COLUMNS_UP, 2 * S.K, programs * S.COLUMNS_UP):
        loaded = load_cell_below(a, b, length, t, start, layer, S)
        upper_back(a, b, length, t, start, layer, loaded, (0,), S)


@triton.jit
def write_back_all(a, b, length, t, program, programs, held, S: tl.constexpr):
    """Compute this program's columns of the gradient of the first layer's input."""
    if S.ONE_SLICE:
        write_back(a, b, length, t, program * S.COLUMNS, held, S)
    else:
        for start in range(program * S.COLUMNS, S.X + S.K, programs * S.COLUMNS):
            write_back(a, b, length, t, start, held, S)


@triton.jit
def compose_back_all(a, b, length, t, program, programs, held, S: tl.constexpr):
    """Compute this program's columns of the gradient of m_t."""
    if S.ONE_SLICE:
        compose_back(a, b, length, t, program * S.COLUMNS_M, held, S)
    else:
        for start in range(program * S.COLUMNS_M, S.MEMORIES * S.K, programs * S.COLUMNS_M):
            compose_back(a, b, length, t, start, held, S)


@triton.jit
def forward(a, counters, rows_of_group, groups, programs, S: tl.constexpr):
    """Run all steps of the forward pass."""
    program = tl.program_id(0) % programs
    team = tl.program_id(0) // programs
    counter = counters + team * 32  # each team's counter has its own cache line
    target = 0
    start = program * S.UNITS
    column, real = find_gate_columns(start, S)
    held_h = hold(a.W_h, column, real, S.K, S.HELD_H, S)
    if S.MEMORIES > 0:
        held_x = hold(a.W_x, column, real, S.X, S.HELD_X, S)
        if not S.FOLDED:
            c_column = program * S.COLUMNS + tl.arange(0, S.COLUMNS)
            held_m = hold(a.W_m, c_column, c_column < S.X, S.MEMORIES * S.K, S.HELD_M, S)
        if S.LAYERS > 1:
            held_up_x = hold_upper(a.W_up_x, column, real, 4 * S.K, S.K, S.HELD_UP_X, 0, S)
            held_up_h = hold_upper(a.W_up_h, column, real, 4 * S.K, S.K, S.HELD_UP_H, 0, S)
    else:
        held_x = (0,)
    group, turn = team, 0
    while group < groups:
        first, rows, b, length, longest = load_group(a, group, rows_of_group, S)
        if S.RESIDENT:
            own_b, own_length = load_own_sequence(a, first, rows, program)
            slot = tl.arange(0, S.SLOTS)
            unit = tl.arange(0, S.BLOCK_K)
            memory = a.M + own_b.to(tl.int64) * a.L * S.K + (slot * S.K)[:, None] + unit[None, :]
            in_memory = (slot < tl.where(program < rows, a.L, 0))[:, None] & (unit < S.K)[None, :]
            M = tl.load(memory, mask=in_memory, other=0.0)
            z = tl.zeros([S.SLOTS], tl.float32)
        for t in range(longest):
            if S.MEMORIES > 0:
                wait(counter, target)
                if S.RESIDENT:
                    M, z = attend_resident(a, own_b, own_length, t, M, z, S)
                else:
                    attend_all(a, first, rows, t, program, programs, S)
                arrive(counter)
                target += programs
                if S.PARTS > 1:
                    wait(counter, target)
                    join_all(a, first, rows, t, program, programs, S)
                    arrive(counter)
                    target += programs
                if S.ONE_SLICE:
                    gates = start_gates(a, b, length, t, start, held_h, S)
                wait(counter, target)
                if not S.FOLDED:
                    compose_all(a, b, length, t, program, programs, held_m, S)
                    arrive(counter)
                    target += programs
                    wait(counter, target)
                if S.ONE_SLICE:
                    finish_write(a, b, length, t, start, gates, held_x, S)
                else:
                    write_all(a, b, length, t, program, programs, held_x, held_h, S)
                for layer in tl.static_range(S.LAYERS - 2, -1, -1):
                    arrive(counter)
                    target += programs
                    if S.ONE_SLICE:
                        gates = start_upper_gates(a, b, length, t, start, layer, held_up_h[layer], S)
                        wait(counter, target)
                        finish_upper(a, b, length, t, start, layer, gates, held_up_x[layer], S)
                    else:
                        wait(counter, target)
                        write_upper_all(a, b, length, t, program, programs, layer, S)
            else:
                wait(counter, target)
                write_all(a, b, length, t, program, programs, held_x, held_h, S)
            arrive(counter)
            target += programs
        if S.MEMORIES > 0:
            wait(counter, target)
            if S.RESIDENT:
                M, z = attend_resident(a, own_b, own_length, longest, M, z, S)
                tl.store(memory, M, mask=in_memory)
            else:
                attend_all(a, first, rows, longest, program, programs, S)
        group, target = take_group(group, groups, turn, counters, target, program, programs)
        turn += 1


@triton.jit
def make_step_mask(t, length, unit, S: tl.constexpr):
    """Make the mask of sequences and units at step t, which is empty before the first step."""
    return (t < length)[:, None] & (unit < tl.where(t < 0, 0, S.K))[None, :]


@triton.jit
def run_lstm_back(a, counter, target, b, length, longest, program, programs, held, S: tl.constexpr):
    """Run the backward pass of a plain LSTM. Programs need only their own units: one barrier per step."""
    start = program * S.COLUMNS
    unit = start + tl.arange(0, S.COLUMNS)
    dh = tl.zeros([S.ROWS, S.COLUMNS], tl.float32)
    dc = tl.zeros([S.ROWS, S.COLUMNS], tl.float32)
    values = load_cell(a, b, longest - 1, unit, make_step_mask(longest - 1, length, unit, S), S)
    for back in range(longest):
        t = longest - 1 - back
        dc_before = backprop_cell(a, b, t, unit, make_step_mask(t, length, unit, S), values, dh, dc, S)
        dc = tl.where((t < length)[:, None], dc_before, dc)
        arrive(counter)
        target += programs
        values = load_cell(a, b, t - 1, unit, make_step_mask(t - 1, length, unit, S), S)
        wait(counter, target)
        # Rows of finished sequences are zero, and so are their gradients.
        da = a.da + (b * a.T + t).to(tl.int64) * (4 * S.K)
        dh = tl.zeros([S.ROWS, S.COLUMNS], tl.float32)
        dh = add_product(dh, da, t < length, a.W_T, unit, unit < S.K, held, 4 * S.K, S.HELD_X, S)
    offset = (b * S.K)[:, None] + unit[None, :]
    real = (length > 0)[:, None] & (unit < S.K)[None, :]
    tl.store(a.dh + offset, dh, mask=real)
    tl.store(a.dc + offset, dc, mask=real)
    return target


@triton.jit
def backward(a, counters, rows_of_group, groups, programs, S: tl.constexpr):
    """Run all steps of the backward pass, from the last to the first."""
    program = tl.program_id(0) % programs
    team = tl.program_id(0) // programs
    counter = counters + team * 32
    target = 0
    column = program * S.COLUMNS + tl.arange(0, S.COLUMNS)
    held = hold(a.W_T, column, column < S.X + S.K, 4 * S.K, S.HELD_X, S)
    if S.MEMORIES > 0:
        if not S.FOLDED:
            m_column = program * S.COLUMNS_M + tl.arange(0, S.COLUMNS_M)
            held_m = hold(a.W_mT, m_column, m_column < S.MEMORIES * S.K, S.X, S.HELD_M, S)
    if S.LAYERS > 1:
        start_up = program * S.COLUMNS_UP
        up_column = start_up + tl.arange(0, S.COLUMNS_UP)
        held_up = hold_upper(a.W_upT, up_column, up_column < 2 * S.K, 2 * S.K, 4 * S.K, S.HELD_UP_X, 0, S)
    group, turn = team, 0
    while group < groups:
        first, rows, b, length, longest = load_group(a, group, rows_of_group, S)
        if (S.MEMORIES == 0) & S.ONE_SLICE:
            target = run_lstm_back(a, counter, target, b, length, longest, program, programs, held, S)
        else:
            if S.RESIDENT:
                own_b, own_length = load_own_sequence(a, first, rows, program)
                dz = tl.zeros([S.SLOTS], tl.float32)
                z_dz = 0.0
            for back in range(longest):
                t = longest - 1 - back
                if S.RESIDENT:
                    M = rebuild(a, own_b, own_length, t, S)
                    wait(counter, target)
                    dz, z_dz, dh = recall_whole(a, own_b, own_length, t, M, dz, z_dz, S)
                    backprop_top_cell(a, own_b, tl.where(program < rows, t, -1), dh, S)
                else:
                    wait(counter, target)
                    recall_all(a, first, rows, t, program, programs, S)
                arrive(counter)
                target += programs
                if S.PARTS > 1:
                    wait(counter, target)
                    backprop_top_cell_all(a, first, rows, t, program, programs, S)
                    arrive(counter)
                    target += programs
                for layer in tl.static_range(S.LAYERS - 1):
                    if S.ONE_SLICE:
                        loaded = load_cell_below(a, b, length, t, start_up, layer, S)
                        wait(counter, target)
                        upper_back(a, b, length, t, start_up, layer, loaded, held_up[layer], S)
                    else:
                        wait(counter, target)
                        upper_back_all(a, b, length, t, program, programs, layer, S)
                    arrive(counter)
                    target += programs
                wait(counter, target)
                write_back_all(a, b, length, t, program, programs, held, S)
                arrive(counter)
                target += programs
                if S.MEMORIES > 0:
                    if not S.FOLDED:
                        wait(counter, target)
                        compose_back_all(a, b, length, t, program, programs, held_m, S)
                        arrive(counter)
                        target += programs
            if S.MEMORIES > 0:
                if S.RESIDENT:
                    M = rebuild(a, own_b, own_length, -1, S)
                    wait(counter, target)
                    dz, z_dz, dh = recall_whole(a, own_b, own_length, -1, M, dz, z_dz, S)
                else:
                    wait(counter, target)
                    recall_all(a, first, rows, -1, program, programs, S)
                    if S.PARTS > 1:
                        arrive(counter)
                        target += programs
                        wait(counter, target)
                        backprop_top_cell_all(a, first, rows, -1, program, programs, S)
        group, target = take_group(group, groups, turn, counters, target, program, programs)
        turn += 1


@triton.jit
def forward_phase(a, t, rows_of_group, programs, PHASE: tl.constexpr, LAYER: tl.constexpr, S: tl.constexpr):
    """Run one phase of one step of the forward pass; LAYER is for the phase "upper"."""
    program = tl.program_id(0) % programs
    first, rows, b, length, longest = load_group(a, tl.program_id(0) // programs, rows_of_group, S)
    if t <= longest:
        if PHASE == "attend":
            attend_all(a, first, rows, t, program, programs, S)
        if PHASE == "join":
            join_all(a, first, rows, t, program, programs, S)
        if PHASE == "compose":
            compose_all(a, b, length, t, program, programs, (0,), S)
        if PHASE == "write":
            write_all(a, b, length, t, program, programs, (0,), (0,), S)
        if PHASE == "upper":
            write_upper_all(a, b, length, t, program, programs, LAYER, S)


@triton.jit
def backward_phase(a, t, rows_of_group, programs, PHASE: tl.constexpr, LAYER: tl.constexpr, S: tl.constexpr):
    """Run one phase of one step of the backward pass; LAYER is for the phase "upper"."""
    program = tl.program_id(0) % programs
    first, rows, b, length, longest = load_group(a, tl.program_id(0) // programs, rows_of_group, S)
    if t < longest:
        if PHASE == "recall":
            recall_all(a, first, rows, t, program, programs, S)
        if PHASE == "cell":
            backprop_top_cell_all(a, first, rows, t, program, programs, S)
        if PHASE == "upper":
            upper_back_all(a, b, length, t, program, programs, LAYER, S)
        if PHASE == "write":
            write_back_all(a, b, length, t, program, programs, (0,), S)
        if PHASE == "compose":
            compose_back_all(a, b, length, t, program, programs, (0,), S)
