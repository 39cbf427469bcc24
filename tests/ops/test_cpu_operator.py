"""The CPU kernel inside PyTorch's compiler, export, autocast and function transforms."""

import pytest
import torch

import nse
from nse.ops import dispatch, reference, torch_loop
from nse.ops.cpu import call, operators
from nse.ops.cpu.library import explain_no_kernel
from oracle.problems import Problem, assert_close, list_tensors, make_problem

pytestmark = pytest.mark.skipif(explain_no_kernel() is not None, reason="there is no CPU kernel")

CASES = {
    "nse": {},
    "shared, 2 layers": {"shared": (2,), "layers": 2},
    "dropout": {"dropout": 0.4},
    "no lengths": {"lengths": None},
}


def make_float32(*sizes, **extra):
    """Make a problem in which x and its memory are two tensors."""
    return make_problem(*sizes, **extra).to(dtype=torch.float32)


def record_arguments(p, keep):
    """Record the arguments of the forward operator."""
    recorded, original = [], torch.ops.nse.cpu_forward
    with pytest.MonkeyPatch.context() as patch, torch.set_grad_enabled(keep):
        patch.setattr(torch.ops.nse, "cpu_forward", lambda *a: recorded.append(a) or original(*a))
        p.run(operators.recurrence)

    def detach(tree):
        if isinstance(tree, torch.Tensor):
            return tree.detach().requires_grad_(keep and tree.requires_grad)
        return [detach(part) for part in tree] if isinstance(tree, list) else tree

    return tuple(map(detach, recorded[0]))


@pytest.mark.parametrize("keep", [True, False], ids=["training", "answers"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_operator_passes_opcheck(case, keep):
    arguments = record_arguments(make_float32(2, 4, 3, **case), keep)
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    torch.library.opcheck(torch.ops.nse.cpu_forward.default, arguments, test_utils=checks)


# Not where a backward pass follows: what is kept for it has a size that a compiler cannot know, and gaps.
@pytest.mark.slow  # the compiler takes its time
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_operator_for_answers_passes_opcheck_of_the_compiler(case):
    arguments = record_arguments(make_float32(2, 4, 3, **case), keep=False)
    checks = ["test_aot_dispatch_static", "test_aot_dispatch_dynamic"]
    torch.library.opcheck(torch.ops.nse.cpu_forward.default, arguments, test_utils=checks)


def test_the_backward_operator_passes_opcheck():
    p, recorded, original = make_float32(2, 4, 3, shared=(2,)), [], torch.ops.nse.cpu_backward
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.ops.nse, "cpu_backward", lambda *a: recorded.append(a) or original(*a))
        p.gradients(operators.recurrence)
    checks = ["test_schema", "test_faketensor"]
    torch.library.opcheck(torch.ops.nse.cpu_backward.default, recorded[0], test_utils=checks)


class Tagger(torch.nn.Module):
    """A small model around an encoder."""

    def __init__(self, k=4, layers=1, backend="cpu"):
        super().__init__()
        self.before = torch.nn.Linear(k, k)
        self.encoder = nse.NSE(k, layers=layers, backend=backend)
        self.after = torch.nn.Linear(k, 2)

    def forward(self, x, lengths):
        return self.after(self.encoder(torch.tanh(self.before(x)), lengths).outputs)


def outputs_and_gradients(function, model, x, lengths):
    outputs = function(x, lengths)
    return outputs, torch.autograd.grad(outputs.square().sum(), [x, *model.parameters()])


@pytest.mark.slow  # the compiler takes its time
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_compiled_model_trains_and_answers_as_eager_does(layers, compiler):
    model, lengths = Tagger(layers=layers), torch.tensor([5, 0, 3])
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=compiler)
    for T in (5, 7):
        x = torch.randn(3, T, 4, requires_grad=True)
        got = outputs_and_gradients(compiled, model, x, lengths)
        assert_close(got, outputs_and_gradients(model, model, x, lengths), 1e-6)
        with torch.no_grad():
            assert_close(compiled(x, lengths), model(x, lengths), 1e-6)


@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_an_encoder_compiles_without_graph_breaks():
    model, x = nse.NSE(4, backend="cpu"), torch.randn(3, 5, 4, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch._dynamo.config.patch(allow_rnn=True):
        gradients = [
            torch.autograd.grad(f(x).outputs.square().sum(), [x, *model.parameters()])
            for f in (compiled, model)
        ]
    assert_close(*gradients, 1e-6)


@pytest.mark.filterwarnings("ignore")  # of the exporter
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_model_holds_the_operator(strict):
    model = Tagger().eval()
    words, lengths = torch.randn(3, 5, 4), torch.tensor([5, 0, 3])
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        program = torch.export.export(model, (words, lengths), strict=strict)
        assert torch.ops.nse.cpu_forward.default in [node.target for node in program.graph.nodes]
        for x in (words, torch.randn(3, 5, 4)):
            assert_close(program.module()(x, lengths), model(x, lengths), 1e-6)


@pytest.fixture
def ran(monkeypatch):
    """Names of the backends that ran."""
    names = []

    def note(name, backend):
        return lambda *a, **options: names.append(name) or backend(*a, **options)

    for name, backend in dict(dispatch.BACKENDS).items():
        monkeypatch.setitem(dispatch.BACKENDS, name, note(name, backend))
    return names


def run_by_dispatch(*arguments):
    return dispatch.recurrence(*arguments, backend="cpu")


def test_autocast_trains_in_float32(ran):
    p = make_float32(3, 5, 4, shared=(2,))
    expected = p.outputs_and_gradients(run_by_dispatch)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            assert_close(p.outputs_and_gradients(run_by_dispatch), expected, 0)
    assert ran == ["cpu"] * 3


@torch.no_grad()
def test_autocast_answers_in_bfloat16_where_the_cpu_multiplies_in_it(ran):
    p = make_float32(3, 20, 40, shared=(7,), scale=0.2)
    expected, results = p.run(run_by_dispatch), {}
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            results[dtype] = p.run(run_by_dispatch)
    assert ran == ["cpu"] * 3
    assert {tensor.dtype for tensor in list_tensors(results[torch.bfloat16])} == {torch.float32}
    assert_close(results[torch.float16], expected, 0)
    assert_close(results[torch.bfloat16], expected, 0.05)
    is_same = torch.equal(results[torch.bfloat16].outputs, expected.outputs)
    assert is_same != call.supports_half()
    assert_close(p.run(run_by_dispatch), expected, 0)


def test_words_in_bfloat16_run_the_torch_loop_under_autocast(ran):
    p = make_float32(3, 5, 4)
    p.x = p.x.detach().bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, expected = p.run(run_by_dispatch), p.run(torch_loop.recurrence)
    assert ran == ["torch"]
    assert_close(got, expected, 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_other_types_run_the_torch_loop_without_a_word(dtype, ran, caplog):
    p = make_problem(3, 5, 4, shared=(2,)).to(dtype=dtype)
    with caplog.at_level("INFO"):
        got = p.run(run_by_dispatch)
    assert (ran, caplog.records) == (["torch"], [])
    assert_close(got, p.run(torch_loop.recurrence), 0)


@pytest.mark.parametrize("sizes", [{"layers": 5}, {"T": 0, "slots": 2}, {"B": 0}], ids=str)
def test_what_the_kernel_does_not_support_runs_the_torch_loop(sizes, ran):
    p = make_float32(**sizes)
    assert_close(p.run(run_by_dispatch), p.run(torch_loop.recurrence), 0)
    assert ran == ["torch"]


def encode_sum(encoder, x):
    return encoder(x).outputs.square().sum()


def compute_jvp(encoder, x):
    return torch.func.jvp(lambda x: encoder(x).outputs, (x,), (torch.ones_like(x),))[1]


def compute_forward_gradient(encoder, x):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        return torch.autograd.forward_ad.unpack_dual(encoder(dual).outputs).tangent


TRANSFORMS = {
    "grad": lambda e, x: torch.func.grad(lambda x: encode_sum(e, x))(x),
    "vmap": lambda e, x: torch.func.vmap(lambda x: e(x[None]).outputs[0])(x),
    "vmap of grad": lambda e, x: torch.func.vmap(torch.func.grad(lambda x: encode_sum(e, x[None])))(x),
    "jvp": compute_jvp,
    "forward mode": compute_forward_gradient,
    "jacrev": lambda e, x: torch.func.jacrev(lambda x: e(x).last)(x),
    "hessian": lambda e, x: torch.func.hessian(lambda x: encode_sum(e, x))(x),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:.*jit.script:DeprecationWarning")
def test_function_transforms_run_the_reference(transform, ran):
    torch.manual_seed(0)
    encoder = nse.NSE(3, backend="cpu").eval()
    x = torch.randn(2, 4, 3)
    got = transform(encoder, x)
    assert set(ran) == {"reference"}
    encoder.backend = "reference"
    assert_close(got, transform(encoder, x), 1e-6)
    assert got.abs().sum() > 0


def test_a_result_can_be_changed_in_place():
    p = make_float32(3, 5, 4)
    exact = p.to(dtype=torch.float64)
    gradients = []
    for problem, backend in ((p, run_by_dispatch), (exact, reference.recurrence)):
        outputs = problem.run(backend).outputs
        outputs.mul_(2.0)
        gradients.append(torch.autograd.grad(outputs.square().sum(), [problem.x, problem.weights.compose]))
    assert_close(*gradients, 1e-4)


@pytest.mark.parametrize("wrong", ["c_mask", "read", "write", "weights", "shared"])
def test_arguments_of_mixed_types_are_not_read_as_float32(wrong):
    p = make_float32(3, 5, 4, shared=(2,), dropout=0.3)
    other = getattr(p.to(dtype=torch.float64), "memories" if wrong == "shared" else wrong)
    fields = {name: getattr(p, name) for name in p.__dataclass_fields__}
    if wrong == "shared":
        fields["memories"] = (p.memories[0], other[1])
    elif wrong == "weights":
        fields["weights"] = p.weights._replace(write=other.write)
    else:
        fields[wrong] = other
    expected = p.run(reference.recurrence)
    try:
        got = Problem(**fields).run(run_by_dispatch)
    except (RuntimeError, TypeError, nse.errors.NSEError):
        return  # refused, as PyTorch's own operations do
    assert_close(got, expected, 1e-5)
