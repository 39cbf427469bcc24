"""Learned blank slots and start words are what a caller could have put there by hand."""

import re

import pytest
import torch

import nse
from nse.ops.dispatch import BACKENDS, explain_no_backend
from oracle.problems import assert_close

LENGTHS = torch.tensor([5, 0, 3, 1])
ANYWHERE = [name for name in BACKENDS if name != "triton" and not explain_no_backend(name, "cpu")]
BOTH = pytest.mark.parametrize(("blanks", "starts"), [(2, 0), (0, 3), (2, 3)])


def encoder(blanks=0, starts=0, **settings):
    return nse.NSE(6, blanks=blanks, starts=starts, dtype=torch.float64, **settings)


def words(T=5):
    return torch.randn(4, T, 6, dtype=torch.float64)


def bare(made):
    """Copy the encoder without its blanks and starts."""
    plain = encoder(shared=made.shared, layers=made.layers, backend=made.backend, padding=made.padding)
    plain.load_state_dict({n: p for n, p in made.state_dict().items() if n not in ("blank", "start")})
    return plain


def by_hand(made, x, lengths, shared=()):
    """Add start words to x and blank slots to the memory, as a caller would."""
    lengths = torch.full((len(x),), x.shape[1]) if lengths is None else lengths
    starts = 0 if made.start is None else len(made.start)
    if starts:
        x, lengths = torch.cat([made.start.expand(len(x), -1, -1), x], dim=1), lengths + starts
    memory = nse.Memory(x, lengths)
    if made.blank is not None:
        memory = memory.prepend(made.blank)
    whole = bare(made)(x, lengths, memory=memory, shared=shared, trace=True)
    return whole._replace(
        outputs=whole.outputs[:, starts:],
        keys=whole.keys[:, starts:],
        shared_keys=tuple(keys[:, starts:] for keys in whole.shared_keys),
    )


@BOTH
@pytest.mark.parametrize("backend", ANYWHERE)
@pytest.mark.parametrize("lengths", [LENGTHS, None], ids=["lengths", "all"])
def test_blanks_and_starts_equal_slots_and_words_that_a_caller_adds(blanks, starts, backend, lengths):
    made, x = encoder(blanks, starts, layers=2, backend=backend), words()
    assert_close(made(x, lengths, trace=True), by_hand(made, x, lengths), 1e-12)


@BOTH
def test_blanks_and_starts_work_beside_a_shared_memory(blanks, starts):
    made, x = encoder(blanks, starts, shared=1), words()
    shared = [nse.Memory(words(7), torch.tensor([7, 2, 0, 4]))]
    actual = made(x, LENGTHS, shared=shared, trace=True)
    assert actual.shared_keys[0].shape == (4, 5, 7)
    assert_close(actual, by_hand(made, x, LENGTHS, shared), 1e-12)


@BOTH
def test_blanks_and_starts_work_with_the_papers_padding(blanks, starts):
    made, x = encoder(blanks, starts, padding="paper"), words()
    assert_close(made(x, LENGTHS, trace=True), by_hand(made, x, None), 1e-12)


@BOTH
def test_outputs_leave_start_words_out_and_the_memory_keeps_them(blanks, starts):
    out = encoder(blanks, starts)(words(), LENGTHS, trace=True)
    assert out.outputs.shape == (4, 5, 6)
    assert out.keys.shape == (4, 5, blanks + starts + 5)
    assert out.memory.slots.shape == (4, blanks + starts + 5, 6)
    assert out.memory.lengths.tolist() == (LENGTHS + blanks + starts).tolist()
    for b, length in enumerate(LENGTHS):
        assert (out.outputs[b, length:] == 0).all()
        assert_close(out.keys[b, :length].sum(dim=-1), torch.ones(length), 1e-12)


def test_an_empty_sequence_ends_after_the_start_words():
    made, x = encoder(starts=2), words()
    out = made(x, LENGTHS)
    assert (out.outputs[1] == 0).all()
    assert_close(out.last[1], bare(made)(made.start[None]).last[0], 1e-12)
    assert (encoder(blanks=2)(x, LENGTHS).last[1] == 0).all()


@BOTH
@pytest.mark.parametrize("backend", ANYWHERE)
def test_a_sequence_depends_on_neither_batch_nor_padding(blanks, starts, backend):
    made, x = encoder(blanks, starts, backend=backend), words()
    together, padded = made(x, LENGTHS), made(torch.cat([x, words(3)], dim=1), LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        alone = made(x[b : b + 1, :length])
        real = blanks + starts + length
        for out in (together, padded):
            actual = out.outputs[b, :length], out.last[b], out.memory.slots[b, :real]
            assert_close(actual, (alone.outputs[0], alone.last[0], alone.memory.slots[0]), 1e-12)


@BOTH
def test_backends_agree_on_outputs_and_gradients(blanks, starts):
    made, x, actual = encoder(blanks, starts), words().requires_grad_(), []
    for backend in ANYWHERE:
        made.backend = backend
        out = made(x, LENGTHS, trace=True)
        loss = out.outputs.square().sum() + out.last.sum() + out.memory.slots.square().sum()
        actual.append((out, torch.autograd.grad(loss, [x, *made.parameters()])))
    for other in actual[1:]:
        assert_close(other, actual[0], 1e-12)


@BOTH
def test_blanks_and_starts_have_gradients(blanks, starts):
    made = encoder(blanks, starts)
    made(words(), LENGTHS).last.square().sum().backward()
    for learned in (made.blank, made.start):
        if learned is not None:
            assert (learned.grad != 0).any(dim=-1).all()


@BOTH
def test_a_given_memory_or_state_gets_no_blanks_and_starts(blanks, starts):
    made, x = encoder(blanks, starts), words()
    plain, memory = bare(made), nse.Memory(words(7), torch.tensor([7, 2, 1, 4]))
    state = plain(words()).state
    for given in ({"memory": memory}, {"state": state}, {"memory": memory, "state": state}):
        out = made(x, LENGTHS, trace=True, **given)
        assert_close(out, plain(x, LENGTHS, trace=True, **given), 0)
        assert not torch.equal(out.last, made(x, LENGTHS).last)


@BOTH
def test_step_adds_no_blanks_and_starts(blanks, starts):
    made, x = encoder(blanks, starts), words()
    plain, memory = bare(made), nse.Memory(words(7))
    first = made.step(x[:, 0], memory=memory, trace=True)
    assert_close(first, plain.step(x[:, 0], memory=memory, trace=True), 0)
    carried = made(x, LENGTHS).state
    assert_close(made.step(x[:, 1], carried), plain.step(x[:, 1], carried), 0)


def test_the_state_dict_has_blank_and_start_only_if_there_are_any():
    usual = set(encoder().state_dict())
    assert set(encoder(blanks=2).state_dict()) == usual | {"blank"}
    assert set(encoder(starts=3).state_dict()) == usual | {"start"}
    assert set(encoder(2, 3).state_dict()) == usual | {"blank", "start"}
    assert (encoder().blank, encoder().start) == (None, None)
    made = encoder(2, 3, init_range=0.5)
    assert (made.blank.shape, made.start.shape) == ((2, 6), (3, 6))
    for learned in (made.blank, made.start):
        assert 0.1 < learned.abs().max() <= 0.5
    fresh = encoder(2, 3)
    fresh.load_state_dict(made.state_dict())
    x = words()
    assert_close(fresh(x, LENGTHS), made(x, LENGTHS), 0)


@pytest.mark.parametrize("name", ["blanks", "starts"])
@pytest.mark.parametrize("value", [-1, 1.0, True, "2", None])
def test_invalid_numbers_of_blanks_and_starts_are_refused(name, value):
    with pytest.raises(
        nse.InputError, match=re.escape(f"{name}: expected an integer of at least 0, got {value!r}")
    ):
        nse.NSE(6, **{name: value})


def test_repr_shows_blanks_and_starts():
    assert repr(encoder(blanks=2)).split("\n")[1].endswith("padding='masked', blanks=2")
    assert repr(encoder(starts=3)).split("\n")[1].endswith("padding='masked', starts=3")
    assert "padding='masked', blanks=2, starts=3\n" in repr(encoder(2, 3))
    assert "blanks" not in repr(encoder())


def test_packed_sequences_get_blanks_and_starts():
    made, x = encoder(2, 3), words()
    lengths = torch.tensor([5, 1, 3, 4])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    assert_close(made(packed, trace=True), made(x, lengths, trace=True), 1e-12)
