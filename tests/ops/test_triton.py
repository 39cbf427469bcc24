"""The Triton kernels compute the reference's function: in Triton's interpreter, and compiled on a GPU."""

import math
from collections import Counter

import pytest
import torch

import nse
from nse.ops import reference
from nse.ops.dispatch import BACKENDS
from oracle.problems import assert_close, assert_near, problem, tensors

pytest.importorskip("triton")
with pytest.MonkeyPatch.context() as patch:
    if not torch.cuda.is_available():
        patch.setenv("TRITON_INTERPRET", "1")
    from nse.ops.triton import driver as triton_loop
    from nse.ops.triton import kernels as triton_kernels
    from nse.ops.triton import memory as triton_memory
    from nse.ops.triton import plan
    from nse.ops.triton import products as triton_products
    from nse.ops.triton import recurrence as triton_recurrence

triton = triton_recurrence.recurrence

# The interpreter computes with numpy what a mask throws away afterwards.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")

ALONE = {"DRIVER": "persistent", "PROGRAMS": 1, "MOST_ROWS": 1}
"""One launch for all steps, in the interpreter: a program that is alone in its team waits for nobody."""


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """How often each function of a kernel was called in the interpreter, which this mends and speeds up."""
    counted, prepared = Counter(), set()
    if plan.INTERPRETED:
        from triton.runtime import interpreter

        def call(self, *args, **kwargs):
            counted[self.fn.__name__] += 1
            if self.fn.__module__ not in prepared:  # once is enough, and it takes half of the time
                interpreter._patch_lang(self.fn)
                prepared.add(self.fn.__module__)
            return self.rewrite()(*args, **kwargs)

        multiply = interpreter.InterpreterBuilder.create_dot

        def dot(self, a, b, *rest):
            return multiply(self, *(widened(operand) for operand in (a, b)), *rest)

        def widened(operand):  # numpy has no bfloat16: the interpreter would multiply its bits as integers
            if operand.dtype.scalar != interpreter.tl.bfloat16:
                return operand
            bits = operand.data.astype("uint32") << 16
            return interpreter.TensorHandle(bits.view("float32"), interpreter.tl.float32)

        monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
        monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", call)
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    return counted


@pytest.fixture(autouse=True)
def divisions(monkeypatch):
    """How the work of each pass was divided: read LSTM, memory, and backwards."""
    seen = []

    def divide(work, device):
        seen.append(plan.divide(work, device))
        return seen[-1]

    monkeypatch.setattr(triton_loop, "divide", divide)
    plan.divide.cache_clear()
    yield seen
    plan.divide.cache_clear()


@pytest.fixture
def settings(monkeypatch):
    """Set constants of the plan."""

    def set_all(**constants):
        for name, value in constants.items():
            assert hasattr(plan, name)
            monkeypatch.setattr(plan, name, value)
        plan.divide.cache_clear()

    if plan.INTERPRETED:
        set_all(PROGRAMS=2)  # fewer are faster
    return set_all


@pytest.fixture
def interpreted(settings):
    """For tests that want the interpreter, on a machine that has it."""
    if not plan.INTERPRETED:
        pytest.skip("runs in Triton's interpreter; with a CUDA device the tests marked gpu run instead")
    return settings


@pytest.fixture
def exactly(monkeypatch):
    """Products with all bits of float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    yield
    torch.set_float32_matmul_precision(before)


def assert_right(p, tolerance, device="cpu"):
    """Outputs and gradients of a problem, computed in float32; returns them."""
    got = p.to(device, torch.float32).both(triton)
    assert {t.dtype for t in tensors(got)} == {torch.float32}
    assert_near(got, exact(p), tolerance)
    return got


def exact(p):
    """By the reference in float64; of a moved problem, since that takes its words and its memory apart."""
    return p.to("cpu", torch.float64).both(reference.recurrence)


EXTRAS = {
    "nse": {"lengths": [3, 0, 5]},
    "no lengths": {"lengths": None},
    "not folded": {"T": 3},
    "1 shared": {"shared": (7,)},
    "2 shared": {"shared": (1, 17)},
    "dropout": {"dropout": 0.3},
    "dropout, shared, no lengths": {"dropout": 0.5, "shared": (3,), "lengths": None},
    "own start": {"slots": 11},
    "own start, some without steps": {"slots": 4, "lengths": [3, 0, 5]},
    "shared, some without steps": {"shared": (4,), "lengths": [3, 0, 5]},
    "empty start": {"slots": 0, "lengths": None},
    "empty start beside a shared memory": {"slots": 0, "shared": (4,), "dropout": 0.1},
}
COMPOSE = {"compose", "compose_back"}


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS.keys())
def test_equals_reference_phase_by_phase(extra, interpreted, calls, divisions):
    assert_right(problem(**{"B": 3, "T": 5, "k": 4, **extra}), 2e-5)
    assert {"attend", "write", "recall", "cell", "write_back"} <= {*calls}
    folded = not ("dropout" in extra or "T" in extra)
    assert COMPOSE & {*calls} == (set() if folded else COMPOSE)
    assert not any(d.resident or any(d.held) for d in divisions)


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS.keys())
def test_equals_reference_in_one_launch(extra, interpreted, calls, divisions):
    interpreted(**ALONE)
    assert_right(problem(**{"B": 3, "T": 5, "k": 4, **extra}), 2e-5)
    wanted = {"attend", "recall"} if "shared" in extra else {"attend_resident", "rebuild"}
    assert {"attend", "recall", "attend_resident", "rebuild"} & {*calls} == wanted
    assert calls["wait"] > 0
    assert calls["next_group"] >= 3 * len(divisions)  # a group for each sequence
    read, memory, memory_back, _ = divisions
    assert read.held[2]
    assert memory.held[0]
    assert memory.resident == memory_back.resident == ("shared" not in extra)


STACKS = {
    "2 layers": {"layers": 2, "T": 5, "lengths": [3, 0, 5]},
    "2 layers, no lengths, 1 shared": {"layers": 2, "lengths": None, "shared": (3,)},
    "2 layers, not folded": {"layers": 2, "T": 3},
    "2 layers, dropout, some without steps": {"layers": 2, "dropout": 0.3, "T": 3, "lengths": [2, 0, 3]},
    "2 layers, 2 shared": {"layers": 2, "B": 2, "shared": (1, 5)},
    "3 layers": {"layers": 3, "B": 2, "k": 5},
    "3 layers, dropout, 2 shared": {"layers": 3, "T": 2, "shared": (2, 3), "dropout": 0.5},
}


@pytest.mark.parametrize("driver", [{}, ALONE], ids=["phases", "one launch"])
@pytest.mark.parametrize("extra", STACKS.values(), ids=STACKS.keys())
def test_several_layers_equal_reference(extra, driver, interpreted, calls, divisions):
    interpreted(**driver)
    layers = extra["layers"]
    assert_right(problem(**{"B": 3, "T": 4, "k": 4, **extra}), 2e-5)
    assert {"write_upper" if not driver else "finish_upper", "upper_back"} <= {*calls}
    read, (memory, memory_back) = divisions[:layers], divisions[layers : layers + 2]
    assert len(divisions) == 2 * layers + 2  # each layer of the read LSTM is a loop of its own
    assert all(len(division.held) == 3 for division in read)
    assert memory.held[3:] == ((True, True) if driver else (False, False))
    assert memory_back.held[3:] == ((True,) if driver else (False,))


SHAPES = [(1, 1, 1), (1, 7, 33), (7, 1, 5), (33, 2, 1), (2, 17, 3), (5, 4, 63)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_reference_at_odd_shapes(shape, interpreted):
    B, T, k = shape
    assert_right(problem(B, T, k), 2e-5)
    assert T != 17 or plan.choose_interval(T) < T  # several memories were kept


def of_memory(divisions):
    """Those of the memory's loop, forward and backward: the layers of the read LSTM stand around them."""
    half = len(divisions) // 2
    return divisions[half - 1 : half + 1]


DIVISIONS = {  # settings, the problem, and what must be true of its forward and backward pass
    "blocks of slots": ({"BLOCK": 64}, {"B": 2, "slots": 7}, lambda d: d.parts == 1),
    "parts": ({"BLOCK": 64, "PROGRAMS": 6}, {"B": 1, "slots": 37}, lambda d: d.parts > 1),
    "parts, shared": (
        {"BLOCK": 32, "PROGRAMS": 8},
        {"B": 2, "slots": 5, "shared": (9,), "dropout": 0.2},
        lambda d: d.parts == 2,
    ),
    "groups": ({"MOST_ROWS": 3}, {"B": 8}, lambda d: d.groups > d.teams),
    "slices": ({"PROGRAMS": 1}, {"B": 2, "k": 40}, lambda d: not d.one_slice),
    "slices, not folded": ({"PROGRAMS": 1}, {"k": 40, "dropout": 0.2}, lambda d: not d.one_slice),
    "not held": ({**ALONE, "SHARED": 0}, {}, lambda d: not any(d.held)),
    "not resident": ({**ALONE, "RESIDENT": 0}, {}, lambda d: not d.resident),
    "rows of one program": ({**ALONE, "MOST_ROWS": 4}, {"B": 7}, lambda d: not d.resident and d.rows > 1),
    "slices in one launch": ({**ALONE}, {"k": 40}, lambda d: d.resident and not d.one_slice),
    "groups, layers": ({"MOST_ROWS": 1}, {"B": 4, "T": 3, "k": 5, "layers": 2}, lambda d: d.groups > d.teams),
    "parts, layers": (
        {"BLOCK": 64, "PROGRAMS": 6},
        {"B": 1, "T": 2, "slots": 17, "layers": 2},
        lambda d: d.parts > 1,
    ),
    "slices, layers": ({"PROGRAMS": 1}, {"B": 2, "T": 2, "k": 40, "layers": 2}, lambda d: not d.one_slice),
    "slices in one launch, layers": (
        {**ALONE},
        {"B": 1, "T": 2, "k": 40, "layers": 2},
        lambda d: not d.one_slice,
    ),
    "layers in one launch, not held": (
        {**ALONE, "SHARED": 0},
        {"B": 1, "T": 4, "layers": 3},
        lambda d: d.one_slice and not any(d.held),
    ),
}


@pytest.mark.parametrize(("constants", "extra", "as_meant"), DIVISIONS.values(), ids=DIVISIONS.keys())
def test_equals_reference_however_the_work_is_divided(
    constants, extra, as_meant, interpreted, calls, divisions
):
    interpreted(**constants)
    assert_right(problem(**{"T": 5, "k": 7, **extra}), 2e-5)
    memory, memory_back = of_memory(divisions)
    assert as_meant(memory)
    assert as_meant(memory_back)
    assert {"join", "join_back"} & {*calls} == ({"join", "join_back"} if memory.parts > 1 else set())


def test_no_function_of_the_kernels_is_left_out(interpreted, calls):
    modules = triton_kernels, triton_memory, triton_products
    jitted = type(triton_kernels.forward)
    all_names = {name for module in modules for name, each in vars(module).items() if type(each) is jitted}
    launched = {"fill_zeros", "forward", "backward", "forward_phase", "backward_phase"}
    interpreted(BLOCK=32, PROGRAMS=8)
    assert_right(problem(1, 3, 2, slots=9, shared=(1, 2), dropout=0.2), 2e-5)
    interpreted(BLOCK=8192, **ALONE)
    assert_right(problem(1, 4, 2), 2e-5)
    assert_right(problem(1, 4, 5, layers=2), 2e-5)
    interpreted(DRIVER="phases")
    assert_right(problem(1, 1, 2, layers=2), 2e-5)
    assert all_names - {*calls} == launched


@pytest.mark.parametrize("lengths", [None, [3, 0, 5]])
def test_nothing_is_read_before_it_is_written(lengths, interpreted):
    """PyTorch fills new tensors with NaN here."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        assert_right(problem(3, 5, 7, lengths=lengths, shared=(2,), dropout=0.2), 2e-5)
        assert_right(problem(3, 5, 7, lengths=lengths, layers=2), 2e-5)
    finally:
        torch.use_deterministic_algorithms(False)


def test_teams_side_by_side(interpreted, monkeypatch):
    """Each of two teams takes every other group."""
    interpreted(**ALONE)
    monkeypatch.setattr(
        triton_loop,
        "divide",
        lambda work, _: plan.make_division(work, teams=2, rows=1, programs=1, shared=plan.SHARED),
    )
    assert_right(problem(5, 4, 3), 2e-5)


@pytest.mark.parametrize("driver", [{}, ALONE], ids=["phases", "one launch"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)], ids=str)
def test_equals_reference_in_a_shorter_type(driver, dtype, tolerance, interpreted):
    interpreted(**driver)
    p = problem(3, 6, 5, dropout=0.2).to(dtype=dtype)
    got = p.both(triton)
    assert {t.dtype for t in tensors(got)} == {dtype}
    assert_near(got, exact(p), tolerance)


def test_weights_are_held_as_far_as_the_device_has_room(monkeypatch):
    work = plan.Work(
        128,
        300,
        (25,),
        (plan.MatrixProduct(1200, 300, 4), plan.MatrixProduct(), plan.MatrixProduct(1200, 300, 4)),
        4,
        32,
        False,
    )
    monkeypatch.setattr(plan, "DRIVER", "persistent")
    monkeypatch.setattr(plan, "SHARED", None)
    monkeypatch.setattr(plan, "PROGRAMS", 132)
    found = {}
    for kibibytes in (227, 163, 99, 48):
        plan.divide.cache_clear()
        monkeypatch.setattr(plan, "read_shared_memory", lambda _, room=kibibytes * 1024: room)
        division = plan.divide(work, torch.device("cuda"))
        found[kibibytes] = division.held
        tiles = division.at_once * plan.count_tile_bytes(division.rows, work.itemsize)
        weights = sum(
            product.count_held_bytes(width, work.itemsize)
            for product, width, held in zip(work.products, division.widths, division.held, strict=True)
            if held
        )
        assert not weights or weights + tiles <= kibibytes * 1024 - plan.RESERVE
    assert found[227] == (True, False, True)
    assert found[48] == (False, False, False)


def test_memories_of_many_sequences_stay_on_chip(monkeypatch):
    """Those of a batch of documents: then there are many groups of few sentences."""
    monkeypatch.setattr(plan, "DRIVER", "persistent")
    monkeypatch.setattr(plan, "PROGRAMS", 132)
    monkeypatch.setattr(plan, "SHARED", 217 * 1024)
    for products in (
        (plan.MatrixProduct(400, 200, 4), plan.MatrixProduct(200, 100), plan.MatrixProduct(400, 100, 4)),
        (plan.MatrixProduct(300, 400), plan.MatrixProduct(100, 200), plan.MatrixProduct()),
    ):
        plan.divide.cache_clear()
        division = plan.divide(plan.Work(1024, 100, (96,), products, 4, 16, True), torch.device("cuda"))
        assert division.resident
        assert division.rows <= division.programs
        assert division.groups > 4 * division.teams


def test_weights_that_are_held_leave_room_for_streaming_others(monkeypatch):
    shared = 227 * 1024 - plan.RESERVE
    monkeypatch.setattr(plan, "DRIVER", "persistent")
    k = 512
    products = (plan.MatrixProduct(4 * k, 4 * k), plan.MatrixProduct(2 * k, 3 * k), plan.MatrixProduct())
    for upper in ((), (plan.MatrixProduct(2 * k, 4 * k),), (plan.MatrixProduct(2 * k, 4 * k, times=2),)):
        work = plan.Work(64, k, (60, 30), products + upper, 4, 16, True, 1 + len(upper))
        for division in plan.list_divisions(work, 132, shared):
            pairs = [*zip(work.products, division.widths, division.held, strict=True)]
            weights = sum(product.count_held_bytes(width, 4) for product, width, held in pairs if held)
            streamed = plan.count_streaming_bytes(work, division.rows, division.widths, division.held)
            assert not weights or weights + streamed <= 227 * 1024


def test_autocast_multiplies_in_bfloat16(interpreted):
    p = problem(3, 5, 6, shared=(2,))
    in_float32 = p.to(dtype=torch.float32).run(triton)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = p.to(dtype=torch.float32).both(triton)
    assert {t.dtype for t in tensors(got)} == {torch.float32}
    assert not torch.equal(got[0].outputs, in_float32.outputs)
    assert_near(got, exact(p), 0.05)


def test_without_gradients_the_same_numbers(interpreted):
    p = problem(3, 5, 4, shared=(3,), dtype=torch.float32)
    with_gradients = p.run(triton)
    with torch.no_grad():
        assert_close(p.run(triton), with_gradients, 0)
        assert p.run(triton, keys=False).keys == ()


@pytest.mark.parametrize("driver", [{}, ALONE], ids=["phases", "one launch"])
def test_several_layers_in_a_shorter_type(driver, interpreted):
    interpreted(**driver)
    p = problem(2, 4, 5, shared=(2,), layers=2).to(dtype=torch.bfloat16)
    got = p.both(triton)
    assert {t.dtype for t in tensors(got)} == {torch.bfloat16}
    assert_near(got, exact(p), 0.05)


@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_of_the_outputs_alone(layers, interpreted):
    p = problem(3, 5 // layers, 4, shared=(3,), layers=layers)
    found = []
    for dtype, backend in ((torch.float32, triton), (torch.float64, reference.recurrence)):
        q = p.to(dtype=dtype)
        outputs = q.run(backend, keys=False).outputs.sum()
        gradients = torch.autograd.grad(outputs, q.leaves(), allow_unused=True)
        found.append(
            [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, q.leaves(), strict=True)]
        )
    assert_near(*found, 2e-5)


@pytest.mark.parametrize("driver", [{}, ALONE], ids=["phases", "one launch"])
def test_twice_the_same_to_the_bit(driver, interpreted):
    interpreted(**driver)
    p = problem(3, 5, 4, dropout=0.2, dtype=torch.float32)
    assert_close(p.both(triton), p.both(triton), 0)


def test_backward_twice_through_one_graph(interpreted):
    p = problem(2, 5, 4, dtype=torch.float32)
    outputs = p.run(triton).outputs.sum()
    first = torch.autograd.grad(outputs, p.leaves(), retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(outputs, p.leaves(), allow_unused=True)
    assert_close([g for g in first if g is not None], [g for g in again if g is not None], 0)


def test_arguments_are_left_as_they_were(interpreted):
    p = problem(2, 5, 4, shared=(2,), dropout=0.5, dtype=torch.float32)
    before = [leaf.clone() for leaf in p.leaves()]
    p.gradients(triton)
    assert_close(p.leaves(), before, 0)


@pytest.mark.parametrize(
    "extra",
    [{}, {"shared": (4,)}, {"layers": 2}],
    ids=["one launch", "phases", "layers"],
)
def test_what_stands_in_the_padding_does_not_matter(extra, interpreted):
    if not extra or "layers" in extra:
        interpreted(**ALONE)
    p = problem(3, 5, 4, lengths=[2, 5, 0], **extra, dtype=torch.float32)
    clean = p.both(triton)
    with torch.no_grad():
        p.x[0, 2:], p.x[2] = float("nan"), float("inf")
        for memory in p.memories:
            for b, size in enumerate(memory.lengths.tolist()):
                memory.slots[b, size:] = float("nan")
    assert_close(p.both(triton), clean, 0)


def test_keeps_no_memory_per_step(monkeypatch):
    monkeypatch.setattr(triton_loop, "launch", lambda *_: None)  # what is kept does not depend on the numbers
    monkeypatch.setattr(plan, "PROGRAMS", 2)
    k, kept = 16, {}

    def note(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    for T in (64, 256):
        kept.clear()
        p = problem(1, T, k, lengths=None, dtype=torch.float32)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            assert p.run(triton).outputs.requires_grad
        # z, o, m, h, c, gates and the like for each step, and one memory every sqrt(T) steps.
        assert sum(kept.values()) < T * (2 * T + 30 * k) + 2 * T**0.5 * (T * k)


def arguments_of_loop(p):
    """What `loop` is given for the memory of a problem."""
    given = []
    original = triton_recurrence.loop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_recurrence, "loop", lambda *a: given.append(a) or original(*a))
        p.run(triton)
    return tuple(
        a.detach().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in given[-1]
    )


@pytest.mark.parametrize(
    "extra", [{}, {"dropout": 0.4}, {"layers": 2, "T": 1}], ids=["folded", "dropout", "layers"]
)
def test_operator_keeps_the_rules_of_pytorch(extra, interpreted):
    extra = {"T": 4, "shared": (2,), **extra}
    p = problem(2, k=3, **extra, lengths=None, dtype=torch.float32)
    torch.library.opcheck(triton_loop.loop, arguments_of_loop(p))


class Tagger(torch.nn.Module):
    """A small model around an encoder."""

    def __init__(self, k, layers=1):
        super().__init__()
        self.before = torch.nn.Linear(k, k)
        self.encoder = nse.NSE(k, layers=layers, backend="triton")
        self.after = torch.nn.Linear(k, 2)

    def forward(self, x, lengths):
        return self.after(self.encoder(torch.tanh(self.before(x)), lengths).outputs)


def outputs_and_gradients(call, model, x, lengths):
    outputs = call(x, lengths)
    return outputs, torch.autograd.grad(outputs.square().sum(), [x, *model.parameters()])


@pytest.fixture
def allow_rnn():
    """An `nn.LSTM` that only holds weights can be compiled, but the compiler wants to be told."""
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("layers", [1, 2])
def test_compiles_whole(layers, interpreted, allow_rnn):
    model, x = Tagger(4, layers), torch.randn(3, 5, 4, requires_grad=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    lengths = torch.tensor([5, 0, 3])
    got = outputs_and_gradients(compiled, model, x, lengths)
    assert_close(got, outputs_and_gradients(model, model, x, lengths), 1e-6)


@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_compiles_in_pieces_without_being_told_anything(interpreted):
    model, x = Tagger(4), torch.randn(3, 5, 4, requires_grad=True)
    lengths = torch.tensor([5, 0, 3])
    got = outputs_and_gradients(torch.compile(model, backend="aot_eager"), model, x, lengths)
    assert_close(got, outputs_and_gradients(model, model, x, lengths), 1e-6)


# From here on: compiled, on a GPU.


def random_problem(B, T, k, **extra):
    """With fresh random numbers of a size that k can bear."""
    return problem(B, T, k, **{"scale": min(0.5, 1.5 / math.sqrt(k)), "seed": B * T + k, **extra})


ON_GPU = [  # not more than needed: each compiles up to four kernels, a few seconds each
    (1, 1, 1, {}),
    (7, 1, 5, {"shared": (7,)}),
    (33, 7, 1, {}),
    (2, 63, 3, {"dropout": 0.3}),
    (5, 10, 63, {}),
    (5, 10, 63, {"lengths": None}),
    (5, 10, 63, {"slots": 11}),
    (5, 10, 63, {"slots": 0, "lengths": None}),
    (5, 10, 63, {"dropout": 0.5, "shared": (3,), "lengths": None}),
    (40, 9, 33, {"shared": (1, 33), "dropout": 0.2}),
    (130, 12, 64, {}),
    (3, 70, 100, {}),
    (2, 70, 100, {"slots": 90, "shared": (7, 2)}),
    (20, 25, 300, {}),
    (20, 25, 300, {"dropout": 0.3, "shared": (9,)}),
    (700, 4, 16, {}),
    (900, 12, 100, {"dropout": 0.15}),
    (2, 5, 1100, {}),
    (5, 10, 63, {"layers": 2}),
    (33, 7, 33, {"layers": 3, "dropout": 0.3, "shared": (1, 9)}),
    (1, 12, 100, {"layers": 2, "slots": 700}),
    (4, 40, 512, {"layers": 2, "shared": (30,)}),
    (4, 40, 512, {"layers": 2, "shared": (30,), "dropout": 0.3}),
    (64, 8, 512, {"layers": 2, "shared": (30,)}),
    (64, 8, 512, {"layers": 2, "shared": (30,), "dropout": 0.3}),
    (64, 8, 512, {"shared": (30,), "dropout": 0.3}),
    (20, 25, 300, {"layers": 2}),
    (4, 5, 300, {"layers": 4}),
]


def name_of(value):
    return "-".join(f"{key}={value[key]}" for key in value) if isinstance(value, dict) else str(value)


@pytest.mark.gpu
@pytest.mark.parametrize(("B", "T", "k", "extra"), ON_GPU, ids=name_of)
def test_equals_reference_on_gpu(B, T, k, extra, exactly):
    p = random_problem(B, T, k, **extra)
    got = assert_right(p, 5e-5, "cuda")
    assert_close(p.to("cuda", torch.float32).both(triton), got, 0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("B", "T", "k", "extra"),
    [
        (5, 10, 63, {"shared": (7,), "dropout": 0.3}),
        (20, 25, 300, {}),
        (4, 40, 512, {"layers": 2, "shared": (30,), "dropout": 0.3}),
    ],
    ids=name_of,
)
@pytest.mark.parametrize("kind", ["tf32", "bfloat16", "autocast"])
def test_equals_reference_in_lower_precision_on_gpu(B, T, k, extra, kind, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    p = random_problem(B, T, k, **extra)
    if kind == "bfloat16":
        p = p.to(dtype=torch.bfloat16)
    rounded = p.to("cuda", torch.bfloat16 if kind == "bfloat16" else torch.float32)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=kind == "autocast"):
        got, again = rounded.both(triton), rounded.both(triton)
    assert {t.dtype for t in tensors(got)} == {rounded.x.dtype}
    assert_near(got, exact(p), 1e-2 if kind == "tf32" else 0.06)
    assert_close(again, got, 0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "extra", [{}, {"dropout": 0.5, "shared": (3,), "lengths": None}, {"layers": 3}], ids=name_of
)
def test_phase_by_phase_on_gpu(extra, settings, exactly):
    settings(DRIVER="phases")
    assert_right(random_problem(5, 10, 63, **extra), 5e-5, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("constants", "extra", "as_meant"),
    [
        ({"SHARED": 0, "RESIDENT": 0}, {}, lambda d: not d.resident and not any(d.held)),
        ({}, {"B": 1, "slots": 700}, lambda d: d.parts > 1),
        ({"PROGRAMS": 2, "MOST_ROWS": 3}, {"B": 16}, lambda d: d.groups > d.teams and not d.one_slice),
        ({"SHARED": 0}, {"layers": 2}, lambda d: not any(d.held)),
        (
            {"PROGRAMS": 2, "MOST_ROWS": 3},
            {"B": 16, "layers": 2},
            lambda d: d.groups > d.teams and not d.one_slice,
        ),
    ],
    ids=["not held", "parts", "groups and slices", "layers not held", "layers, groups and slices"],
)
def test_equals_reference_however_the_work_is_divided_on_gpu(
    constants, extra, as_meant, settings, divisions, exactly
):
    settings(**constants)
    assert_right(random_problem(**{"B": 5, "T": 10, "k": 63, **extra}), 5e-5, "cuda")
    memory, memory_back = of_memory(divisions)
    assert as_meant(memory)
    assert as_meant(memory_back)


def tagger_on_gpu(B=5, T=10, k=63, layers=1):
    x = torch.randn(B, T, k, device="cuda", requires_grad=True)
    return Tagger(k, layers).cuda(), x, torch.randint(0, T + 1, (B,), device="cuda")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("layers", [1, 2])
def test_compiles_on_gpu(layers, exactly, allow_rnn):
    model, x, lengths = tagger_on_gpu(layers=layers)
    compiled = torch.compile(model, fullgraph=True)
    got = outputs_and_gradients(compiled, model, x, lengths)
    assert_near(got, outputs_and_gradients(model, model, x, lengths), 1e-5)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # of a leaf met on two streams
@pytest.mark.parametrize(
    "sizes", [{}, {"layers": 2}, {"B": 4, "T": 40, "k": 512, "layers": 2}], ids=["1", "2", "2-512"]
)
def test_replayed_graph_equals_eager_on_gpu(sizes, exactly):
    model, x, lengths = tagger_on_gpu(**sizes)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            outputs_and_gradients(model, model, x, lengths)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = outputs_and_gradients(model, model, x, lengths)
    for _ in range(3):
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
            lengths.copy_(torch.randint_like(lengths, 0, x.shape[1] + 1))
        graph.replay()
        assert_close(captured, outputs_and_gradients(model, model, x, lengths), 1e-6)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # of a leaf met on two streams
@pytest.mark.timeout(60, method="thread")  # programs that wait for ever cannot be interrupted
def test_two_streams_at_the_same_time_on_gpu(exactly):
    problems = [random_problem(5, 10, 63, seed=seed).to("cuda", torch.float32) for seed in range(2)]
    wanted = [p.both(triton) for p in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    found = []
    for _ in range(20):
        for p, stream in zip(problems, streams, strict=True):
            with torch.cuda.stream(stream):
                found.append(p.both(triton))
    torch.cuda.synchronize()
    for i, got in enumerate(found):
        assert_close(got, wanted[i % 2], 0)


@pytest.mark.gpu
def test_auto_is_triton_on_gpu(monkeypatch):
    monkeypatch.delenv("NSE_BACKEND", raising=False)
    called = []
    original = BACKENDS["triton"]
    monkeypatch.setitem(BACKENDS, "triton", lambda *a: called.append("triton") or original(*a))
    nse.NSE(8, device="cuda")(torch.randn(2, 5, 8, device="cuda"))
    assert called == ["triton"]
