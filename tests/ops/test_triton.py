"""The Triton kernels compute the reference's function: in Triton's interpreter, and compiled on a GPU."""

import math
from collections import Counter

import pytest
import torch

import nse
from nse.ops import reference
from nse.ops.dispatch import BACKENDS
from oracle.problems import assert_close, assert_near, list_tensors, make_problem

pytest.importorskip("triton")
with pytest.MonkeyPatch.context() as patch:
    if not torch.cuda.is_available():
        patch.setenv("TRITON_INTERPRET", "1")
    from nse.ops.triton import driver as driver_module
    from nse.ops.triton import kernels, memory, plan, products
    from nse.ops.triton import recurrence as triton_recurrence

triton = triton_recurrence.recurrence

# The interpreter computes with numpy also what a mask discards afterwards.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")

ONE_PROGRAM = {"DRIVER": "persistent", "PROGRAMS": 1, "MAX_ROWS": 1}
"""One launch for all steps in the interpreter: a team of one program never waits."""


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """Count the calls of each kernel function in the interpreter; also fix and speed up the interpreter."""
    counted, prepared = Counter(), set()
    if plan.INTERPRETED:
        from triton.runtime import interpreter

        def call(self, *args, **kwargs):
            counted[self.fn.__name__] += 1
            if self.fn.__module__ not in prepared:  # patching once is enough, and takes half of the time
                interpreter._patch_lang(self.fn)
                prepared.add(self.fn.__module__)
            return self.rewrite()(*args, **kwargs)

        multiply = interpreter.InterpreterBuilder.create_dot

        def dot(self, a, b, *rest):
            return multiply(self, *(widen(operand) for operand in (a, b)), *rest)

        def widen(operand):  # numpy has no bfloat16: the interpreter would multiply its bits as integers
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
    """Record the division of each pass: read LSTM, memory, and backward."""
    recorded = []

    def divide(work, device):
        recorded.append(plan.divide(work, device))
        return recorded[-1]

    monkeypatch.setattr(driver_module, "divide", divide)
    plan.divide.cache_clear()
    yield recorded
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
    """Skip unless kernels run in the interpreter; return `settings`."""
    if not plan.INTERPRETED:
        pytest.skip("runs in Triton's interpreter; with a CUDA device the tests marked gpu run instead")
    return settings


@pytest.fixture
def full_float32(monkeypatch):
    """Turn TF32 off."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    yield
    torch.set_float32_matmul_precision(before)


def assert_equals_reference(p, tolerance, device="cpu"):
    """Compare outputs and gradients of a problem in float32 with the reference's; return them."""
    got = p.to(device, torch.float32).outputs_and_gradients(triton)
    assert {t.dtype for t in list_tensors(got)} == {torch.float32}
    assert_near(got, run_reference(p), tolerance)
    return got


def run_reference(p):
    """Run the reference in float64, on a copy whose x and memory are separate leaves."""
    return p.to("cpu", torch.float64).outputs_and_gradients(reference.recurrence)


EXTRAS = {
    "nse": {"lengths": [3, 0, 4]},
    "no lengths": {"lengths": None},
    "not folded": {"T": 3},
    "1 shared": {"shared": (7,)},
    "2 shared": {"shared": (1, 17)},
    "dropout": {"dropout": 0.3},
    "dropout, shared, no lengths": {"dropout": 0.5, "shared": (3,), "lengths": None},
    "own start": {"slots": 11},
    "own start, some without steps": {"slots": 4, "lengths": [3, 0, 4]},
    "shared, some without steps": {"shared": (4,), "lengths": [3, 0, 4]},
    "empty start": {"slots": 0, "lengths": None},
    "empty start beside a shared memory": {"slots": 0, "shared": (4,), "dropout": 0.1},
}
COMPOSE = {"compose", "compose_back"}


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS.keys())
def test_kernels_launched_phase_by_phase_equal_the_reference(extra, interpreted, calls, divisions):
    assert_equals_reference(make_problem(**{"B": 3, "T": 4, "k": 4, **extra}), 2e-5)
    assert {"attend", "write", "recall", "backprop_top_cell", "write_back"} <= {*calls}
    folded = not ("dropout" in extra or "T" in extra)
    assert COMPOSE & {*calls} == (set() if folded else COMPOSE)
    assert not any(d.resident or any(d.held) for d in divisions)


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS.keys())
def test_persistent_kernels_equal_the_reference(extra, interpreted, calls, divisions):
    interpreted(**ONE_PROGRAM)
    assert_equals_reference(make_problem(**{"B": 3, "T": 4, "k": 4, **extra}), 2e-5)
    expected = {"attend", "recall"} if "shared" in extra else {"attend_resident", "rebuild"}
    assert {"attend", "recall", "attend_resident", "rebuild"} & {*calls} == expected
    assert calls["wait"] > 0
    assert calls["take_group"] >= 3 * len(divisions)  # one group per sequence
    read, memory, memory_back, _ = divisions
    assert read.held[2]
    assert memory.held[0]
    assert memory.resident == memory_back.resident == ("shared" not in extra)


STACKS = {
    "2 layers": {"layers": 2, "T": 4, "lengths": [3, 0, 4]},
    "2 layers, no lengths, 1 shared": {"layers": 2, "lengths": None, "shared": (3,)},
    "2 layers, not folded": {"layers": 2, "T": 3},
    "2 layers, dropout, some without steps": {"layers": 2, "dropout": 0.3, "T": 3, "lengths": [2, 0, 3]},
    "2 layers, 2 shared": {"layers": 2, "B": 2, "shared": (1, 5)},
    "3 layers": {"layers": 3, "B": 2, "k": 5},
    "3 layers, dropout, 2 shared": {"layers": 3, "T": 2, "shared": (2, 3), "dropout": 0.5},
}


@pytest.mark.parametrize("driver", [{}, ONE_PROGRAM], ids=["phases", "one launch"])
@pytest.mark.parametrize("extra", STACKS.values(), ids=STACKS.keys())
def test_several_layers_equal_the_reference(extra, driver, interpreted, calls, divisions):
    interpreted(**driver)
    layers = extra["layers"]
    assert_equals_reference(make_problem(**{"B": 3, "T": 3, "k": 4, **extra}), 2e-5)
    assert {"write_upper" if not driver else "finish_upper", "upper_back"} <= {*calls}
    read, (memory, memory_back) = divisions[:layers], divisions[layers : layers + 2]
    assert len(divisions) == 2 * layers + 2  # each layer of the read LSTM is a loop
    assert all(len(division.held) == 3 for division in read)
    assert memory.held[3:] == ((True, True) if driver else (False, False))
    assert memory_back.held[3:] == ((True,) if driver else (False,))


SHAPES = [(1, 1, 1), (1, 7, 33), (7, 1, 5), (17, 2, 1), (2, 9, 3), (5, 4, 63)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_odd_shapes_equal_the_reference(shape, interpreted):
    B, T, k = shape
    assert_equals_reference(make_problem(B, T, k), 2e-5)
    assert T != 17 or plan.choose_interval(T) < T  # several memories were kept


def select_memory(divisions):
    """Return the memory's divisions, forward and backward; those of the read LSTM are around them."""
    half = len(divisions) // 2
    return divisions[half - 1 : half + 1]


DIVISIONS = {  # settings, problem, and a condition on the divisions of its forward and backward pass
    "blocks of slots": ({"BLOCK": 64}, {"B": 2, "slots": 7}, lambda d: d.parts == 1),
    "parts": ({"BLOCK": 64, "PROGRAMS": 6}, {"B": 1, "slots": 37}, lambda d: d.parts > 1),
    "parts, shared": (
        {"BLOCK": 32, "PROGRAMS": 8},
        {"B": 2, "slots": 5, "shared": (9,), "dropout": 0.2},
        lambda d: d.parts == 2,
    ),
    "groups": ({"MAX_ROWS": 3}, {"B": 8}, lambda d: d.groups > d.teams),
    "slices": ({"PROGRAMS": 1}, {"B": 2, "k": 40}, lambda d: not d.one_slice),
    "slices, not folded": ({"PROGRAMS": 1}, {"k": 40, "dropout": 0.2}, lambda d: not d.one_slice),
    "not held": ({**ONE_PROGRAM, "SHARED": 0}, {}, lambda d: not any(d.held)),
    "not resident": ({**ONE_PROGRAM, "RESIDENT": 0}, {}, lambda d: not d.resident),
    "rows of one program": (
        {**ONE_PROGRAM, "MAX_ROWS": 4},
        {"B": 7},
        lambda d: not d.resident and d.rows > 1,
    ),
    "slices in one launch": ({**ONE_PROGRAM}, {"k": 40}, lambda d: d.resident and not d.one_slice),
    "groups, layers": ({"MAX_ROWS": 1}, {"B": 4, "T": 3, "k": 5, "layers": 2}, lambda d: d.groups > d.teams),
    "parts, layers": (
        {"BLOCK": 64, "PROGRAMS": 6},
        {"B": 1, "T": 2, "slots": 17, "layers": 2},
        lambda d: d.parts > 1,
    ),
    "slices, layers": ({"PROGRAMS": 1}, {"B": 2, "T": 2, "k": 40, "layers": 2}, lambda d: not d.one_slice),
    "slices in one launch, layers": (
        {**ONE_PROGRAM},
        {"B": 1, "T": 2, "k": 40, "layers": 2},
        lambda d: not d.one_slice,
    ),
    "layers in one launch, not held": (
        {**ONE_PROGRAM, "SHARED": 0},
        {"B": 1, "T": 4, "layers": 3},
        lambda d: d.one_slice and not any(d.held),
    ),
}


@pytest.mark.parametrize(("constants", "extra", "condition"), DIVISIONS.values(), ids=DIVISIONS.keys())
def test_every_division_of_the_work_equals_the_reference(
    constants, extra, condition, interpreted, calls, divisions
):
    interpreted(**constants)
    assert_equals_reference(make_problem(**{"T": 4, "k": 7, **extra}), 2e-5)
    memory, memory_back = select_memory(divisions)
    assert condition(memory)
    assert condition(memory_back)
    assert {"join", "join_back"} & {*calls} == ({"join", "join_back"} if memory.parts > 1 else set())


def test_every_kernel_function_is_tested(interpreted, calls):
    modules = kernels, memory, products
    jitted = type(kernels.forward)
    all_names = {name for module in modules for name, value in vars(module).items() if type(value) is jitted}
    launched = {"fill_zeros", "forward", "backward", "forward_phase", "backward_phase"}
    interpreted(BLOCK=32, PROGRAMS=8)
    assert_equals_reference(make_problem(1, 3, 2, slots=9, shared=(1, 2), dropout=0.2), 2e-5)
    interpreted(BLOCK=8192, **ONE_PROGRAM)
    assert_equals_reference(make_problem(1, 4, 2), 2e-5)
    assert_equals_reference(make_problem(1, 4, 5, layers=2), 2e-5)
    interpreted(DRIVER="phases")
    assert_equals_reference(make_problem(1, 1, 2, layers=2), 2e-5)
    assert all_names - {*calls} == launched


@pytest.mark.parametrize("lengths", [None, [3, 0, 4]])
def test_no_memory_is_read_before_it_is_written(lengths, interpreted):
    """In deterministic mode PyTorch fills new tensors with NaN."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3).isnan().all()
        assert_equals_reference(make_problem(3, 4, 7, lengths=lengths, shared=(2,), dropout=0.2), 2e-5)
        assert_equals_reference(make_problem(3, 4, 7, lengths=lengths, layers=2), 2e-5)
    finally:
        torch.use_deterministic_algorithms(False)


def test_two_teams_that_take_groups_in_turn_equal_the_reference(interpreted, monkeypatch):
    interpreted(**ONE_PROGRAM)
    monkeypatch.setattr(
        driver_module,
        "divide",
        lambda work, _: plan.make_division(work, teams=2, rows=1, programs=1, shared=plan.SHARED),
    )
    assert_equals_reference(make_problem(5, 4, 3), 2e-5)


@pytest.mark.parametrize("driver", [{}, ONE_PROGRAM], ids=["phases", "one launch"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)], ids=str)
def test_half_precision_equals_the_reference(driver, dtype, tolerance, interpreted):
    interpreted(**driver)
    p = make_problem(3, 6, 5, dropout=0.2).to(dtype=dtype)
    got = p.outputs_and_gradients(triton)
    assert {t.dtype for t in list_tensors(got)} == {dtype}
    assert_near(got, run_reference(p), tolerance)


def test_weights_are_held_if_shared_memory_is_large_enough(monkeypatch):
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
    held_by_size = {}
    for kibibytes in (227, 163, 99, 48):
        plan.divide.cache_clear()
        monkeypatch.setattr(plan, "read_shared_memory", lambda _, room=kibibytes * 1024: room)
        division = plan.divide(work, torch.device("cuda"))
        held_by_size[kibibytes] = division.held
        tiles = division.at_once * plan.count_tile_bytes(division.rows, work.itemsize)
        weights = sum(
            product.count_held_bytes(width, work.itemsize)
            for product, width, held in zip(work.products, division.widths, division.held, strict=True)
            if held
        )
        assert not weights or weights + tiles <= kibibytes * 1024 - plan.RESERVE
    assert held_by_size[227] == (True, False, True)
    assert held_by_size[48] == (False, False, False)


def test_memories_of_a_large_batch_stay_in_registers(monkeypatch):
    """As in a batch of documents: there are many groups of few sentences."""
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


def test_held_weights_leave_shared_memory_for_streamed_ones(monkeypatch):
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
    p = make_problem(3, 5, 6, shared=(2,))
    in_float32 = p.to(dtype=torch.float32).run(triton)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = p.to(dtype=torch.float32).outputs_and_gradients(triton)
    assert {t.dtype for t in list_tensors(got)} == {torch.float32}
    assert not torch.equal(got[0].outputs, in_float32.outputs)
    assert_near(got, run_reference(p), 0.05)


def test_outputs_are_the_same_without_gradients(interpreted):
    p = make_problem(3, 5, 4, shared=(3,), dtype=torch.float32)
    with_gradients = p.run(triton)
    with torch.no_grad():
        assert_close(p.run(triton), with_gradients, 0)
        assert p.run(triton, keys=False).keys == ()


@pytest.mark.parametrize("driver", [{}, ONE_PROGRAM], ids=["phases", "one launch"])
def test_several_layers_in_bfloat16_equal_the_reference(driver, interpreted):
    interpreted(**driver)
    p = make_problem(2, 4, 5, shared=(2,), layers=2).to(dtype=torch.bfloat16)
    got = p.outputs_and_gradients(triton)
    assert {t.dtype for t in list_tensors(got)} == {torch.bfloat16}
    assert_near(got, run_reference(p), 0.05)


@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_of_only_the_outputs_equal_the_reference(layers, interpreted):
    p = make_problem(3, 5 // layers, 4, shared=(3,), layers=layers)
    gradients_of_sides = []
    for dtype, backend in ((torch.float32, triton), (torch.float64, reference.recurrence)):
        q = p.to(dtype=dtype)
        outputs = q.run(backend, keys=False).outputs.sum()
        gradients = torch.autograd.grad(outputs, q.leaves(), allow_unused=True)
        gradients_of_sides.append(
            [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, q.leaves(), strict=True)]
        )
    assert_near(*gradients_of_sides, 2e-5)


@pytest.mark.parametrize("driver", [{}, ONE_PROGRAM], ids=["phases", "one launch"])
def test_results_are_deterministic_to_the_bit(driver, interpreted):
    interpreted(**driver)
    p = make_problem(3, 5, 4, dropout=0.2, dtype=torch.float32)
    assert_close(p.outputs_and_gradients(triton), p.outputs_and_gradients(triton), 0)


def test_a_graph_can_be_differentiated_twice(interpreted):
    p = make_problem(2, 5, 4, dtype=torch.float32)
    outputs = p.run(triton).outputs.sum()
    first = torch.autograd.grad(outputs, p.leaves(), retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(outputs, p.leaves(), allow_unused=True)
    assert_close([g for g in first if g is not None], [g for g in again if g is not None], 0)


def test_arguments_are_not_changed(interpreted):
    p = make_problem(2, 5, 4, shared=(2,), dropout=0.5, dtype=torch.float32)
    before = [leaf.clone() for leaf in p.leaves()]
    p.gradients(triton)
    assert_close(p.leaves(), before, 0)


@pytest.mark.parametrize(
    "extra", [{}, {"shared": (4,)}, {"layers": 2}], ids=["one launch", "phases", "layers"]
)
def test_nan_in_the_padding_changes_nothing(extra, interpreted):
    if not extra or "layers" in extra:
        interpreted(**ONE_PROGRAM)
    p = make_problem(3, 5, 4, lengths=[2, 5, 0], **extra, dtype=torch.float32)
    clean = p.outputs_and_gradients(triton)
    with torch.no_grad():
        p.x[0, 2:], p.x[2] = float("nan"), float("inf")
        for memory in p.memories:
            for b, size in enumerate(memory.lengths.tolist()):
                memory.slots[b, size:] = float("nan")
    assert_close(p.outputs_and_gradients(triton), clean, 0)


def test_the_memory_is_not_kept_for_every_step(monkeypatch):
    monkeypatch.setattr(
        driver_module, "launch", lambda *_: None
    )  # what is kept does not depend on the values
    monkeypatch.setattr(plan, "PROGRAMS", 2)
    k, kept = 16, {}

    def note(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    for T in (64, 256):
        kept.clear()
        p = make_problem(1, T, k, lengths=None, dtype=torch.float32)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            assert p.run(triton).outputs.requires_grad
        # z, o, m, h, c, gates and the like for each step, and one memory every sqrt(T) steps.
        assert sum(kept.values()) < T * (2 * T + 30 * k) + 2 * T**0.5 * (T * k)


def record_loop_arguments(p):
    """Return the arguments of the memory's `loop` in a problem."""
    recorded = []
    original = triton_recurrence.loop
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_recurrence, "loop", lambda *a: recorded.append(a) or original(*a))
        p.run(triton)
    return tuple(
        a.detach().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in recorded[-1]
    )


@pytest.mark.parametrize(
    "extra", [{}, {"dropout": 0.4}, {"layers": 2, "T": 1}], ids=["folded", "dropout", "layers"]
)
def test_the_operator_passes_opcheck(extra, interpreted):
    extra = {"T": 4, "shared": (2,), **extra}
    p = make_problem(2, k=3, **extra, lengths=None, dtype=torch.float32)
    torch.library.opcheck(driver_module.loop, record_loop_arguments(p))


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
    """Allow the compiler to see an `nn.LSTM`, which here only holds weights."""
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("layers", [1, 2])
def test_a_model_compiles_without_graph_breaks(layers, interpreted, allow_rnn):
    model, x = Tagger(4, layers), torch.randn(3, 5, 4, requires_grad=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    lengths = torch.tensor([5, 0, 3])
    got = outputs_and_gradients(compiled, model, x, lengths)
    assert_close(got, outputs_and_gradients(model, model, x, lengths), 1e-6)


@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_a_model_compiles_with_default_settings(interpreted):
    model, x = Tagger(4), torch.randn(3, 5, 4, requires_grad=True)
    lengths = torch.tensor([5, 0, 3])
    got = outputs_and_gradients(torch.compile(model, backend="aot_eager"), model, x, lengths)
    assert_close(got, outputs_and_gradients(model, model, x, lengths), 1e-6)


# From here on: compiled, on a GPU.


def random_problem(B, T, k, **extra):
    """Make a problem with random numbers scaled for k."""
    return make_problem(B, T, k, **{"scale": min(0.5, 1.5 / math.sqrt(k)), "seed": B * T + k, **extra})


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


def describe_case(value):
    return "-".join(f"{key}={value[key]}" for key in value) if isinstance(value, dict) else str(value)


@pytest.mark.gpu
@pytest.mark.parametrize(("B", "T", "k", "extra"), ON_GPU, ids=describe_case)
def test_the_gpu_equals_the_reference(B, T, k, extra, full_float32):
    p = random_problem(B, T, k, **extra)
    got = assert_equals_reference(p, 5e-5, "cuda")
    assert_close(p.to("cuda", torch.float32).outputs_and_gradients(triton), got, 0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("B", "T", "k", "extra"),
    [
        (5, 10, 63, {"shared": (7,), "dropout": 0.3}),
        (20, 25, 300, {}),
        (4, 40, 512, {"layers": 2, "shared": (30,), "dropout": 0.3}),
    ],
    ids=describe_case,
)
@pytest.mark.parametrize("kind", ["tf32", "bfloat16", "autocast"])
def test_lower_precision_on_the_gpu_equals_the_reference(B, T, k, extra, kind, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    p = random_problem(B, T, k, **extra)
    if kind == "bfloat16":
        p = p.to(dtype=torch.bfloat16)
    rounded = p.to("cuda", torch.bfloat16 if kind == "bfloat16" else torch.float32)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=kind == "autocast"):
        got, again = rounded.outputs_and_gradients(triton), rounded.outputs_and_gradients(triton)
    assert {t.dtype for t in list_tensors(got)} == {rounded.x.dtype}
    assert_near(got, run_reference(p), 1e-2 if kind == "tf32" else 0.06)
    assert_close(again, got, 0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "extra", [{}, {"dropout": 0.5, "shared": (3,), "lengths": None}, {"layers": 3}], ids=describe_case
)
def test_kernels_launched_phase_by_phase_on_the_gpu_equal_the_reference(extra, settings, full_float32):
    settings(DRIVER="phases")
    assert_equals_reference(random_problem(5, 10, 63, **extra), 5e-5, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("constants", "extra", "condition"),
    [
        ({"SHARED": 0, "RESIDENT": 0}, {}, lambda d: not d.resident and not any(d.held)),
        ({}, {"B": 1, "slots": 700}, lambda d: d.parts > 1),
        ({"PROGRAMS": 2, "MAX_ROWS": 3}, {"B": 16}, lambda d: d.groups > d.teams and not d.one_slice),
        ({"SHARED": 0}, {"layers": 2}, lambda d: not any(d.held)),
        (
            {"PROGRAMS": 2, "MAX_ROWS": 3},
            {"B": 16, "layers": 2},
            lambda d: d.groups > d.teams and not d.one_slice,
        ),
    ],
    ids=["not held", "parts", "groups and slices", "layers not held", "layers, groups and slices"],
)
def test_every_division_of_the_work_on_the_gpu_equals_the_reference(
    constants, extra, condition, settings, divisions, full_float32
):
    settings(**constants)
    assert_equals_reference(random_problem(**{"B": 5, "T": 10, "k": 63, **extra}), 5e-5, "cuda")
    memory, memory_back = select_memory(divisions)
    assert condition(memory)
    assert condition(memory_back)


def make_tagger_on_gpu(B=5, T=10, k=63, layers=1):
    x = torch.randn(B, T, k, device="cuda", requires_grad=True)
    return Tagger(k, layers).cuda(), x, torch.randint(0, T + 1, (B,), device="cuda")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("layers", [1, 2])
def test_a_compiled_model_equals_eager_on_the_gpu(layers, full_float32, allow_rnn):
    model, x, lengths = make_tagger_on_gpu(layers=layers)
    compiled = torch.compile(model, fullgraph=True)
    got = outputs_and_gradients(compiled, model, x, lengths)
    assert_near(got, outputs_and_gradients(model, model, x, lengths), 1e-5)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # of a leaf met on two streams
@pytest.mark.parametrize(
    "sizes", [{}, {"layers": 2}, {"B": 4, "T": 40, "k": 512, "layers": 2}], ids=["1", "2", "2-512"]
)
def test_a_replayed_cuda_graph_equals_eager(sizes, full_float32):
    model, x, lengths = make_tagger_on_gpu(**sizes)
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
@pytest.mark.timeout(60, method="thread")  # a deadlock of programs cannot be interrupted
def test_calls_on_two_streams_do_not_disturb_each_other(full_float32):
    problems = [random_problem(5, 10, 63, seed=seed).to("cuda", torch.float32) for seed in range(2)]
    expected = [p.outputs_and_gradients(triton) for p in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for p, stream in zip(problems, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append(p.outputs_and_gradients(triton))
    torch.cuda.synchronize()
    for i, got in enumerate(results):
        assert_close(got, expected[i % 2], 0)


@pytest.mark.gpu
def test_auto_chooses_triton_on_the_gpu(monkeypatch):
    monkeypatch.delenv("NSE_BACKEND", raising=False)
    called = []
    original = BACKENDS["triton"]
    monkeypatch.setitem(BACKENDS, "triton", lambda *a: called.append("triton") or original(*a))
    nse.NSE(8, device="cuda")(torch.randn(2, 5, 8, device="cuda"))
    assert called == ["triton"]
