"""Measure training speed next to a busy process, with PyTorch's default threads and those of `nse train`.

    python benchmarks/train_threads.py --data DATA      # twenty minutes; less without --data

Each measurement is its own process, in alternating rounds: "before" uses a thread per core that waits as GNU
OpenMP does by default (300,000 spins before it sleeps), "after" is `nse train`, "one thread" never waits. The
busy process computes endlessly and is not bound to a core.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nse.files import write_text
from nse.inference.batches import count_cores

RESULTS = Path(__file__).parent / "results" / "train_threads.json"

WORKLOADS: dict[str, tuple[int, list[str]]] = {
    "logic/nse": (400, ["data.train=4000"]),
    "logic/nse, k = 300": (10, ["data.train=4000", "model.size=300", "train.batch_size=128"]),
    "sst/binary-glove": (150, []),
    "aclimdb/nse-lstm": (24, []),
}
"""Number of timed steps and changed values by recipe."""

WAYS: dict[str, dict[str, str]] = {
    "before": {"GOMP_SPINCOUNT": "300000"},
    "after": {},
    "one thread": {"OMP_NUM_THREADS": "1"},
}

NEIGHBOURS = {"idle": 0, "one core busy": 1}

WARMUP_STEPS = 3


class AllStepsTaken(Exception):  # noqa: N818, it is no error
    """Raised after the last step to measure."""


def measure_steps(name: str, overrides: list[str], steps: int, data: Path | None) -> float:
    """Train in this process and return examples per second."""
    from nse.tasks import TASKS, load_recipe
    from nse.train.distributed import Processes
    from nse.train.environment import set_thread_count
    from nse.train.loop import TrainingLoop
    from nse.train.progress import Progress
    from nse.train.state import RunStorage

    recipe = load_recipe(name, overrides)
    task = TASKS[recipe.task]
    loop = TrainingLoop(
        task, recipe, task.load_examples(recipe, data), Progress.silent(), RunStorage(), Processes()
    )
    import torch  # after nse, which configures how threads wait

    if WAYS["before"].items() <= os.environ.items():
        torch.set_num_threads(count_cores())  # the default
    else:
        set_thread_count(recipe, None, Processes())
    times: list[float] = []

    def record_time() -> None:
        times.append(time.perf_counter())
        if len(times) > WARMUP_STEPS + steps:
            raise AllStepsTaken

    loop.check_signals = record_time  # type: ignore[method-assign]
    loop.progress.start_run(loop.total_steps)
    try:
        while True:
            loop.train_epoch()
            loop.state.start_next_epoch()
    except AllStepsTaken:
        return recipe.train.batch_size * steps / (times[-1] - times[WARMUP_STEPS])


@contextmanager
def run_busy_processes(number: int) -> Iterator[None]:
    """Run a number of processes that compute endlessly during the block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_child(workload: str, way: str, data: Path | None) -> float:
    """Measure in a new process with one of the `WAYS`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GOMP_", "OMP_"))}
    command = [sys.executable, __file__, "--child", workload]
    command += ["--data", str(data)] if data else []
    answer = subprocess.run(command, env=environment | WAYS[way], capture_output=True, text=True, check=True)
    return float(answer.stdout)


def measure_all(rounds: int, data: Path | None) -> dict[str, Any]:
    """Measure all workloads in alternating rounds; without data only those that need none."""
    workloads = list(WORKLOADS) if data else [name for name in WORKLOADS if name.startswith("logic/")]
    speeds: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(rounds):
        for load, number in NEIGHBOURS.items():
            with run_busy_processes(number):
                for workload in workloads:
                    for way in WAYS:
                        speed = run_child(workload, way, data)
                        speeds.setdefault((workload, load, way), []).append(speed)
                        print(f"{workload}, {load}, {way}: {speed:,.0f} examples/s", file=sys.stderr)
    rows = [
        {"recipe": workload, "load": load}
        | {
            way: {
                "examples_per_second": round(statistics.median(speeds[workload, load, way]), 1),
                "all": [round(speed, 1) for speed in speeds[workload, load, way]],
            }
            for way in WAYS
        }
        for workload in workloads
        for load in NEIGHBOURS
    ]
    import torch

    machine = {"cores": count_cores(), "system": f"{platform.system()} {platform.machine()}"}
    return {"machine": machine | {"torch": str(torch.__version__)}, "rounds": rounds, "rows": rows}


def main() -> None:
    """Measure, print a table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="data folder of `nse data`, for all workloads")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", choices=WORKLOADS)
    args = parser.parse_args()
    if args.child:
        steps, overrides = WORKLOADS[args.child]
        print(measure_steps(args.child.split(",")[0], overrides, steps, args.data))
        return
    result = measure_all(args.rounds, args.data)
    for row in result["rows"]:
        speeds = ", ".join(f"{way} {row[way]['examples_per_second']:,.0f}" for way in WAYS)
        print(f"{row['recipe']}, {row['load']}: {speeds} examples/s")
    write_text(args.out, json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
