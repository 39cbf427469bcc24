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
    """The columns from START to END of rows of WIDTH numbers, in tiles of INNER columns; anything beyond."""
    i = START + tl.arange(0, S.INNER)
    real = real_row[:, None] & (i < WIDTH)[None, :]
    tile = tl.load(rows[:, None] + i[None, :], mask=real, cache_modifier=CACHE)
    if START + S.INNER >= END:
        return (tile,)
    else:
        return (tile,) + tiles(rows, real_row, START + S.INNER, END, WIDTH, CACHE, S)  # noqa: RUF005


@triton.jit
def zero_beyond(loaded, real_row, START: tl.constexpr, WIDTH: tl.constexpr, J: tl.constexpr, S: tl.constexpr):
    """Tiles as loaded, from the J-th on, with zeros beyond the rows and columns that there are."""
    i = START + J * S.INNER + tl.arange(0, S.INNER)
    tile = tl.where(real_row[:, None] & (i < WIDTH)[None, :], loaded[J], 0.0)
    if len(loaded) <= J + 1:
        return (tile,)
    else:
        return (tile,) + zero_beyond(loaded, real_row, START, WIDTH, J + 1, S)  # noqa: RUF005


@triton.jit
def hold(W, column, real, WIDTH: tl.constexpr, HELD: tl.constexpr, S: tl.constexpr):
    """A slice of the weights W [*, WIDTH], for all steps; nothing where none is held."""
    if HELD:
        return zero_beyond(tiles(W + column * WIDTH, real, 0, WIDTH, WIDTH, "", S), real, 0, WIDTH, 0, S)
    else:
        return (0,)


@triton.jit
def hold_upper(
    W,
    column,
    real,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    HELD: tl.constexpr,
    LAYER: tl.constexpr,
    S: tl.constexpr,
):
    """As `hold`, a slice of each upper layer's weights W [*, ROWS, WIDTH], from this layer down."""
    this = hold(W + LAYER * (ROWS * WIDTH), column, real, WIDTH, HELD, S)
    if LAYER + 2 >= S.LAYERS:
        return (this,)
    else:
        return (this,) + hold_upper(W, column, real, ROWS, WIDTH, HELD, LAYER + 1, S)  # noqa: RUF005


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
        # Many loads at once, since each waits long; two sums in turn, since a product waits for its sum.
        other = tl.zeros_like(total)
        for first in tl.static_range(0, WIDTH, S.INNER * S.AT_ONCE):
            left = tiles(rows, real_row, first, min(WIDTH, first + S.INNER * S.AT_ONCE), WIDTH, ".cg", S)
            tl.debug_barrier()  # or the compiler would put off some of the loads, to save registers
            left = zero_beyond(left, real_row, first, WIDTH, 0, S)
            for j in tl.static_range(len(left)):
                right = held[first // S.INNER + j]
                added = tl.dot(left[j].to(right.dtype), right.T, total, input_precision=S.PRECISION)
                total, other = other, added
        total += other
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
    if S.MASKED:  # loaded here, since after the product it would be waited for once more
        mask = tl.load(a.mask + place, mask=both, other=0.0)
    c = add_product(
        c, a.m + step * (S.MEMORIES * S.K), running, a.W_m, column, real, held, S.MEMORIES * S.K, S.HELD_M, S
    )
    if S.MASKED:
        c *= mask
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
    before = a.H + (step + b + (S.LAYERS - 1) * a.B * (a.T + 1)) * S.K
    return add_product(gates, before, running, a.W_h, column, real, held, S.K, S.HELD_H, S)


@triton.jit
def finish_write(a, b, length, t, start, gates, held, S: tl.constexpr):
    """Some units of the LSTM's first layer at step t, from their gates without x."""
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    unit = start + tl.arange(0, S.UNITS)
    both = running[:, None] & (unit < S.K)[None, :]
    before = ((step + b + (S.LAYERS - 1) * a.B * (a.T + 1)) * S.K)[:, None] + unit[None, :]
    c = tl.load(a.C + before, mask=both, other=0.0)
    if S.X > 0:
        column, real = gate_columns(start, S)
        if S.FOLDED:
            x = a.m + step * S.X
        else:
            x = a.c + step * S.X
        gates = add_product(gates, x, running, a.W_x, column, real, held, S.X, S.HELD_X, S)
    activate(
        a,
        before,
        ((step + (S.LAYERS - 1) * a.B * a.T) * (4 * S.K))[:, None] + unit[None, :],
        both,
        gates,
        c,
        S,
    )


@triton.jit
def activate(a, before, place, both, gates, c, S: tl.constexpr):
    """From gates and the cell state c before to h and the new one.

    Args:
        a: Where all is.
        before: Places in H and C of the step before.
        place: Places in the kept gates, of the first one.
        both: Which rows and units are real.
        gates: Before their activation, the four of a unit side by side.
        c: The cell state before.
        S: Sizes.
    """
    even, odd = tl.split(tl.reshape(gates, [S.ROWS, S.UNITS, 2, 2]))
    i, g = tl.split(even)
    f, o = tl.split(odd)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    c = f * c + i * g
    tl.store(a.H + before + S.K, o * tanh(c), mask=both)  # (eq. 1, 5, 7, 13)
    tl.store(a.C + before + S.K, c, mask=both)
    if S.KEEP:
        tl.store(a.gates + place, i, mask=both)
        tl.store(a.gates + place + S.K, f, mask=both)
        tl.store(a.gates + place + 2 * S.K, g, mask=both)
        tl.store(a.gates + place + 3 * S.K, o, mask=both)


@triton.jit
def write(a, b, length, t, start, held_x, held_h, S: tl.constexpr):
    """Some units of the LSTM's first layer at step t for the sequences b."""
    gates = gates_before_x(a, b, length, t, start, held_h, S)
    finish_write(a, b, length, t, start, gates, held_x, S)


@triton.jit
def gates_before_below(a, b, length, t, start, layer, held, S: tl.constexpr):
    """Of some units of an upper layer, the part of the gates that is known before the layer below."""
    column, real = gate_columns(start, S)
    gates = tl.zeros([S.ROWS, 4 * S.UNITS], tl.float32)
    gates += tl.load(a.bias_up + layer * (4 * S.K) + column, mask=real, other=0.0)[None, :]
    before = a.H + ((b + layer * a.B) * (a.T + 1) + t).to(tl.int64) * S.K
    W_h = a.W_up_h + layer * (4 * S.K * S.K)
    return add_product(gates, before, t < length, W_h, column, real, held, S.K, S.HELD_UP_H, S)


@triton.jit
def finish_upper(a, b, length, t, start, layer, gates, held, S: tl.constexpr):
    """Some units of an upper layer at step t, from their gates without what the layer below gives."""
    running = t < length
    row = b + layer * a.B
    unit = start + tl.arange(0, S.UNITS)
    both = running[:, None] & (unit < S.K)[None, :]
    step = (row * a.T + t).to(tl.int64)
    before = ((step + row) * S.K)[:, None] + unit[None, :]
    c = tl.load(a.C + before, mask=both, other=0.0)
    column, real = gate_columns(start, S)
    below = a.H + ((row + a.B) * (a.T + 1) + t + 1).to(tl.int64) * S.K
    W_x = a.W_up_x + layer * (4 * S.K * S.K)
    gates = add_product(gates, below, running, W_x, column, real, held, S.K, S.HELD_UP_X, S)
    activate(a, before, (step * (4 * S.K))[:, None] + unit[None, :], both, gates, c, S)


@triton.jit
def write_upper(a, b, length, t, start, layer, held_x, held_h, S: tl.constexpr):
    """Some units of an upper layer at step t for the sequences b."""
    gates = gates_before_below(a, b, length, t, start, layer, held_h, S)
    finish_upper(a, b, length, t, start, layer, gates, held_x, S)


@triton.jit
def cell(a, b, t, dh, S: tl.constexpr):
    """Back through the top layer's cell at step t of sequence b: the gradient of its gates."""
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
        dc = tl.load(a.dc + ((t + 1) % 2 * (S.LAYERS * a.B) + b) * S.K + unit, mask=real, other=0.0)
        dh += tl.load(a.d_H + after, mask=real, other=0.0)
        dh += tl.load(a.dh + b * S.K + unit, mask=real, other=0.0, cache_modifier=".cg")
        dc += dh * o * (1 - tanh_c * tanh_c)
        if S.CELLS:
            dc += tl.load(a.d_C + after, mask=real, other=0.0)
        tl.store(a.da + place, dc * g * i * (1 - i), mask=real)
        tl.store(a.da + place + S.K, dc * c_before * f * (1 - f), mask=real)
        tl.store(a.da + place + 2 * S.K, dc * i * (1 - g * g), mask=real)
        tl.store(a.da + place + 3 * S.K, dh * tanh_c * o * (1 - o), mask=real)
        tl.store(a.dc + (t % 2 * (S.LAYERS * a.B) + b) * S.K + unit, dc * f, mask=real)


@triton.jit
def cell_values(a, b, t, unit, real, S: tl.constexpr):
    """What is known of an LSTM's cell at step t before the gradients of later steps, for some units and rows.

    Returns:
        Its four gates, the cell state before it, tanh of the one after it, and what came back from outside
        for h and for the cell state.
    """
    step = (b * a.T + t).to(tl.int64)
    place = a.gates + (step * (4 * S.K))[:, None] + unit[None, :]
    after = ((step + b + 1) * S.K)[:, None] + unit[None, :]
    i = tl.load(place, mask=real, other=0.0)
    f = tl.load(place + S.K, mask=real, other=0.0)
    g = tl.load(place + 2 * S.K, mask=real, other=0.0)
    o = tl.load(place + 3 * S.K, mask=real, other=0.0)
    c_before = tl.load(a.C + after - S.K, mask=real, other=0.0)
    tanh_c = tanh(tl.load(a.C + after, mask=real, other=0.0))
    d_h = tl.load(a.d_H + after, mask=real, other=0.0)
    if S.CELLS:
        d_c = tl.load(a.d_C + after, mask=real, other=0.0)
    else:
        d_c = tl.zeros_like(d_h)
    return i, f, g, o, c_before, tanh_c, d_h, d_c


@triton.jit
def cell_gradients(a, b, t, unit, real, values, dh, dc, S: tl.constexpr):
    """Back through a cell of which these values are known; stores the gradient of its gates.

    Returns:
        dc for the step before.
    """
    i, f, g, o, c_before, tanh_c, d_h, d_c = values
    step = (b * a.T + t).to(tl.int64)
    dh += d_h
    dc_now = dc + d_c + dh * o * (1 - tanh_c * tanh_c)
    place = a.da + (step * (4 * S.K))[:, None] + unit[None, :]
    tl.store(place, dc_now * g * i * (1 - i), mask=real)
    tl.store(place + S.K, dc_now * c_before * f * (1 - f), mask=real)
    tl.store(place + 2 * S.K, dc_now * i * (1 - g * g), mask=real)
    tl.store(place + 3 * S.K, dh * tanh_c * o * (1 - o), mask=real)
    return dc_now * f


@triton.jit
def values_below(a, b, length, t, start, layer, S: tl.constexpr):
    """Of some units of the layer below an upper one, what is known of its cell before that one's gradient.

    Returns:
        The cell's values, and the gradients of its h and of its cell state that come from later steps.
    """
    row = b + (layer + 1) * a.B
    unit = start + tl.arange(0, S.COLUMNS_UP)
    real = (t < length)[:, None] & (unit < S.K)[None, :]
    place = (row * S.K)[:, None] + unit[None, :]
    dh = tl.load(a.dh + place, mask=real, other=0.0, cache_modifier=".cg")
    dc = tl.load(a.dc + (t + 1) % 2 * (S.LAYERS * a.B * S.K) + place, mask=real, other=0.0)
    return cell_values(a, row, t, unit, real, S), dh, dc


@triton.jit
def upper_back(a, b, length, t, start, layer, known, held, S: tl.constexpr):
    """From an upper layer's gates to some columns of what it read: h_t of the layer below, its own h_{t-1}.

    The former goes on through the cell of that layer, which needs no sequence as a whole.
    """
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    column = start + tl.arange(0, S.COLUMNS_UP)
    real = column < 2 * S.K
    da = a.da + (step + layer * a.B * a.T) * (4 * S.K)
    W_T = a.W_upT + layer * (8 * S.K * S.K)
    d = tl.zeros([S.ROWS, S.COLUMNS_UP], tl.float32)
    d = add_product(d, da, running, W_T, column, real, held, 4 * S.K, S.HELD_UP_X, S)
    of_h = running[:, None] & (real & (column >= S.K))[None, :]
    tl.store(a.dh + ((b + layer * a.B) * S.K)[:, None] + (column - S.K)[None, :], d, mask=of_h)
    below = b + (layer + 1) * a.B
    of_below = running[:, None] & (column < S.K)[None, :]
    values, dh, dc = known
    dc = cell_gradients(a, below, t, column, of_below, values, d + dh, dc, S)
    place = (below * S.K)[:, None] + column[None, :]
    tl.store(a.dc + t % 2 * (S.LAYERS * a.B * S.K) + place, dc, mask=of_below)


@triton.jit
def write_back(a, b, length, t, start, held, S: tl.constexpr):
    """From the first layer's gates to some columns of what it read: x_t and h_{t-1}."""
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    column = start + tl.arange(0, S.COLUMNS)
    real = column < S.X + S.K
    of_x = running[:, None] & (column < S.X)[None, :]
    place = (step * S.X)[:, None] + column[None, :]
    if S.MASKED:  # before the product, as in `compose`
        mask = tl.load(a.mask + place, mask=of_x, other=0.0)
    d = tl.zeros([S.ROWS, S.COLUMNS], tl.float32)
    da = a.da + (step + (S.LAYERS - 1) * a.B * a.T) * (4 * S.K)
    d = add_product(d, da, running, a.W_T, column, real, held, 4 * S.K, S.HELD_X, S)
    of_h = running[:, None] & (real & (column >= S.X))[None, :]
    row = b + (S.LAYERS - 1) * a.B
    tl.store(a.dh + (row * S.K)[:, None] + (column - S.X)[None, :], d, mask=of_h)
    if S.X > 0:
        if S.MASKED:
            d *= mask
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
