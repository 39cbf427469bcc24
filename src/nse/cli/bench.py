"""Command that times the backends on this machine: bench."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any

from typer import Option

from nse.cli.options import Device, Json
from nse.cli.output import check_output, print_json, print_table, write_output
from nse.errors import BackendError

CASES = (  # mode, B, T
    *(("forward", 1, 25), ("forward", 8, 25), ("forward", 128, 25), ("forward", 8, 400), ("forward", 1, 400)),
    *(("train", 1, 25), ("train", 128, 25), ("train", 8, 400)),
)
QUICK = (("forward", 2, 5), ("train", 2, 5))
SECONDS, ROUNDS = 6.0, 3  # of a case: as long, and at least as many rounds
TOLERANCES = {"cpu": 1e-3, "cuda": 2e-2}  # error relative to the norm of the reference; cuDNN uses TF32


def bench(
    device: Annotated[Device, Option(help="Device to measure; auto uses CUDA if available.")] = "auto",
    out: Annotated[Path | None, Option(help="Also write the results to this JSON file.")] = None,
    quick: Annotated[bool, Option(help="Use tiny sizes, to test that everything works.")] = False,
    threads: Annotated[int, Option(help="Number of CPU threads.", min=1)] = 2,
    as_json: Json = False,
) -> None:
    """Time the backends and a two-layer nn.LSTM, after comparing their results."""
    import torch

    from nse.ops.cpu.library import explain_no_kernel, load_kernel

    if out:  # before measuring
        check_output(out)
    device = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        hint = "type `nse bench --device cpu`, or install PyTorch with CUDA on a machine with a GPU"
        raise BackendError(f"--device cuda: PyTorch finds no CUDA device here; {hint}")
    torch.set_num_threads(threads)
    cases, k, seconds = (QUICK, 8, 0.0) if quick else (CASES, 300, SECONDS)
    rows = []
    for mode, B, T in cases:
        print(f"{mode} B={B} T={T}", file=sys.stderr)
        rows += measure_shape(B, T, k, mode, device, seconds)
    kernel = explain_no_kernel() or load_kernel().isa
    machine = {"device": device, "threads": threads, "torch": torch.__version__, "kernel": kernel}
    report = {"machine": machine, "rows": rows}
    if out:
        write_output(out, json.dumps(report, indent=1, allow_nan=False) + "\n")
    if as_json:
        print_json(report)
        return
    names = ("B", "T", "k", "mode", "backend", "ms", "over_lstm")
    shown = ([f"{row[name]:.2f}" if name in names[-2:] else str(row[name]) for name in names] for row in rows)
    title = f"{device}, {threads} threads, torch {torch.__version__}, float32, CPU kernel: {kernel}"
    print_table(names, shown, title)


def measure_shape(B: int, T: int, k: int, mode: str, device: str, seconds: float) -> list[dict[str, Any]]:
    """Time every module at one shape, in turns; refuse a backend that differs from the reference."""
    import torch

    from nse.nn.encoder import NSE
    from nse.ops.dispatch import BACKENDS, explain_no_backend

    def call(model: torch.nn.Module) -> list[torch.Tensor]:
        """Compute the outputs, and in training the gradients of their sum."""
        with torch.set_grad_enabled(x.requires_grad):
            outputs = model(x)[0]
        weights = [x, *model.parameters()] if x.requires_grad else []
        results = [outputs.detach(), *(torch.autograd.grad(outputs.sum(), weights) if weights else ())]
        if x.is_cuda:
            torch.cuda.synchronize()
        return results

    torch.manual_seed(0)
    x = torch.randn(B, T, k, device=device, requires_grad=mode == "train")
    names = [name for name in BACKENDS if explain_no_backend(name, device) is None]
    modules: dict[str, torch.nn.Module] = {name: NSE(k, backend=name, device=device) for name in names}
    for name in names:
        modules[name].load_state_dict(modules["reference"].state_dict())
        for got, wanted in zip(call(modules[name]), call(modules["reference"]), strict=True):
            error = ((got - wanted).norm() / wanted.norm()).item()
            if not error < TOLERANCES[device]:  # also refuses NaN
                raise BackendError(f"reference and {name} differ by {error:.1e}: nothing is measured")
    modules["lstm"] = torch.nn.LSTM(k, k, 2, batch_first=True, device=device)
    call(modules["lstm"])
    times: dict[str, list[float]] = {name: [] for name in modules}
    end = perf_counter() + seconds
    while perf_counter() < end or len(times["lstm"]) < ROUNDS:
        for name, module in modules.items():
            call(module)  # brings its weights into the caches
            started = perf_counter()
            call(module)
            times[name].append(1e3 * (perf_counter() - started))
    where = {"B": B, "T": T, "k": k, "dtype": "float32", "mode": mode}
    return [
        {
            "name": name,
            "backend": side,
            **where,
            "ms": median(times[side]),
            "over_lstm": median(a / b for a, b in zip(times[side], times["lstm"], strict=True)),
            "rounds": len(times[side]),
        }
        for side, name in {**dict.fromkeys(names, "NSE"), "lstm": "nn.LSTM, two layers"}.items()
    ]
