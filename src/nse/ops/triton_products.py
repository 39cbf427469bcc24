"""The products' phases of one step, forward and backward, as Triton functions for the sequences of a group.

A slice of each weight matrix, some of its output columns, belongs to one program, for all sequences of its
group. Where it fits, the program holds it in shared memory from step to step.

What one program wrote and another reads is loaded with `.cg`, past the first-level cache.
"""

import triton
import triton.language as tl


@triton.jit
def tiles(
    rows,
    real_row,
    START: tl.constexpr,
    END: tl.constexpr,
    WIDTH: tl.constexpr,
    CACHE: tl.constexpr,
    S: tl.constexpr,
):
    """The columns from START to END of rows of WIDTH numbers, in tiles of INNER columns; zero beyond."""
    i = START + tl.arange(0, S.INNER)
    real = real_row[:, None] & (i < WIDTH)[None, :]
    tile = tl.load(rows[:, None] + i[None, :], mask=real, other=0.0, cache_modifier=CACHE)
    if START + S.INNER >= END:
        return (tile,)
    else:
        return (tile,) + tiles(rows, real_row, START + S.INNER, END, WIDTH, CACHE, S)  # noqa: RUF005


@triton.jit
def hold(W, column, real, WIDTH: tl.constexpr, HELD: tl.constexpr, S: tl.constexpr):
    """A slice of the weights W [*, WIDTH], for all steps; nothing where none is held."""
    if HELD:
        return tiles(W + column * WIDTH, real, 0, WIDTH, WIDTH, "", S)
    else:
        return (0,)


@triton.jit
def add_product(
    total,
    rows,
    real_row,
    W,
    column,
    real_column,
    held,
    WIDTH: tl.constexpr,
    HELD: tl.constexpr,
    S: tl.constexpr,
):
    """Total + rows W^T, for rows of `WIDTH` numbers each, and some of W's rows, its output columns."""
    if HELD:
        # Many loads at once, since each waits long.
        for first in tl.static_range(0, WIDTH, S.INNER * S.AT_ONCE):
            left = tiles(rows, real_row, first, min(WIDTH, first + S.INNER * S.AT_ONCE), WIDTH, ".cg", S)
            for j in tl.static_range(len(left)):
                right = held[first // S.INNER + j]
                total = tl.dot(left[j].to(right.dtype), right.T, total, input_precision=S.PRECISION)
    else:
        for inner in tl.range(0, WIDTH, S.INNER, num_stages=S.STAGES):
            i = inner + tl.arange(0, S.INNER)
            real_i = (i < WIDTH)[None, :]
            left = tl.load(
                rows[:, None] + i[None, :], mask=real_row[:, None] & real_i, other=0.0, cache_modifier=".cg"
            )
            place = (column * WIDTH)[:, None] + i[None, :]
            right = tl.load(W + place, mask=real_column[:, None] & real_i, other=0.0)
            total = tl.dot(left.to(right.dtype), right.T, total, input_precision=S.PRECISION)
    return total


@triton.jit
def compose(a, b, length, t, start, held, S: tl.constexpr):
    """Some columns of c_t for the sequences b."""
    D: tl.constexpr = S.X
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    column = start + tl.arange(0, S.COLUMNS)
    real = column < D
    both = running[:, None] & real[None, :]
    place = (step * D)[:, None] + column[None, :]
    c = tl.load(a.ahead + place, mask=both, other=0.0)
    c = add_product(
        c, a.m + step * (S.MEMORIES * S.K), running, a.W_m, column, real, held, S.MEMORIES * S.K, S.HELD_M, S
    )
    if S.MASKED:
        c *= tl.load(a.mask + place, mask=both, other=0.0)
    tl.store(a.c + place, c, mask=both)  # (eq. 4, 12)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x):
    """By exp, of a number that is never large."""
    e = tl.exp(-2 * tl.abs(x))
    magnitude = (1 - e) / (1 + e)
    return tl.where(x < 0, -magnitude, magnitude)


@triton.jit
def gate_columns(start, S: tl.constexpr):
    """The columns of the gates of some units, the four of a unit side by side, and which are real."""
    lane = tl.arange(0, 4 * S.UNITS)
    unit = start + lane // 4
    return (lane % 4) * S.K + unit, unit < S.K


@triton.jit
def gates_before_x(a, b, length, t, start, held, S: tl.constexpr):
    """Of some units, the part of the gates that is known before what was read from the memories."""
    column, real = gate_columns(start, S)
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    if S.FOLDED:
        both = running[:, None] & real[None, :]
        gates = tl.load(a.ahead + (step * (4 * S.K))[:, None] + column[None, :], mask=both, other=0.0)
    else:
        gates = tl.zeros([S.ROWS, 4 * S.UNITS], tl.float32)
        gates += tl.load(a.bias + column, mask=real, other=0.0)[None, :]
    return add_product(gates, a.H + (step + b) * S.K, running, a.W_h, column, real, held, S.K, S.HELD_H, S)


@triton.jit
def finish_write(a, b, length, t, start, gates, held, S: tl.constexpr):
    """Some units of the LSTM at step t, from their gates without x."""
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    unit = start + tl.arange(0, S.UNITS)
    both = running[:, None] & (unit < S.K)[None, :]
    before = ((step + b) * S.K)[:, None] + unit[None, :]
    c = tl.load(a.C + before, mask=both, other=0.0)
    if S.X > 0:
        column, real = gate_columns(start, S)
        if S.FOLDED:
            x = a.m + step * S.X
        else:
            x = a.c + step * S.X
        gates = add_product(gates, x, running, a.W_x, column, real, held, S.X, S.HELD_X, S)
    even, odd = tl.split(tl.reshape(gates, [S.ROWS, S.UNITS, 2, 2]))
    i, g = tl.split(even)
    f, o = tl.split(odd)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    c = f * c + i * g
    tl.store(a.H + before + S.K, o * tanh(c), mask=both)  # (eq. 1, 5, 7, 13)
    tl.store(a.C + before + S.K, c, mask=both)
    if S.KEEP:
        place = a.gates + (step * (4 * S.K))[:, None] + unit[None, :]
        tl.store(place, i, mask=both)
        tl.store(place + S.K, f, mask=both)
        tl.store(place + 2 * S.K, g, mask=both)
        tl.store(place + 3 * S.K, o, mask=both)


@triton.jit
def write(a, b, length, t, start, held_x, held_h, S: tl.constexpr):
    """Some units of the LSTM at step t for the sequences b."""
    gates = gates_before_x(a, b, length, t, start, held_h, S)
    finish_write(a, b, length, t, start, gates, held_x, S)


@triton.jit
def cell(a, b, t, dh, S: tl.constexpr):
    """Back through the LSTM's cell at step t of sequence b: the gradient of its gates."""
    if (t >= 0) & (t < tl.load(a.lengths + b)):
        unit = tl.arange(0, S.BLOCK_K)
        real = unit < S.K
        step = (b * a.T + t).to(tl.int64)
        place = step * (4 * S.K) + unit
        after = (step + b + 1) * S.K + unit
        i = tl.load(a.gates + place, mask=real, other=0.0)
        f = tl.load(a.gates + place + S.K, mask=real, other=0.0)
        g = tl.load(a.gates + place + 2 * S.K, mask=real, other=0.0)
        o = tl.load(a.gates + place + 3 * S.K, mask=real, other=0.0)
        c_before = tl.load(a.C + after - S.K, mask=real, other=0.0)
        tanh_c = tanh(tl.load(a.C + after, mask=real, other=0.0))
        dc = tl.load(a.dc + ((t + 1) % 2 * a.B + b) * S.K + unit, mask=real, other=0.0)
        dh += tl.load(a.d_H + after, mask=real, other=0.0)
        dh += tl.load(a.dh + b * S.K + unit, mask=real, other=0.0, cache_modifier=".cg")
        dc += dh * o * (1 - tanh_c * tanh_c)
        if S.CELLS:
            dc += tl.load(a.d_C + after, mask=real, other=0.0)
        tl.store(a.da + place, dc * g * i * (1 - i), mask=real)
        tl.store(a.da + place + S.K, dc * c_before * f * (1 - f), mask=real)
        tl.store(a.da + place + 2 * S.K, dc * i * (1 - g * g), mask=real)
        tl.store(a.da + place + 3 * S.K, dh * tanh_c * o * (1 - o), mask=real)
        tl.store(a.dc + (t % 2 * a.B + b) * S.K + unit, dc * f, mask=real)


@triton.jit
def cell_columns(a, b, length, t, start, dh, dc, S: tl.constexpr):
    """As `cell`, for some units of the sequences b, from the gradients dh and dc that come from later steps.

    Returns:
        dc for the step before; unchanged for sequences that have ended.
    """
    running = (t < length)[:, None]
    unit = start + tl.arange(0, S.COLUMNS)
    real = running & (unit < S.K)[None, :]
    step = (b * a.T + t).to(tl.int64)
    place = a.gates + (step * (4 * S.K))[:, None] + unit[None, :]
    after = ((step + b + 1) * S.K)[:, None] + unit[None, :]
    i = tl.load(place, mask=real, other=0.0)
    f = tl.load(place + S.K, mask=real, other=0.0)
    g = tl.load(place + 2 * S.K, mask=real, other=0.0)
    o = tl.load(place + 3 * S.K, mask=real, other=0.0)
    c_before = tl.load(a.C + after - S.K, mask=real, other=0.0)
    tanh_c = tanh(tl.load(a.C + after, mask=real, other=0.0))
    dh += tl.load(a.d_H + after, mask=real, other=0.0)
    dc_now = dc + dh * o * (1 - tanh_c * tanh_c)
    if S.CELLS:
        dc_now += tl.load(a.d_C + after, mask=real, other=0.0)
    place = a.da + (step * (4 * S.K))[:, None] + unit[None, :]
    tl.store(place, dc_now * g * i * (1 - i), mask=real)
    tl.store(place + S.K, dc_now * c_before * f * (1 - f), mask=real)
    tl.store(place + 2 * S.K, dc_now * i * (1 - g * g), mask=real)
    tl.store(place + 3 * S.K, dh * tanh_c * o * (1 - o), mask=real)
    return tl.where(running, dc_now * f, dc)


@triton.jit
def write_back(a, b, length, t, start, held, S: tl.constexpr):
    """From the gates to some columns of what the LSTM read: x_t and h_{t-1}."""
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    column = start + tl.arange(0, S.COLUMNS)
    real = column < S.X + S.K
    d = tl.zeros([S.ROWS, S.COLUMNS], tl.float32)
    d = add_product(d, a.da + step * (4 * S.K), running, a.W_T, column, real, held, 4 * S.K, S.HELD_X, S)
    of_h = running[:, None] & (real & (column >= S.X))[None, :]
    tl.store(a.dh + (b * S.K)[:, None] + (column - S.X)[None, :], d, mask=of_h)
    if S.X > 0:
        of_x = running[:, None] & (column < S.X)[None, :]
        place = (step * S.X)[:, None] + column[None, :]
        if S.MASKED:
            d *= tl.load(a.mask + place, mask=of_x, other=0.0)
        tl.store(a.dx + place, d, mask=of_x)


@triton.jit
def compose_back(a, b, length, t, start, held, S: tl.constexpr):
    """From c_t to some columns of m_t."""
    ALL: tl.constexpr = S.MEMORIES * S.K
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    column = start + tl.arange(0, S.COLUMNS_M)
    real = column < ALL
    dm = tl.zeros([S.ROWS, S.COLUMNS_M], tl.float32)
    dm = add_product(dm, a.dx + step * S.X, running, a.W_mT, column, real, held, S.X, S.HELD_M, S)
    tl.store(a.dm + (step * ALL)[:, None] + column[None, :], dm, mask=running[:, None] & real[None, :])
