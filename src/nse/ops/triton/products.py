"""Phases of a step that multiply by weights, forward and backward, as Triton functions for a group.

A slice of each weight matrix (some of its output columns) belongs to one program, for all sequences of its
group. If it fits, the program holds it in shared memory from step to step.

Values that another program wrote are loaded with `.cg`, past the first-level cache.
"""

import triton
import triton.language as tl


@triton.jit
def load_tiles(
    rows,
    real_row,
    START: tl.constexpr,
    END: tl.constexpr,
    WIDTH: tl.constexpr,
    CACHE: tl.constexpr,
    S: tl.constexpr,
):
    """Load columns START to END of rows of WIDTH, in tiles of INNER columns; undefined beyond WIDTH."""
    i = START + tl.arange(0, S.INNER)
    real = real_row[:, None] & (i < WIDTH)[None, :]
    tile = tl.load(rows[:, None] + i[None, :], mask=real, cache_modifier=CACHE)
    if START + S.INNER >= END:
        return (tile,)
    else:
        return (tile,) + load_tiles(rows, real_row, START + S.INNER, END, WIDTH, CACHE, S)  # noqa: RUF005


@triton.jit
def mask_tiles(loaded, real_row, START: tl.constexpr, WIDTH: tl.constexpr, J: tl.constexpr, S: tl.constexpr):
    """Set the loaded tiles, from the J-th on, to zero outside the real rows and columns."""
    i = START + J * S.INNER + tl.arange(0, S.INNER)
    tile = tl.where(real_row[:, None] & (i < WIDTH)[None, :], loaded[J], 0.0)
    if len(loaded) <= J + 1:
        return (tile,)
    else:
        return (tile,) + mask_tiles(loaded, real_row, START, WIDTH, J + 1, S)  # noqa: RUF005


@triton.jit
def hold(W, column, real, WIDTH: tl.constexpr, HELD: tl.constexpr, S: tl.constexpr):
    """Load a slice of the weights W [*, WIDTH] to hold for all steps, if weights are held."""
    if HELD:
        return mask_tiles(load_tiles(W + column * WIDTH, real, 0, WIDTH, WIDTH, "", S), real, 0, WIDTH, 0, S)
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
    """Do as `hold` for each upper layer's weights W [*, ROWS, WIDTH], from this layer down."""
    held = hold(W + LAYER * (ROWS * WIDTH), column, real, WIDTH, HELD, S)
    if LAYER + 2 >= S.LAYERS:
        return (held,)
    else:
        return (held,) + hold_upper(W, column, real, ROWS, WIDTH, HELD, LAYER + 1, S)  # noqa: RUF005


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
    """Compute total + rows W^T for rows of WIDTH and the output columns `column`."""
    if HELD:
        # Many loads at once, since each has a long latency; two sums in turn, since a product needs its sum.
        other = tl.zeros_like(total)
        for first in tl.static_range(0, WIDTH, S.INNER * S.AT_ONCE):
            left = load_tiles(rows, real_row, first, min(WIDTH, first + S.INNER * S.AT_ONCE), WIDTH, ".cg", S)
            tl.debug_barrier()  # or the compiler would delay some of the loads, to save registers
            left = mask_tiles(left, real_row, first, WIDTH, 0, S)
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
            offset = (column * WIDTH)[:, None] + i[None, :]
            right = tl.load(W + offset, mask=real_column[:, None] & real_i, other=0.0)
            total = tl.dot(left.to(right.dtype), right.T, total, input_precision=S.PRECISION)
    return total


@triton.jit
def compose(a, b, length, t, start, held, S: tl.constexpr):
    """Compute some columns of c_t for the sequences b."""
    D: tl.constexpr = S.X
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    column = start + tl.arange(0, S.COLUMNS)
    real = column < D
    inside = running[:, None] & real[None, :]
    offset = (step * D)[:, None] + column[None, :]
    c = tl.load(a.hoisted + offset, mask=inside, other=0.0)
    if S.MASKED:  # loaded before the product, to wait for it only once
        mask = tl.load(a.mask + offset, mask=inside, other=0.0)
    c = add_product(
        c, a.m + step * (S.MEMORIES * S.K), running, a.W_m, column, real, held, S.MEMORIES * S.K, S.HELD_M, S
    )
    if S.MASKED:
        c *= mask
    tl.store(a.c + offset, c, mask=inside)  # (eq. 4, 12)


@triton.jit
def sigmoid(x):
    """Compute 1 / (1 + exp(-x))."""
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x):
    """Compute tanh by exp of a number that is never positive, which cannot overflow."""
    e = tl.exp(-2 * tl.abs(x))
    magnitude = (1 - e) / (1 + e)
    return tl.where(x < 0, -magnitude, magnitude)


@triton.jit
def find_gate_columns(start, S: tl.constexpr):
    """Return the gate columns of some units, four side by side per unit, and which of them are real."""
    lane = tl.arange(0, 4 * S.UNITS)
    unit = start + lane // 4
    return (lane % 4) * S.K + unit, unit < S.K


@triton.jit
def start_gates(a, b, length, t, start, held, S: tl.constexpr):
    """Compute the part of some units' gates that does not depend on m_t."""
    column, real = find_gate_columns(start, S)
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    if S.FOLDED:
        inside = running[:, None] & real[None, :]
        gates = tl.load(a.hoisted + (step * (4 * S.K))[:, None] + column[None, :], mask=inside, other=0.0)
    else:
        gates = tl.zeros([S.ROWS, 4 * S.UNITS], tl.float32)
        gates += tl.load(a.bias + column, mask=real, other=0.0)[None, :]
    before = a.H + (step + b + (S.LAYERS - 1) * a.B * (a.T + 1)) * S.K
    return add_product(gates, before, running, a.W_h, column, real, held, S.K, S.HELD_H, S)


@triton.jit
def finish_write(a, b, length, t, start, gates, held, S: tl.constexpr):
    """Compute some units of the LSTM's first layer at step t, given their gates without x."""
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    unit = start + tl.arange(0, S.UNITS)
    inside = running[:, None] & (unit < S.K)[None, :]
    before = ((step + b + (S.LAYERS - 1) * a.B * (a.T + 1)) * S.K)[:, None] + unit[None, :]
    c = tl.load(a.C + before, mask=inside, other=0.0)
    if S.X > 0:
        column, real = find_gate_columns(start, S)
        if S.FOLDED:
            x = a.m + step * S.X
        else:
            x = a.c + step * S.X
        gates = add_product(gates, x, running, a.W_x, column, real, held, S.X, S.HELD_X, S)
    activate(
        a,
        before,
        ((step + (S.LAYERS - 1) * a.B * a.T) * (4 * S.K))[:, None] + unit[None, :],
        inside,
        gates,
        c,
        S,
    )


@triton.jit
def activate(a, before, offset, inside, gates, c, S: tl.constexpr):
    """Compute and store h and the new cell state from the gates and the last cell state.

    Args:
        a: Arguments of the kernel.
        before: Offsets in H and C of the last step.
        offset: Offsets of the first gate in the kept gates.
        inside: Mask of real rows and units.
        gates: Before their activation, four side by side per unit.
        c: Last cell state.
        S: Sizes.
    """
    even, odd = tl.split(tl.reshape(gates, [S.ROWS, S.UNITS, 2, 2]))
    i, g = tl.split(even)
    f, o = tl.split(odd)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    c = f * c + i * g
    tl.store(a.H + before + S.K, o * tanh(c), mask=inside)  # (eq. 1, 5, 7, 13)
    tl.store(a.C + before + S.K, c, mask=inside)
    if S.KEEP:
        tl.store(a.gates + offset, i, mask=inside)
        tl.store(a.gates + offset + S.K, f, mask=inside)
        tl.store(a.gates + offset + 2 * S.K, g, mask=inside)
        tl.store(a.gates + offset + 3 * S.K, o, mask=inside)


@triton.jit
def write(a, b, length, t, start, held_x, held_h, S: tl.constexpr):
    """Compute some units of the LSTM's first layer at step t for the sequences b."""
    gates = start_gates(a, b, length, t, start, held_h, S)
    finish_write(a, b, length, t, start, gates, held_x, S)


@triton.jit
def start_upper_gates(a, b, length, t, start, layer, held, S: tl.constexpr):
    """Compute the part of some units' gates in an upper layer that does not depend on the layer below."""
    column, real = find_gate_columns(start, S)
    gates = tl.zeros([S.ROWS, 4 * S.UNITS], tl.float32)
    gates += tl.load(a.bias_up + layer * (4 * S.K) + column, mask=real, other=0.0)[None, :]
    before = a.H + ((b + layer * a.B) * (a.T + 1) + t).to(tl.int64) * S.K
    W_h = a.W_up_h + layer * (4 * S.K * S.K)
    return add_product(gates, before, t < length, W_h, column, real, held, S.K, S.HELD_UP_H, S)


@triton.jit
def finish_upper(a, b, length, t, start, layer, gates, held, S: tl.constexpr):
    """Compute some units of an upper layer at step t, given their gates without the layer below."""
    running = t < length
    row = b + layer * a.B
    unit = start + tl.arange(0, S.UNITS)
    inside = running[:, None] & (unit < S.K)[None, :]
    step = (row * a.T + t).to(tl.int64)
    before = ((step + row) * S.K)[:, None] + unit[None, :]
    c = tl.load(a.C + before, mask=inside, other=0.0)
    column, real = find_gate_columns(start, S)
    below = a.H + ((row + a.B) * (a.T + 1) + t + 1).to(tl.int64) * S.K
    W_x = a.W_up_x + layer * (4 * S.K * S.K)
    gates = add_product(gates, below, running, W_x, column, real, held, S.K, S.HELD_UP_X, S)
    activate(a, before, (step * (4 * S.K))[:, None] + unit[None, :], inside, gates, c, S)


@triton.jit
def write_upper(a, b, length, t, start, layer, held_x, held_h, S: tl.constexpr):
    """Compute some units of an upper layer at step t for the sequences b."""
    gates = start_upper_gates(a, b, length, t, start, layer, held_h, S)
    finish_upper(a, b, length, t, start, layer, gates, held_x, S)


@triton.jit
def backprop_top_cell(a, b, t, dh, S: tl.constexpr):
    """Compute the gradient of the top layer's gates at step t of sequence b, given that of h."""
    if (t >= 0) & (t < tl.load(a.lengths + b)):
        unit = tl.arange(0, S.BLOCK_K)
        real = unit < S.K
        step = (b * a.T + t).to(tl.int64)
        offset = step * (4 * S.K) + unit
        after = (step + b + 1) * S.K + unit
        i = tl.load(a.gates + offset, mask=real, other=0.0)
        f = tl.load(a.gates + offset + S.K, mask=real, other=0.0)
        g = tl.load(a.gates + offset + 2 * S.K, mask=real, other=0.0)
        o = tl.load(a.gates + offset + 3 * S.K, mask=real, other=0.0)
        c_before = tl.load(a.C + after - S.K, mask=real, other=0.0)
        tanh_c = tanh(tl.load(a.C + after, mask=real, other=0.0))
        dc = tl.load(a.dc + ((t + 1) % 2 * (S.LAYERS * a.B) + b) * S.K + unit, mask=real, other=0.0)
        dh += tl.load(a.d_H + after, mask=real, other=0.0)
        dh += tl.load(a.dh + b * S.K + unit, mask=real, other=0.0, cache_modifier=".cg")
        dc += dh * o * (1 - tanh_c * tanh_c)
        if S.CELLS:
            dc += tl.load(a.d_C + after, mask=real, other=0.0)
        tl.store(a.da + offset, dc * g * i * (1 - i), mask=real)
        tl.store(a.da + offset + S.K, dc * c_before * f * (1 - f), mask=real)
        tl.store(a.da + offset + 2 * S.K, dc * i * (1 - g * g), mask=real)
        tl.store(a.da + offset + 3 * S.K, dh * tanh_c * o * (1 - o), mask=real)
        tl.store(a.dc + (t % 2 * (S.LAYERS * a.B) + b) * S.K + unit, dc * f, mask=real)


@triton.jit
def load_cell(a, b, t, unit, real, S: tl.constexpr):
    """Load the values of an LSTM cell at step t that do not depend on gradients of later steps.

    Returns:
        The four gates, the cell state before, tanh of the cell state after, and the gradients of h and of the
        cell state from outside.
    """
    step = (b * a.T + t).to(tl.int64)
    pointer = a.gates + (step * (4 * S.K))[:, None] + unit[None, :]
    after = ((step + b + 1) * S.K)[:, None] + unit[None, :]
    i = tl.load(pointer, mask=real, other=0.0)
    f = tl.load(pointer + S.K, mask=real, other=0.0)
    g = tl.load(pointer + 2 * S.K, mask=real, other=0.0)
    o = tl.load(pointer + 3 * S.K, mask=real, other=0.0)
    c_before = tl.load(a.C + after - S.K, mask=real, other=0.0)
    tanh_c = tanh(tl.load(a.C + after, mask=real, other=0.0))
    d_h = tl.load(a.d_H + after, mask=real, other=0.0)
    if S.CELLS:
        d_c = tl.load(a.d_C + after, mask=real, other=0.0)
    else:
        d_c = tl.zeros_like(d_h)
    return i, f, g, o, c_before, tanh_c, d_h, d_c


@triton.jit
def backprop_cell(a, b, t, unit, real, values, dh, dc, S: tl.constexpr):
    """Store the gradient of a cell's gates, given the cell's values and the gradients of h and c.

    Returns:
        dc for the step before.
    """
    i, f, g, o, c_before, tanh_c, d_h, d_c = values
    step = (b * a.T + t).to(tl.int64)
    dh += d_h
    dc_t = dc + d_c + dh * o * (1 - tanh_c * tanh_c)
    pointer = a.da + (step * (4 * S.K))[:, None] + unit[None, :]
    tl.store(pointer, dc_t * g * i * (1 - i), mask=real)
    tl.store(pointer + S.K, dc_t * c_before * f * (1 - f), mask=real)
    tl.store(pointer + 2 * S.K, dc_t * i * (1 - g * g), mask=real)
    tl.store(pointer + 3 * S.K, dh * tanh_c * o * (1 - o), mask=real)
    return dc_t * f


@triton.jit
def load_cell_below(a, b, length, t, start, layer, S: tl.constexpr):
    """Load the values of some cells of the layer below an upper one, and their gradients from later steps.

    Returns:
        What `load_cell` returns, and the gradients of h and of the cell state from later steps.
    """
    row = b + (layer + 1) * a.B
    unit = start + tl.arange(0, S.COLUMNS_UP)
    real = (t < length)[:, None] & (unit < S.K)[None, :]
    offset = (row * S.K)[:, None] + unit[None, :]
    dh = tl.load(a.dh + offset, mask=real, other=0.0, cache_modifier=".cg")
    dc = tl.load(a.dc + (t + 1) % 2 * (S.LAYERS * a.B * S.K) + offset, mask=real, other=0.0)
    return load_cell(a, row, t, unit, real, S), dh, dc


@triton.jit
def upper_back(a, b, length, t, start, layer, loaded, held, S: tl.constexpr):
    """Compute columns of the gradient of an upper layer's inputs: h_t of the layer below, its own h_{t-1}.

    Also run the backward pass of the cell of the layer below, which needs only these units.
    """
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    column = start + tl.arange(0, S.COLUMNS_UP)
    real = column < 2 * S.K
    da = a.da + (step + layer * a.B * a.T) * (4 * S.K)
    W_T = a.W_upT + layer * (8 * S.K * S.K)
    d = tl.zeros([S.ROWS, S.COLUMNS_UP], tl.float32)
    d = add_product(d, da, running, W_T, column, real, held, 4 * S.K, S.HELD_UP_X, S)
    h_mask = running[:, None] & (real & (column >= S.K))[None, :]
    tl.store(a.dh + ((b + layer * a.B) * S.K)[:, None] + (column - S.K)[None, :], d, mask=h_mask)
    below = b + (layer + 1) * a.B
    below_mask = running[:, None] & (column < S.K)[None, :]
    values, dh, dc = loaded
    dc = backprop_cell(a, below, t, column, below_mask, values, d + dh, dc, S)
    offset = (below * S.K)[:, None] + column[None, :]
    tl.store(a.dc + t % 2 * (S.LAYERS * a.B * S.K) + offset, dc, mask=below_mask)


@triton.jit
def write_back(a, b, length, t, start, held, S: tl.constexpr):
    """Compute some columns of the gradient of the first layer's inputs: x_t and h_{t-1}."""
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    column = start + tl.arange(0, S.COLUMNS)
    real = column < S.X + S.K
    x_mask = running[:, None] & (column < S.X)[None, :]
    offset = (step * S.X)[:, None] + column[None, :]
    if S.MASKED:  # before the product, as in `compose`
        mask = tl.load(a.mask + offset, mask=x_mask, other=0.0)
    d = tl.zeros([S.ROWS, S.COLUMNS], tl.float32)
    da = a.da + (step + (S.LAYERS - 1) * a.B * a.T) * (4 * S.K)
    d = add_product(d, da, running, a.W_T, column, real, held, 4 * S.K, S.HELD_X, S)
    h_mask = running[:, None] & (real & (column >= S.X))[None, :]
    row = b + (S.LAYERS - 1) * a.B
    tl.store(a.dh + (row * S.K)[:, None] + (column - S.X)[None, :], d, mask=h_mask)
    if S.X > 0:
        if S.MASKED:
            d *= mask
        tl.store(a.dx + offset, d, mask=x_mask)


@triton.jit
def compose_back(a, b, length, t, start, held, S: tl.constexpr):
    """Compute some columns of the gradient of m_t from that of c_t."""
    ALL: tl.constexpr = S.MEMORIES * S.K
    running = t < length
    step = (b * a.T + t).to(tl.int64)
    column = start + tl.arange(0, S.COLUMNS_M)
    real = column < ALL
    dm = tl.zeros([S.ROWS, S.COLUMNS_M], tl.float32)
    dm = add_product(dm, a.dx + step * S.X, running, a.W_mT, column, real, held, S.X, S.HELD_M, S)
    tl.store(a.dm + (step * ALL)[:, None] + column[None, :], dm, mask=running[:, None] & real[None, :])
