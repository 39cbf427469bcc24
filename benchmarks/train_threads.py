"""How fast training is beside a busy neighbour, with PyTorch's usual threads and with ours.

    python benchmarks/train_threads.py --data DATA      # some twenty minutes; fewer without --data

Each measurement is a process of its own, in turns: "before" takes a thread per core that waits as GNU OpenMP
does by default (300,000 looks before it sleeps), "after" is what `nse train` does, "one thread" never waits.
A busy neighbour is a process that computes without end and is not bound to a core.
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
"""How many steps of which recipes are timed, the same ones each time, and what is changed for that."""

WAYS: dict[str, dict[str, str]] = {
    "before": {"GOMP_SPINCOUNT": "300000"},
    "after": {},
    "one thread": {"OMP_NUM_THREADS": "1"},
}

NEIGHBOURS = {"idle": 0, "one core busy": 1}

FIRST = 3
"""Steps that are not timed."""


class Enough(Exception):  # noqa: N818, it is no error
    """All steps to measure are taken."""


def measure(workload: str, data: Path | None) -> float:
    """Train in this process; return examples per second."""
    from nse.tasks import TASKS, load_recipe
    from nse.train.distributed import Processes
    from nse.train.environment import set_thread_count
    from nse.train.loop import TrainingLoop
    from nse.train.progress import Progress
    from nse.train.state import RunStorage

    steps, overrides = WORKLOADS[workload]
    recipe = load_recipe(workload.split(",")[0], overrides)
    task = TASKS[recipe.task]
    loop = TrainingLoop(
        task, recipe, task.load_examples(recipe, data), Progress.silent(), RunStorage(), Processes()
    )
    import torch  # after nse, which says how threads wait

    if WAYS["before"].items() <= os.environ.items():
        torch.set_num_threads(count_cores())  # which is how it was
    else:
        set_thread_count(recipe, None, Processes())
    times: list[float] = []

    def note() -> None:
        times.append(time.perf_counter())
        if len(times) > FIRST + steps:
            raise Enough

    loop.check_signals = note  # type: ignore[method-assign]
    loop.progress.start_run(loop.total_steps)
    try:
        while True:
            loop.train_epoch()
            loop.state.start_next_epoch()
    except Enough:
        return recipe.train.batch_size * steps / (times[-1] - times[FIRST])


@contextmanager
def neighbours(number: int) -> Iterator[None]:
    """Inside, so many processes compute without end."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run_child(workload: str, way: str, data: Path | None) -> float:
    """Measure in a new process, whose threads wait in this way."""
    given = {key: value for key, value in os.environ.items() if not key.startswith(("GOMP_", "OMP_"))}
    command = [sys.executable, __file__, "--child", workload]
    command += ["--data", str(data)] if data else []
    answer = subprocess.run(command, env=given | WAYS[way], capture_output=True, text=True, check=True)
    return float(answer.stdout)


def report(rounds: int, data: Path | None) -> dict[str, Any]:
    """Measure everything, in turns; without data, what needs none."""
    workloads = list(WORKLOADS) if data else [name for name in WORKLOADS if name.startswith("logic/")]
    found: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(rounds):
        for load, number in NEIGHBOURS.items():
            with neighbours(number):
                for workload in workloads:
                    for way in WAYS:
                        speed = run_child(workload, way, data)
                        found.setdefault((workload, load, way), []).append(speed)
                        print(f"{workload}, {load}, {way}: {speed:,.0f} examples/s", file=sys.stderr)
    rows = [
        {"recipe": workload, "load": load}
        | {
            way: {
                "examples_per_second": round(statistics.median(found[workload, load, way]), 1),
                "all": [round(speed, 1) for speed in found[workload, load, way]],
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
    parser.add_argument("--data", type=Path, help="The data folder of `nse data`, for all workloads.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", choices=WORKLOADS)
    given = parser.parse_args()
    if given.child:
        print(measure(given.child, given.data))
        return
    result = report(given.rounds, given.data)
    for row in result["rows"]:
        speeds = ", ".join(f"{way} {row[way]['examples_per_second']:,.0f}" for way in WAYS)
        print(f"{row['recipe']}, {row['load']}: {speeds} examples/s")
    write_text(given.out, json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
