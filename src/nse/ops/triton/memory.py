"""Phases of a step that touch the memory, forward and backward, as Triton functions.

A memory, or a part of a long one, belongs to one program. A short one stays in registers from step to step
(`attend_resident`) and is rebuilt there in the backward pass (`rebuild`, `recall_whole`); others are read in
blocks of slots (`attend`, `recall`).

Values that another program wrote are loaded with `.cg`, past the first-level cache.
"""

import triton
import triton.language as tl


@triton.jit
def find_first_slot(a, j: tl.constexpr):
    """Return the index of the first slot of memory j."""
    if j == 0:
        start = 0
    elif j == 1:
        start = a.L_0
    else:
        start = a.L_0 + a.L_1
    return start


@triton.jit
def find_part(slots, part, S: tl.constexpr):
    """Return the first slot of a part of a memory, and the one after its last."""
    size = tl.cdiv(slots, S.PARTS)
    return tl.minimum(part * size, slots), tl.minimum(part * size + size, slots)


@triton.jit
def load_softmax(a, b, j, t, S: tl.constexpr):
    """Return the highest score of step t, and 1 / sum(exp(score - highest)), over all parts of memory j."""
    offset = (((t % 2) * a.B + b) * S.MEMORIES + j) * S.PARTS + tl.arange(0, S.PARTS)
    tops = tl.load(a.tops + offset, cache_modifier=".cg")
    totals = tl.load(a.totals + offset, cache_modifier=".cg")
    top = tl.max(tops, axis=0)
    total = tl.sum(tl.where(totals > 0, totals * tl.exp(tops - top), 0.0), axis=0)
    return top, 1 / tl.where(total > 0, total, 1.0)  # an empty memory reads as zero


@triton.jit
def attend(a, b, part, t, S: tl.constexpr):
    """Write h_{t-1} into a part of the memories of sequence b and read it with o_t, in one pass.

    Only the scores of z_t are known then; the write of h_t computes z_t from those of all parts.
    """
    length = tl.load(a.lengths + b)
    unit = tl.arange(0, S.BLOCK_K)
    real_unit = unit < S.K
    step = (b * a.T + t).to(tl.int64)
    if t <= length:
        o = tl.load(a.o + step * S.K + unit, mask=unit < tl.where(t < length, S.K, 0), other=0.0)
        h = tl.load(a.H + (step + b) * S.K + unit, mask=real_unit, other=0.0, cache_modifier=".cg")
        for j in tl.static_range(S.MEMORIES):
            start = find_first_slot(a, j)
            low, high = find_part(tl.load(a.slot_lengths + j * a.B + b), part, S)
            written = tl.where(t > 0, high, 0)  # slots before this one are written,
            read = tl.where(t < length, high, 0)  # and those before this one are read
            kept = tl.where(t % a.interval == 0, read, 0)
            memory = (b * a.L + start).to(tl.int64) * S.K
            piece = memory + (t // a.interval).to(tl.int64) * a.B * a.L * S.K
            keys = a.z + (step - 1) * a.L + start
            # Separate buffers to load and to store: several threads load the same number, at different times.
            scores = a.scores + ((t % 2) * a.B + b) * a.L + start
            scores_before = a.scores + (((t + 1) % 2) * a.B + b) * a.L + start
            top_before, scale_before = load_softmax(a, b, j, t + 1, S)
            top = float("-inf")
            total = 0.0
            m = tl.zeros([S.SLOTS, S.BLOCK_K], tl.float32)
            for s in range(low, high, S.SLOTS):
                slot = s + tl.arange(0, S.SLOTS)
                offset = (slot * S.K)[:, None] + unit[None, :]
                M = tl.load(
                    a.M + memory + offset, mask=(slot < high)[:, None] & real_unit[None, :], other=0.0
                )
                z = tl.load(scores_before + slot, mask=slot < written, other=0.0)
                z = tl.where(slot < written, tl.exp(z - top_before) * scale_before, 0.0)
                M += z[:, None] * (h[None, :] - M)  # (eq. 6, 14, 15)
                tl.store(keys + slot, z, mask=slot < written)
                tl.store(a.M + memory + offset, M, mask=(slot < written)[:, None] & real_unit[None, :])
                if S.KEEP:
                    tl.store(a.kept + piece + offset, M, mask=(slot < kept)[:, None] & real_unit[None, :])
                score = tl.where(slot < high, tl.sum(M * o[None, :], axis=1), float("-inf"))  # (eq. 2, 8, 10)
                tl.store(scores + slot, score, mask=slot < read)
                higher = tl.maximum(top, tl.max(score, axis=0))
                weight = tl.exp(score - higher)
                rescale = tl.exp(top - higher)
                total = total * rescale + tl.sum(weight, axis=0)
                m = m * rescale + weight[:, None] * M  # (eq. 3, 9, 11)
                top = higher
            if t < length:
                part_offset = (((t % 2) * a.B + b) * S.MEMORIES + j) * S.PARTS + part
                tl.store(a.tops + part_offset, top)
                tl.store(a.totals + part_offset, total)
                row = (step * S.MEMORIES + j) * S.K
                if S.PARTS == 1:
                    total = tl.where(total > 0, total, 1.0)  # an empty memory reads as zero
                    tl.store(a.m + row + unit, tl.sum(m, axis=0) / total, mask=real_unit)
                else:
                    m_offset = ((b * S.MEMORIES + j) * S.PARTS + part) * S.K
                    tl.store(a.part_m + m_offset + unit, tl.sum(m, axis=0), mask=real_unit)


@triton.jit
def join(a, b, t, S: tl.constexpr):
    """Compute m_t of sequence b from its parts."""
    if t < tl.load(a.lengths + b):
        unit = tl.arange(0, S.BLOCK_K)
        part = tl.arange(0, S.PARTS)
        for j in tl.static_range(S.MEMORIES):
            top, scale = load_softmax(a, b, j, t, S)
            first = (b * S.MEMORIES + j) * S.PARTS
            tops = tl.load(a.tops + (t % 2) * a.B * S.MEMORIES * S.PARTS + first + part, cache_modifier=".cg")
            m = tl.load(
                a.part_m + ((first + part) * S.K)[:, None] + unit[None, :],
                mask=(unit < S.K)[None, :] & (part >= 0)[:, None],
                other=0.0,
                cache_modifier=".cg",
            )
            m = tl.sum(tl.exp(tops - top)[:, None] * m, axis=0) * scale
            row = ((b * a.T + t).to(tl.int64) * S.MEMORIES + j) * S.K
            tl.store(a.m + row + unit, m, mask=unit < S.K)


@triton.jit
def attend_resident(a, b, length, t, M, z, S: tl.constexpr):
    """Do as `attend` for a memory M in registers, given z of the last step; return the new M and z."""
    unit = tl.arange(0, S.BLOCK_K)
    real_unit = unit < S.K
    slot = tl.arange(0, S.SLOTS)
    slots = tl.load(a.slot_lengths + b)
    read = tl.where(t < length, slots, 0)
    step = (b * a.T + t).to(tl.int64)
    h = tl.load(
        a.H + (step + b) * S.K + unit,
        mask=unit < tl.where(t <= length, S.K, 0),
        other=0.0,
        cache_modifier=".cg",
    )
    o = tl.load(a.o + step * S.K + unit, mask=unit < tl.where(t < length, S.K, 0), other=0.0)
    M += z[:, None] * (h[None, :] - M)  # (eq. 6, 14, 15)
    score = tl.where(slot < read, tl.sum(M * o[None, :], axis=1), float("-inf"))  # (eq. 2, 8, 10)
    weight = tl.where(slot < read, tl.exp(score - tl.max(score, axis=0)), 0.0)
    total = tl.sum(weight, axis=0)
    z = weight / tl.where(total > 0, total, 1.0)  # an empty memory reads as zero
    m = tl.sum(z[:, None] * M, axis=0)  # (eq. 3, 9, 11)
    tl.store(a.m + step * S.K + unit, m, mask=unit < tl.where(t < length, S.K, 0))
    tl.store(a.z + step * a.L + slot, z, mask=slot < read)
    if S.KEEP:
        kept = tl.where(t % a.interval == 0, read, 0)
        piece = ((t // a.interval) * a.B + b).to(tl.int64) * a.L * S.K
        offset = (slot * S.K)[:, None] + unit[None, :]
        tl.store(a.kept + piece + offset, M, mask=(slot < kept)[:, None] & real_unit[None, :])
    return M, z


@triton.jit
def recall(a, b, part, t, S: tl.constexpr):
    """Run the backward pass of the read of t + 1 and the write of t, for a part of the memories of b.

    The memory is rebuilt from the last kept one, with z and h of the steps since then.

    Returns:
        This part's contribution to the gradient of h_t.
    """
    length = tl.load(a.lengths + b)
    unit = tl.arange(0, S.BLOCK_K)
    real_unit = unit < S.K
    step = (b * a.T + t).to(tl.int64)  # row of step t; step t + 1 is the next row
    reading = t + 1 < length
    writing = (t >= 0) & (t < length)
    dh = tl.zeros([S.BLOCK_K], tl.float32)
    replay_end = tl.maximum(t, 0)
    if replay_end < length:
        kept_index = replay_end // a.interval
        read_mask = unit < tl.where(reading, S.K, 0)
        h = tl.load(a.H + (step + b + 1) * S.K + unit, mask=unit < tl.where(writing, S.K, 0), other=0.0)
        o = tl.load(a.o + (step + 1) * S.K + unit, mask=read_mask, other=0.0)
        do_h = 0.0  # the gradient of o is do_h * h plus the sum of `do` over slots
        do = tl.zeros([S.SLOTS, S.BLOCK_K], tl.float32)
        dh_slots = tl.zeros([S.SLOTS, S.BLOCK_K], tl.float32)
        for j in tl.static_range(S.MEMORIES):
            start = find_first_slot(a, j)
            low, high = find_part(tl.load(a.slot_lengths + j * a.B + b), part, S)
            written = tl.where(writing, high, 0)  # slots before this one were written at t,
            read = tl.where(reading, high, 0)  # those before this one were read at t + 1
            memory = (b * a.L + start).to(tl.int64) * S.K
            kept = a.kept + kept_index.to(tl.int64) * a.B * a.L * S.K + memory
            row = ((step + 1) * S.MEMORIES + j) * S.K
            dm = tl.load(a.dm + row + unit, mask=read_mask, other=0.0, cache_modifier=".cg")
            m = tl.load(a.m + row + unit, mask=read_mask, other=0.0)
            # z . dz over all slots: the part of the write is known, that of the read is m . dm
            before = (((t + 2) % 2 * a.B + b) * S.MEMORIES + j) * S.PARTS
            after = (((t + 1) % 2 * a.B + b) * S.MEMORIES + j) * S.PARTS
            dz_before = a.dz + ((t + 2) % 2 * a.B + b) * a.L + start
            dz_after = a.dz + ((t + 1) % 2 * a.B + b) * a.L + start
            sums = tl.load(a.z_dz + before + tl.arange(0, S.PARTS), cache_modifier=".cg")
            z_dz = tl.where(reading, tl.sum(sums, axis=0) + tl.sum(m * dm, axis=0), 0.0)
            h_dm = tl.sum(h * dm, axis=0)
            z_dz_next = 0.0
            for s in range(low, high, S.SLOTS):
                slot = s + tl.arange(0, S.SLOTS)
                offset = (slot * S.K)[:, None] + unit[None, :]
                real = (slot < high)[:, None] & real_unit[None, :]
                keys = a.z + step * a.L + start + slot
                G = tl.load(a.G + memory + offset, mask=real, other=0.0)
                M = tl.load(kept + offset, mask=real, other=0.0)
                z = tl.load(keys, mask=slot < written, other=0.0)
                z_read = tl.load(keys + a.L, mask=slot < read, other=0.0)
                dz = tl.load(dz_before + slot, mask=slot < read, other=0.0)
                for past in range(kept_index * a.interval, replay_end):
                    row_past = (b * a.T + past).to(tl.int64)
                    z_past = tl.load(a.z + row_past * a.L + start + slot, mask=slot < high, other=0.0)
                    h_past = tl.load(a.H + (row_past + b + 1) * S.K + unit, mask=real_unit, other=0.0)
                    M += z_past[:, None] * (h_past[None, :] - M)
                # The memory after step t is h - (1 - z) change: only the change is held.
                change = h[None, :] - M
                dz += h_dm - (1 - z) * tl.sum(change * dm[None, :], axis=1)
                ds = z_read * (dz - z_dz)
                do_h += tl.sum(ds, axis=0)
                do -= (ds * (1 - z))[:, None] * change
                G += z_read[:, None] * (dm[None, :] - G) + ds[:, None] * o[None, :]
                tl.store(a.G + memory + offset, G, mask=real)
                dh_slots += z[:, None] * G
                dz = tl.sum(G * change, axis=1)
                if S.KEYS:
                    d_z = a.d_z + step * a.L + start + slot
                    dz += tl.load(d_z, mask=slot < written, other=0.0)
                tl.store(dz_after + slot, dz, mask=slot < written)
                z_dz_next += tl.sum(z * dz, axis=0)
            tl.store(a.z_dz + after + part, z_dz_next)
        dh = tl.sum(dh_slots, axis=0)
        do_sum = do_h * h + tl.sum(do, axis=0)
        if S.PARTS == 1:
            tl.store(a.do + (step + 1) * S.K + unit, do_sum, mask=read_mask)
        else:
            part_offset = (b * S.PARTS + part) * S.K + unit
            tl.store(a.part_dh + part_offset, dh, mask=real_unit)
            tl.store(a.part_do + part_offset, do_sum, mask=real_unit)
    return dh


@triton.jit
def rebuild(a, b, length, t, S: tl.constexpr):
    """Rebuild the only memory of sequence b as it was before step t, from the last kept one."""
    unit = tl.arange(0, S.BLOCK_K)
    slot = tl.arange(0, S.SLOTS)
    replay_end = tl.maximum(t, 0)
    slots = tl.load(a.slot_lengths + b) * tl.where(replay_end < length, 1, 0)
    kept_index = replay_end // a.interval
    real_unit = unit < S.K
    real = (slot < slots)[:, None] & real_unit[None, :]
    piece = (kept_index * a.B + b).to(tl.int64) * a.L * S.K
    M = tl.load(a.kept + piece + (slot * S.K)[:, None] + unit[None, :], mask=real, other=0.0)
    for past in range(kept_index * a.interval, replay_end):
        row = (b * a.T + past).to(tl.int64)
        z = tl.load(a.z + row * a.L + slot, mask=slot < slots, other=0.0)
        h = tl.load(a.H + (row + b + 1) * S.K + unit, mask=real_unit, other=0.0)
        M += z[:, None] * (h[None, :] - M)
    return M


@triton.jit
def recall_whole(a, b, length, t, M, dz, z_dz, S: tl.constexpr):
    """Do as `recall` for a whole short memory, which was M before step t.

    Its gradient is loaded and stored at every step, because the products in between need the registers.

    Returns:
        dz and z . dz for the step before, and the gradient of h_t.
    """
    unit = tl.arange(0, S.BLOCK_K)
    slot = tl.arange(0, S.SLOTS)
    step = (b * a.T + t).to(tl.int64)
    reading = t + 1 < length
    slots = tl.load(a.slot_lengths + b)
    read_mask = unit < tl.where(reading, S.K, 0)
    G_pointer = a.G + b.to(tl.int64) * a.L * S.K + (slot * S.K)[:, None] + unit[None, :]
    # A finished sequence's memory does not change; a program without a sequence must not store anything.
    real = (slot < tl.where(tl.maximum(t, 0) < length, slots, 0))[:, None] & (unit < S.K)[None, :]
    dm = tl.load(a.dm + (step + 1) * S.K + unit, mask=read_mask, other=0.0, cache_modifier=".cg")
    G = tl.load(G_pointer, mask=real, other=0.0)
    m = tl.load(a.m + (step + 1) * S.K + unit, mask=read_mask, other=0.0)
    o = tl.load(a.o + (step + 1) * S.K + unit, mask=read_mask, other=0.0)
    written = tl.where((t >= 0) & (t < length), slots, 0)
    h = tl.load(a.H + (step + b + 1) * S.K + unit, mask=unit < tl.where(t < length, S.K, 0), other=0.0)
    z = tl.load(a.z + step * a.L + slot, mask=slot < written, other=0.0)
    z_read = tl.load(a.z + (step + 1) * a.L + slot, mask=slot < tl.where(reading, slots, 0), other=0.0)
    # The memory after step t is h - (1 - z) change: only the change is held.
    change = h[None, :] - M
    M_dm = tl.sum(h * dm, axis=0) - (1 - z) * tl.sum(change * dm[None, :], axis=1)
    # z . dz over all slots: the part of the write is known, that of the read is m . dm
    ds = z_read * (dz + M_dm - z_dz - tl.sum(m * dm, axis=0))
    do = tl.sum(ds, axis=0) * h - tl.sum((ds * (1 - z))[:, None] * change, axis=0)
    tl.store(a.do + (step + 1) * S.K + unit, do, mask=read_mask)
    G += z_read[:, None] * (dm[None, :] - G) + ds[:, None] * o[None, :]
    tl.store(G_pointer, G, mask=real)
    dz = tl.sum(G * change, axis=1)
    if S.KEYS:
        dz += tl.load(a.d_z + step * a.L + slot, mask=slot < written, other=0.0)
    return dz, tl.sum(z * dz, axis=0), tl.sum(z[:, None] * G, axis=0)


@triton.jit
def join_back(a, b, t, S: tl.constexpr):
    """Sum the gradients of h_t and o_{t+1} of sequence b over parts; return the former, store the latter."""
    length = tl.load(a.lengths + b)
    unit = tl.arange(0, S.BLOCK_K)
    part = tl.arange(0, S.PARTS)
    offset = ((b * S.PARTS + part) * S.K)[:, None] + unit[None, :]
    real = (unit < tl.where(t < length, S.K, 0))[None, :] & (part >= 0)[:, None]
    do = tl.sum(tl.load(a.part_do + offset, mask=real, other=0.0, cache_modifier=".cg"), axis=0)
    row = (b * a.T + t + 1).to(tl.int64) * S.K
    tl.store(a.do + row + unit, do, mask=unit < tl.where(t + 1 < length, S.K, 0))
    return tl.sum(tl.load(a.part_dh + offset, mask=real, other=0.0, cache_modifier=".cg"), axis=0)
