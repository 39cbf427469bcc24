"""A sequence's result never depends on its batch, its padding or the backend, whatever the settings."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nse
from oracle.problems import assert_close, list_tensors

CASES = st.fixed_dictionaries(
    {
        "k": st.sampled_from([1, 2, 5, 8]),
        "layers": st.integers(1, 2),
        "lengths": st.lists(st.integers(0, 9), min_size=1, max_size=6),
        "shared": st.lists(st.integers(1, 7), max_size=3),
        "padding": st.integers(0, 4),
        "own": st.none() | st.integers(0, 6),
        "seed": st.integers(0, 2**20),
    }
)


def encode(encoder, rows, case, padding):
    """Encode cases of (words, own memory, shared memories), padded with garbage."""

    def padded(sequences):
        most = max(map(len, sequences)) + padding
        slots = torch.full((len(sequences), most, case["k"]), float("nan"), dtype=torch.float64)
        for row, sequence in zip(slots, sequences, strict=True):
            row[: len(sequence)] = sequence
        return nse.Memory(slots, torch.tensor([len(s) for s in sequences]))

    words = padded([row[0] for row in rows])
    own = None if case["own"] is None else padded([row[1] for row in rows])
    shared = [padded([row[2][j] for row in rows]) for j in range(len(case["shared"]))]
    return encoder(*words, memory=own, shared=shared, trace=True)


def real_part(out, b, row):
    """Return all results of one sequence, without padding."""
    words, _, shared = row
    T, L = len(words), out.memory.lengths[b]
    assert not out.outputs[b, T:].any()
    assert not out.keys[b, :, L:].any()
    return [
        out.outputs[b, :T],
        out.last[b],
        out.memory.slots[b, :L],
        out.keys[b, :T, :L],
        *(m.slots[b, : len(s)] for m, s in zip(out.shared, shared, strict=True)),
        *(z[b, :T, : len(s)] for z, s in zip(out.shared_keys, shared, strict=True)),
        *(s[:, b] for pair in out.state[:2] for s in pair),
    ]


@settings(max_examples=60, deadline=None)
@given(CASES)
def test_a_sequence_depends_on_neither_batch_padding_nor_backend(case):
    torch.manual_seed(case["seed"])
    k = case["k"]

    def random(*shape):
        return torch.randn(*shape, dtype=torch.float64)

    rows = [
        (random(T, k), random(case["own"] or 0, k), [random(max(1, L - b % 2), k) for L in case["shared"]])
        for b, T in enumerate(case["lengths"])
    ]
    encoder = nse.NSE(
        k, shared=len(case["shared"]), layers=case["layers"], dtype=torch.float64, init_range=0.5
    )
    for backend in ("reference", "torch"):
        encoder.backend = backend
        together = encode(encoder, rows, case, case["padding"])
        assert all(t.isfinite().all() for t in list_tensors(together))
        for b, row in enumerate(rows):
            alone = encode(encoder, [row], case, 0)
            assert_close(real_part(together, b, row), real_part(alone, 0, row), 1e-10)
        if backend == "reference":
            by_reference = together
    assert_close(together, by_reference, 1e-10)


@settings(max_examples=30, deadline=None)
@given(CASES, st.integers(0, 9))
def test_a_call_can_be_split_at_any_step(case, cut):
    torch.manual_seed(case["seed"])
    k, lengths = case["k"], torch.tensor(case["lengths"])
    x = torch.randn(len(lengths), int(lengths.max()), k, dtype=torch.float64)
    shared = [torch.randn(len(lengths), L, k, dtype=torch.float64) for L in case["shared"]]
    encoder = nse.NSE(k, shared=len(shared), layers=case["layers"], dtype=torch.float64)
    memory = nse.Memory(x, lengths)
    whole = encoder(x, lengths, shared=shared)
    cut = min(cut, x.shape[1])
    first = encoder(x[:, :cut], lengths.clamp(max=cut), memory=memory, shared=shared)
    rest = encoder(
        x[:, cut:], (lengths - cut).clamp(min=0), memory=first.memory, shared=first.shared, state=first.state
    )
    assert_close(torch.cat([first.outputs, rest.outputs], dim=1), whole.outputs, 1e-10)
    assert_close([rest.last, rest.memory, rest.state], [whole.last, whole.memory, whole.state], 1e-10)


@pytest.mark.parametrize("k", [64, 16])  # torch folds compose for the batch, but not alone at 16
def test_backends_agree_to_a_millionth_in_float32(k):
    lengths = [25, 3, 17, 1, 25, 9, 0, 12]
    x = torch.randn(8, 25, k)
    for backend in ("reference", "torch"):
        encoder = nse.NSE(k, backend=backend)
        together = encoder(x, lengths)
        for b, length in enumerate(lengths):
            alone = encoder(x[b : b + 1, :length])
            assert_close(together.last[b], alone.last[0], 1e-6)
            assert_close(together.memory.slots[b, :length], alone.memory.slots[0], 1e-6)
