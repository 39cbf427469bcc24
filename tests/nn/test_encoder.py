"""`nse.NSE` keeps its contract."""

import copy
import io

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import nse
from nse.ops.dispatch import BACKENDS, explain_no_backend
from oracle.problems import assert_close

# On CUDA, nn.LSTM keeps float32 and float64 weights in one block, not bfloat16 ones or copies, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")

LENGTHS = [5, 0, 3, 1]
KIND = {"dtype": torch.float64}  # of new tensors
ANYWHERE = [name for name in BACKENDS if name != "triton" and not explain_no_backend(name, "cpu")]


@pytest.fixture(params=[*ANYWHERE, pytest.param("triton", marks=pytest.mark.gpu)])
def backend(request, monkeypatch):
    """Run with every backend; with triton, new tensors are float32 on a CUDA device, without TF32."""
    if "device" in request.fixturenames:
        device = request.getfixturevalue("device")
        if (request.param, device) in [("cpu", "cuda"), ("triton", "cpu")]:
            pytest.skip(f"the backend {request.param} does not run on {device}")
    if request.param != "triton":
        yield request.param
        return
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setitem(KIND, "dtype", torch.float32)
    monkeypatch.setitem(KIND, "device", "cuda")
    yield request.param


def words(B=4, T=5, k=6, **kwargs):
    return torch.randn(B, T, k, **{**KIND, **kwargs})


def encoder(k=6, **kwargs):
    return nse.NSE(k, **{**KIND, **kwargs})


def assert_same(got, expected):
    """But for rounding."""
    assert_close(got, expected, 1e-12 if KIND["dtype"] == torch.float64 else 1e-5)


def test_the_encoding_has_the_documented_shapes(backend):
    first, second = encoder(backend=backend), encoder(shared=1, layers=2, backend=backend)
    out = first(words(), LENGTHS)
    assert out.outputs.shape == (4, 5, 6)
    assert out.last.shape == (4, 6)
    assert out.memory.slots.shape == (4, 5, 6)
    assert out.memory.lengths.tolist() == LENGTHS
    assert out.keys is None
    assert out.shared == out.shared_keys == ()
    out2 = second(words(T=3), [3, 3, 0, 1], shared=[out.memory], trace=True)
    assert out2.shared[0].slots.shape == (4, 5, 6)
    assert out2.shared[0].lengths.tolist() == LENGTHS
    assert out2.keys.shape == (4, 3, 3)
    assert out2.shared_keys[0].shape == (4, 3, 5)
    assert [s.shape for pair in out2.state[:2] for s in pair] == [(2, 4, 6)] * 4


def test_outputs_are_zero_in_the_padding_and_last_is_the_last_output(backend):
    out = encoder(backend=backend)(words(), torch.tensor(LENGTHS))
    for b, length in enumerate(LENGTHS):
        assert (out.outputs[b, length:] == 0).all()
        expected = out.outputs[b, length - 1] if length else torch.zeros(6)
        assert out.last[b].tolist() == expected.tolist()


def test_state_dict_keys_and_parameter_counts_are_as_published():
    keys = set(encoder(2, shared=1).state_dict())
    lstm = {f"{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    assert keys == {f"{part}.{name}" for part in ("read", "write") for name in lstm} | {
        "compose.weight",
        "compose.bias",
    }
    model = nse.NSE(300)
    assert isinstance(model.read, torch.nn.LSTM)
    assert isinstance(model.write, torch.nn.LSTM)
    assert model.compose.weight.shape == (600, 600)
    # With the paper's head for sentence pairs (4k to 1024 to 3): 3.4M, as its table says.
    head = 4 * 300 * 1024 + 1024 + 1024 * 3 + 3
    assert sum(p.numel() for p in model.parameters()) + head == 3_398_299
    assert nse.NSE(300, shared=2).compose.weight.shape == (1200, 1200)


def test_initial_weights_are_uniform_in_a_tenth():
    model = nse.NSE(64)
    for name, p in model.named_parameters():
        assert p.abs().max() <= 0.1, name
        assert p.abs().max() > 0.09, name
        assert p.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.15), name
    assert max(p.abs().max() for p in nse.NSE(16, init_range=0.5).parameters()) > 0.4


@pytest.mark.parametrize("sorted_", [True, False])
def test_a_packed_sequence_equals_a_padded_batch(backend, sorted_):
    model, x = encoder(backend=backend), words()
    lengths = [5, 4, 2, 1] if sorted_ else [2, 5, 1, 4]
    packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=sorted_)
    assert_same(model(packed, trace=True), model(x, lengths, trace=True))
    ragged = pack_sequence([row[:n] for row, n in zip(x, lengths, strict=True)], enforce_sorted=sorted_)
    assert_same(model(ragged), model(x, lengths))


def test_without_lengths_all_words_count(backend):
    model, x = encoder(backend=backend), words()
    assert_same(model(x, trace=True), model(x, [5] * 4, trace=True))


def test_a_given_memory_may_have_any_length(backend):
    model, x = encoder(backend=backend), words()
    assert_close(model(x, LENGTHS, memory=nse.Memory(x, torch.tensor(LENGTHS))), model(x, LENGTHS), 0)
    other = words(T=9)
    out = model(x, LENGTHS, memory=other, trace=True)
    assert out.memory.slots.shape == (4, 9, 6)
    assert out.memory.lengths.tolist() == [9] * 4
    assert out.keys.shape == (4, 5, 9)
    blank = torch.zeros(2, 6, **KIND, requires_grad=True)
    scratch = model(x, LENGTHS, memory=nse.Memory(x, torch.tensor(LENGTHS)).prepend(blank), trace=True)
    assert scratch.keys.shape == (4, 5, 7)
    scratch.last.sum().backward()
    assert blank.grad.abs().sum() > 0


@pytest.mark.parametrize("layers", [1, 2])
def test_continuing_from_a_state_equals_one_call(backend, layers):
    model, x, other = encoder(shared=1, layers=layers, backend=backend), words(T=7), words(T=4)
    memory = nse.Memory(x)
    whole = model(x, memory=memory, shared=[other])
    first = model(x[:, :3], memory=memory, shared=[other])
    rest = model(x[:, 3:], memory=first.memory, shared=first.shared, state=first.state)
    assert_same(torch.cat([first.outputs, rest.outputs], dim=1), whole.outputs)
    assert_same(rest[1:], whole[1:])


@pytest.mark.parametrize("layers", [1, 2])
def test_single_steps_equal_one_call(backend, layers):
    model, x, other = encoder(shared=1, layers=layers, backend=backend), words(T=6), words(T=4)
    memory = nse.Memory(words(T=8), torch.tensor([8, 3, 0, 5]))
    whole = model(x, memory=memory, shared=[other], trace=True)
    out = model.step(x[:, 0], memory=memory, shared=[other], trace=True)
    steps = [out]
    for t in range(1, 6):
        out = model.step(x[:, t], out.state, trace=True)
        steps.append(out)
    assert_same(torch.stack([s.last for s in steps], dim=1), whole.outputs)
    assert_same(torch.cat([s.keys for s in steps], dim=1), whole.keys)
    assert_same(torch.cat([s.shared_keys[0] for s in steps], dim=1), whole.shared_keys[0])
    assert_same(out.state, whole.state)


def test_gradients_flow_through_a_shared_memory(backend):
    premise, hypothesis, x = encoder(backend=backend), encoder(shared=1, backend=backend), words()
    out = hypothesis(words(), shared=[premise(x).memory])
    out.last.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in premise.parameters())


def test_backends_agree_in_float32():
    fast, x = nse.NSE(48, shared=1, backend="torch"), torch.randn(5, 33, 48)
    reference = copy.deepcopy(fast)
    reference.backend = "reference"
    arguments = {"lengths": [33, 1, 0, 20, 7], "shared": [torch.randn(5, 9, 48)], "trace": True}
    assert_close(fast(x, **arguments), reference(x, **arguments), 1e-5)


def test_every_backend_draws_the_same_dropout_masks():
    x, results = words(), []
    for backend in ANYWHERE:
        torch.manual_seed(1)
        model = encoder(dropout=0.5, backend=backend)
        results.append(model(x, LENGTHS))
    for result in results[1:]:
        assert_close(result, results[0], 1e-12)


def test_dropout_differs_between_steps_and_is_off_in_eval(backend):
    model, x = encoder(k=200, dropout=0.5, backend=backend), words(B=1, T=2, k=200)
    x[:, 1] = x[:, 0]
    seen = {}
    hook = nse.nn.encoder.recurrence

    def spy(x, *args, **kwargs):
        seen["x"], seen["mask"] = x, args[5]
        return hook(x, *args, **kwargs)

    nse.nn.encoder.recurrence = spy
    try:
        out = model(x)
    finally:
        nse.nn.encoder.recurrence = hook
    dropped = seen["x"] == 0
    assert 0.3 < dropped.double().mean() < 0.7
    assert (dropped[0, 0] != dropped[0, 1]).any()
    kept = seen["mask"]
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert (kept[0, 0] != kept[0, 1]).any()
    assert not torch.equal(out.outputs, model(x).outputs)
    model.eval()
    assert_close(model(x), model(x), 0)


def test_dropout_never_touches_the_memory(backend):
    model = encoder(dropout=0.9, backend=backend)
    x = words()
    assert torch.equal(model(x, [0] * 4).memory.slots, torch.zeros_like(x))
    out = model(x[:, :0], memory=x)
    assert torch.equal(out.memory.slots, x)


def test_with_the_papers_padding_pads_are_words(backend):
    masked, paper = encoder(backend=backend), encoder(backend=backend, padding="paper")
    paper.load_state_dict(masked.state_dict())
    x = words()
    assert_close(paper(x, LENGTHS, trace=True), masked(x, trace=True), 0)
    memory = nse.Memory(words(T=3), torch.tensor([1, 0, 2, 3]))
    assert_close(paper(x, LENGTHS, memory=memory), masked(x, memory=memory.slots), 0)


def test_copies_and_reloaded_weights_give_the_same_outputs(backend):
    model, x = encoder(shared=1, layers=2, backend=backend), words()
    arguments = {"lengths": LENGTHS, "shared": [words(T=2)]}
    out = model(x, **arguments)
    assert_close(copy.deepcopy(model)(x, **arguments), out, 0)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = encoder(shared=1, layers=2, backend=backend)
    assert not torch.equal(fresh(x, **arguments).last, out.last)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert_close(fresh(x, **arguments), out, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_float_type_keeps_its_type(backend, dtype, device):
    model = nse.NSE(8, dtype=dtype, backend=backend, device=device)
    out = model(words(k=8, dtype=dtype, device=device), LENGTHS)
    assert out.outputs.dtype == out.memory.slots.dtype == out.state.write[1].dtype == dtype
    assert out.outputs.device.type == device
    out.last.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_autocast_multiplies_in_bfloat16_and_keeps_the_state_in_float32(backend, device):
    model, x = nse.NSE(32, backend=backend, device=device), torch.randn(4, 9, 32, device=device)
    exact = model(x, [9, 4, 0, 1])
    with torch.autocast(device, dtype=torch.bfloat16):
        out = model(x, [9, 4, 0, 1])
        half = model(x.bfloat16(), [9, 4, 0, 1], memory=x.bfloat16())
    assert out.outputs.dtype == out.memory.slots.dtype == half.outputs.dtype == torch.float32
    if backend != "cpu":  # it trains in float32
        assert not torch.equal(out.outputs, exact.outputs)
    assert_close(out.outputs, exact.outputs, 0.01)
    out.last.sum().backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters())


def test_the_encoder_learns_a_task(backend):
    model, x = encoder(backend=backend), words()
    target = torch.randn(4, 6, **KIND) * 0.3
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = (model(x).last - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


def test_repr_shows_the_settings():
    assert "6, shared=1, layers=2, dropout=0.1, backend='torch', padding='masked'" in repr(
        encoder(shared=1, layers=2, dropout=0.1, backend="torch")
    )
