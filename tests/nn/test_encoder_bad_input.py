"""Bad input is refused with the argument's name, what was expected and what came."""

import re

import pytest
import torch

import nse

X = torch.randn(2, 3, 4)
STATE = nse.NSE(4)(X).state
PACKED = torch.nn.utils.rnn.pack_sequence([X[0], X[1]])


def refused(message):
    return pytest.raises(nse.InputError, match=re.escape(message))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size: expected an integer of at least 1, got 0"),
        ({"size": 4.0}, "size: expected an integer of at least 1, got 4.0"),
        ({"size": 4, "shared": -1}, "shared: expected an integer of at least 0, got -1"),
        ({"size": 4, "layers": 0}, "layers: expected an integer of at least 1, got 0"),
        ({"size": 4, "layers": True}, "layers: expected an integer of at least 1, got True"),
        ({"size": 4, "dropout": 1.0}, "dropout: expected a probability of at least 0 and below 1, got 1.0"),
        ({"size": 4, "dropout": float("nan")}, "dropout: expected a probability"),
        ({"size": 4, "padding": "left"}, "padding: expected 'masked' or 'paper', got 'left'"),
        ({"size": 4, "init": "zeros"}, "init: expected 'uniform' or 'lookup', got 'zeros'"),
        ({"size": 4, "init_range": float("inf")}, "init_range: expected a finite number"),
    ],
)
def test_invalid_settings_are_refused(arguments, message):
    with refused(message):
        nse.NSE(**arguments)


def test_an_unknown_backend_is_refused_by_the_constructor():
    with pytest.raises(nse.BackendError, match="backend='cudnn' cannot run here"):
        nse.NSE(4, backend="cudnn")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e(X[0]), "x: expected a tensor [B, T, 4], got a tensor of shape [3, 4] (float32"),
        (lambda e: e(X[..., :3]), "x: expected a tensor [B, T, 4], got a tensor of shape [2, 3, 3]"),
        (lambda e: e([[1.0]]), "x: expected a tensor [B, T, 4], got list [[1.0]]"),
        (lambda e: e(X.long()), "x: expected floating-point vectors (embed token ids first), got a tensor"),
        (lambda e: e(X.double()), "x: expected float32, as the encoder's weights are"),
        (lambda e: e(X.to("meta")), "x: expected a tensor on cpu, where the encoder's weights are"),
        (lambda e: e(X, [4, 1]), "lengths: expected each in 0..3, got 4"),
        (lambda e: e(X, torch.tensor([3, -1])), "lengths: expected each in 0..3, got -1"),
        (lambda e: e(X, [3]), "lengths: expected 2 integers, one for each sequence of the batch"),
        (lambda e: e(X, torch.tensor([[3, 1]])), "lengths: expected 2 integers"),
        (lambda e: e(X, torch.tensor([3.0, 1.0])), "lengths: expected 2 integers"),
        (lambda e: e(X, torch.tensor([True, False])), "lengths: expected 2 integers"),
        (lambda e: e(X, ["three", 1]), "lengths: expected 2 integers"),
        (lambda e: e(PACKED, [3, 3]), "lengths: expected None, since a PackedSequence has its own"),
        (lambda e: e(X, memory=X[:1]), "memory.slots: expected a tensor [2, L, 4]"),
        (lambda e: e(X, memory=X[..., :2]), "memory.slots: expected a tensor [2, L, 4]"),
        (lambda e: e(X, memory=nse.Memory(X, torch.tensor([9, 1]))), "memory.lengths: expected each in 0..3"),
        (lambda e: e(X, memory=(X, None)), "memory: expected an nse.Memory or a tensor [B, L, k]"),
        (lambda e: e(X, shared=[X]), "shared: expected a list of 0 memories"),
        (lambda e: e(X, shared=nse.Memory(X)), "shared: expected a list of 0 memories"),
        (lambda e: e(X, state=(X, X)), "state: expected an nse.State"),
        (lambda e: e(X[:1], state=STATE), "state.read.h: expected a tensor [1, 1, 4]"),
        (lambda e: e(X, state=STATE._replace(write=X)), "state.write: expected a pair of tensors [1, 2, 4]"),
        (lambda e: e.step(X, STATE), "x_t: expected a tensor [B, 4]"),
        (
            lambda e: e.step(X[:, 0]),
            "memory: expected a memory to start from, here or in the state, got None",
        ),
        (lambda e: e.step(X[:, 0], STATE._replace(memory=None)), "memory: expected a memory to start from"),
        (lambda e: e.step(X[:, 0], STATE.read), "state: expected an nse.State"),
    ],
)
def test_invalid_arguments_of_a_call_are_refused(call, message):
    with refused(message):
        call(nse.NSE(4))


def test_a_wrong_number_or_shape_of_shared_memories_is_refused():
    reader = nse.NSE(4, shared=2)
    with refused("shared: expected a list of 2 memories, as the encoder was built with shared=2"):
        reader(X)
    with refused("shared[1].slots: expected a tensor [2, L, 4]"):
        reader(X, shared=[X, X[:1]])


def test_input_errors_are_value_errors():
    with pytest.raises(ValueError, match="x: expected"):
        nse.NSE(4)(X[0])


def test_check_finite_refuses_nan_and_infinity():
    bad = X.clone()
    bad[1, 2, 0] = float("nan")
    nse.NSE(4)(bad)
    encoder = nse.NSE(4, check_finite=True)
    with refused("x: expected finite numbers, got NaN or infinity at x[1, 2]"):
        encoder(bad)
    encoder(bad, [3, 2])  # it stands in the padding
    with refused("memory: expected finite numbers, got NaN or infinity at memory[1, 2]"):
        encoder(X, memory=bad)
    reader = nse.NSE(4, shared=1, check_finite=True)
    with refused("shared[0]: expected finite numbers"):
        reader(X, shared=[bad * float("inf")])
