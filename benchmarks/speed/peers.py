"""Peers to compare with: PyTorch's LSTM (cuDNN), the NSE written in JAX, and others on a CPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.speed.calls import Problem, Results
from nse.inference.onnx import export_graph
from nse.nn.encoder import NSE

JAX_BATCH = 10  # calls in flight for one reading of the clock


def lstm(problem: Problem) -> nn.LSTM:
    """Make an LSTM of two layers, as many as an NSE has."""
    k = problem.x.shape[-1]
    return nn.LSTM(k, k, 2, batch_first=True, device=problem.x.device, dtype=problem.x.dtype)


def find_jax_obstacle(device: str) -> str | None:
    """Return why JAX cannot be measured on this device, or `None`."""
    if importlib.util.find_spec("jax") is None:
        return "jax is not installed"
    # Read when JAX starts: it would take three quarters of the device's memory for itself.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax

        results = str(jax.default_backend())
    except Exception as error:  # a JAX that does not fit its CUDA libraries fails in many ways
        return f"jax does not start: {first_line(error)}"
    expected = "gpu" if device == "cuda" else device
    return None if results == expected else f"jax runs on {results} only"


class Jax:
    """`Call` of the NSE as two scans under `jit`, timed by wall clock over batches of calls."""

    def __init__(self, problem: Problem, mode: str):
        import jax

        self.device = problem.x.device
        self.call = jax.jit(train if mode == "train" else forward)
        tensors = (problem.x, problem.weights, problem.weighting)
        self.inputs = jax.tree.map(lambda t: jax.numpy.asarray(t.detach().cpu().numpy()), tensors)

    def compute_results(self) -> Results:
        """Call once and return what came out."""
        results = self.call(*self.inputs)
        return {name: torch.from_numpy(np.array(array)).to(self.device) for name, array in results.items()}

    def measure_memory(self) -> dict[str, float | None]:
        """Return no numbers: JAX has its own allocator."""
        return {"peak_mb": None, "kept_mb": None}

    def measure_times(self, calls: int) -> list[float]:
        """Measure milliseconds per call, one number per batch of calls."""
        figures = []
        for start in range(0, calls, JAX_BATCH):
            batch = min(JAX_BATCH, calls - start)
            started = time.perf_counter()
            for _ in range(batch):
                results = self.call(*self.inputs)
            results["outputs"].block_until_ready()  # calls are done in the order of their dispatch
            figures.append(1e3 * (time.perf_counter() - started) / batch)
        return figures


def forward(x: Any, weights: dict[str, Any], weighting: Any) -> dict[str, Any]:
    """Compute outputs and memory; only `train` uses `weighting`."""
    outputs, memory = encode(x, weights)
    return {"outputs": outputs, "memory": memory}


def train(x: Any, weights: dict[str, Any], weighting: Any) -> dict[str, Any]:
    """Compute outputs, memory and the gradients of words and weights."""
    import jax

    def loss(x: Any, weights: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        results = forward(x, weights, weighting)
        return (results["outputs"] * weighting).sum(), results

    (of_x, of_weights), results = jax.grad(loss, argnums=(0, 1), has_aux=True)(x, weights)
    gradients = {f"gradient of {name}": gradient for name, gradient in of_weights.items()}
    return {**results, "gradient of x": of_x, **gradients}


def encode(x: Any, weights: dict[str, Any]) -> tuple[Any, Any]:
    """Compute equations 1-6 with two scans: outputs [B, T, k] and memory [B, T, k]."""
    import jax
    from jax import lax
    from jax import numpy as jnp

    ih, hh, bias = layer(weights, "read")
    into_compose, compose_bias = weights["compose.weight"].T, weights["compose.bias"]
    write_ih, write_hh, write_bias = layer(weights, "write")

    def read(state: Any, x_t: Any) -> tuple[Any, Any]:
        state = lstm_step(x_t + state[0] @ hh, state[1])
        return state, state[0]

    def remember(carried: Any, o: Any) -> tuple[Any, Any]:
        h, c, M = carried
        z = jax.nn.softmax(jnp.einsum("bk,blk->bl", o, M))
        m = jnp.einsum("bl,blk->bk", z, M)
        composed = jnp.concatenate([o, m], axis=-1) @ into_compose + compose_bias
        h, c = lstm_step(composed @ write_ih + h @ write_hh + write_bias, c)
        M = M * (1 - z[..., None]) + h[:, None] * z[..., None]
        return (h, c, M), h

    zeros = jnp.zeros_like(x[:, 0])
    _, o = lax.scan(read, (zeros, zeros), jnp.swapaxes(x, 0, 1) @ ih + bias)
    (_, _, M), outputs = lax.scan(remember, (zeros, zeros, x), o)
    return jnp.swapaxes(outputs, 0, 1), M


def layer(weights: dict[str, Any], name: str) -> tuple[Any, Any, Any]:
    """Return input matrix, recurrent matrix and bias of an LSTM, transposed for x @ W."""
    ih, hh, bias_ih, bias_hh = (
        weights[f"{name}.{part}_l0"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    return ih.T, hh.T, bias_ih + bias_hh


def lstm_step(gates: Any, c: Any) -> tuple[Any, Any]:
    """Compute the new h and c of an LSTM from its gates."""
    import jax
    from jax import numpy as jnp

    i, f, g, o = jnp.split(gates, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def find_cpu_obstacle(peer: str) -> str | None:
    """Return why a peer cannot be measured on the CPU, or `None`."""
    if peer == "jax":
        return find_jax_obstacle("cpu")
    if peer == "torch.compile":
        return find_compiler_obstacle()
    packages = ("onnx", "onnxscript", "onnxruntime")
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def find_compiler_obstacle() -> str | None:
    """Return why `torch.compile` cannot be measured on the CPU, or `None`."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        return f"there is no C++ compiler {compiler}"
    # Read when the compiler is imported: its worker processes would go on starting while sides are timed,
    # and what an earlier run compiled would hide how long it takes.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    return None


def make_jax_call(problem: Problem, mode: str) -> Callable[[], dict[str, Any]]:
    """Return a call of the NSE in JAX that waits for its results; the first one compiles."""
    import jax

    peer = Jax(problem, mode)
    return lambda: jax.block_until_ready(peer.call(*peer.inputs))


class Outputs(nn.Module):
    """Encoder of which only the outputs are exported."""

    def __init__(self, encoder: NSE):
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs [B, T, k]."""
        outputs: Tensor = self.encoder(x, lengths).outputs
        return outputs


EXPORTED: dict[int, bytes] = {}
"""ONNX file by k; the weights of all problems of a size are the same."""


def make_onnx_call(problem: Problem) -> Callable[[], dict[str, Any]]:
    """Return a call of onnxruntime for the encoder as `nse export` writes it, with torch's threads."""
    import onnxruntime

    B, T, k = problem.x.shape
    if k not in EXPORTED:
        example = [torch.randn(3, 4, k), torch.tensor([4, 3, 2])]
        inputs = {"x": ("batch", "words"), "lengths": ("batch",)}
        EXPORTED[k] = export_graph(Outputs(problem.make_encoder("reference")).eval(), inputs, example, {})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(EXPORTED[k], options, providers=["CPUExecutionProvider"])
    arrays = {"x": problem.x.numpy(), "lengths": np.full(B, T, dtype=np.int64)}
    return lambda: {"outputs": session.run(["scores"], arrays)[0]}


def to_tensors(results: dict[str, Any]) -> Results:
    """Convert the results of any side to tensors."""
    return {
        name: each if isinstance(each, Tensor) else torch.from_numpy(np.array(each))
        for name, each in results.items()
    }


def find_version(package: str) -> str | None:
    """Return the version of a package, or `None` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def first_line(error: Exception) -> str:
    """An error in a line: its kind, and how its message begins."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
