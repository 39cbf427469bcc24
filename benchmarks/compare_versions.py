"""Compare the speed of another version of the program with this one: answers, training and the demo.

    python benchmarks/compare_versions.py --before DIR --data DATA      # ten minutes on two idle cores

DIR has a checkout of the other version with an environment of its own, such as made by

    git worktree add DIR COMMIT && make -C DIR DIR/.venv/.runtime VENV=DIR/.venv

The versions take turns, and the first one of a round is the other's second. Parts, which --only selects:

    answers  `nse predict` on the SNLI test file, the whole process; `predict` of a loaded model, and the
             reference loop at batches of 32, which this version runs; 32 clients over HTTP
    first    the first answer of a new process: of `nse predict`, and of `nse.load` and `predict` in Python
    steps    the first steps of the training recipes in RECIPES, which are the same batches for both
    demo     `nse demo`, the whole process

Writes results/compare_versions.json; parts that are not measured stay as they are there.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from http_speed import (
    CLIENTS,
    RESULTS,
    ROOT,
    describe_versions,
    encode_request,
    measure_file,
    measure_http,
    start_server,
)

from nse.files import write_text

RECIPES = {"snli/nse-masked": 40, "aclimdb/nse-lstm": 24}
"""Number of timed steps."""

LOOP_PAIRS = 2000
TEXTS = ("Two dogs play in the snow.", "The animals are outdoors.")

Versions = dict[str, str]
"""Interpreters of the versions, "before" and "now"."""


def take_turns(versions: Versions, rounds: int) -> Iterator[tuple[str, str]]:
    """Yield names and interpreters, the order alternating from round to round."""
    for number in range(rounds):
        yield from sorted(versions.items(), reverse=bool(number % 2))


def run_child(python: str, *words: str) -> float:
    """Run one of the CHILDREN with an interpreter; return the number that it prints."""
    command = [python, __file__, "--child", *words]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(answer.stdout.splitlines()[-1])


def measure_model(file: str) -> float:
    """Return pairs per second of a loaded model, in this process."""
    import nse

    pairs, model = read_file(file), nse.load("snli")
    model.predict(pairs[:256])
    start = time.perf_counter()
    model.predict(pairs)
    return len(pairs) / (time.perf_counter() - start)


def measure_loop(file: str) -> float:
    """Return pairs per second of the reference loop, in this process."""
    os.environ["NSE_BACKEND"] = "reference"
    from answers import run_plain_loop

    import nse

    pairs, model = read_file(file)[:LOOP_PAIRS], nse.load("snli")
    run_plain_loop(model, pairs[:64], 32)
    start = time.perf_counter()
    run_plain_loop(model, pairs, 32)
    return len(pairs) / (time.perf_counter() - start)


def measure_first() -> float:
    """Return the seconds from `import nse` to the first answer."""
    start = time.perf_counter()
    import nse

    nse.load("snli").predict([TEXTS])
    return time.perf_counter() - start


def measure_steps(recipe: str, data: str) -> float:
    """Return training examples per second."""
    from train_threads import measure_steps

    return measure_steps(recipe, [], RECIPES[recipe], Path(data) if data else None)


CHILDREN: dict[str, Callable[..., float]] = {
    "model": measure_model,
    "loop": measure_loop,
    "first": measure_first,
    "steps": measure_steps,
}
"""Measurements in processes of their own."""


def read_file(file: str) -> list[tuple[str, str]]:
    """Read the pairs of a JSONL file."""
    rows = [json.loads(line) for line in Path(file).read_text("utf-8").splitlines()]
    return [(row["premise"], row["hypothesis"]) for row in rows]


def read_test_pairs(data: Path | None) -> list[tuple[str, str]]:
    """Read the pairs of SNLI's test split."""
    from nse.data.readers.snli import read

    texts = read(data or Path("data"))["test"].texts
    return list(zip(texts["premise"], texts["hypothesis"], strict=True))


class Ledger:
    """Figures of all rounds, by what was measured and by version; each is shown at once."""

    def __init__(self) -> None:
        self.rounds: dict[str, dict[str, list[float]]] = {}

    def add(self, what: str, version: str, figure: float) -> None:
        """Add the figure of a round."""
        self.rounds.setdefault(what, {}).setdefault(version, []).append(figure)
        print(f"{what}, {version}: {figure:,.4g}", file=sys.stderr, flush=True)

    def summarize(self, is_speed: bool) -> dict[str, Any]:
        """Return medians, and how many times faster this version is: the median of the rounds."""
        summary: dict[str, Any] = {}
        for what, rounds in self.rounds.items():
            row: dict[str, Any] = {version: median(figures) for version, figures in rounds.items()}
            if "before" in rounds:
                pairs = zip(rounds["before"], rounds["now"], strict=True)
                row["times_faster"] = median(b / a if is_speed else a / b for a, b in pairs)
            summary[what] = {**row, "rounds": rounds}
        return summary


def compare_answers(versions: Versions, args: argparse.Namespace) -> dict[str, Any]:
    """Compare pairs per second from a file, of a loaded model and over HTTP, beside the reference loop."""
    ledger, pairs = Ledger(), read_test_pairs(args.data)[: args.pairs]
    requests = cycle([encode_request(pair) for pair in pairs])
    with TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            name: stack.enter_context(start_server("snli", python=python))
            for name, python in versions.items()
        }
        for server in servers.values():
            measure_http(*server, requests, CLIENTS, min(3.0, args.seconds))  # warm up
        for name, python in take_turns(versions, args.rounds):
            ledger.add("file", name, measure_file("snli", pairs, Path(folder), python))
            ledger.add("model", name, run_child(python, "model", f"{folder}/pairs.jsonl"))
            answers = measure_http(*servers[name], requests, CLIENTS, args.seconds)
            ledger.add("http", name, answers["pairs_per_second"])
            if name == "now":
                ledger.add("loop", name, run_child(python, "loop", f"{folder}/pairs.jsonl"))
    report = ledger.summarize(is_speed=True)
    for name in versions:
        report["http"][f"{name}_over_file"] = report["http"][name] / report["file"][name]
        for what in ("file", "model"):
            report[what][f"{name}_over_loop"] = report[what][name] / report["loop"]["now"]
    return {"unit": "pairs/s", "pairs": len(pairs), "clients": CLIENTS, **report}


def compare_first_answers(versions: Versions, args: argparse.Namespace) -> dict[str, Any]:
    """Compare the seconds to the first answer of new processes."""
    ledger = Ledger()
    for name, python in take_turns(versions, 2 * args.rounds):
        ledger.add("nse predict", name, time_command(python, "predict", "snli", *TEXTS))
        ledger.add("nse.load and predict", name, run_child(python, "first"))
    return {"unit": "s", **ledger.summarize(is_speed=False)}


def compare_steps(versions: Versions, args: argparse.Namespace) -> dict[str, Any]:
    """Compare training examples per second."""
    ledger = Ledger()
    for recipe in RECIPES:
        for name, python in take_turns(versions, min(3, args.rounds)):
            ledger.add(recipe, name, run_child(python, "steps", recipe, str(args.data or "")))
    return {"unit": "examples/s", "steps": RECIPES, **ledger.summarize(is_speed=True)}


def compare_demos(versions: Versions, args: argparse.Namespace) -> dict[str, Any]:
    """Compare the seconds of `nse demo`, once."""
    ledger = Ledger()
    for name, python in take_turns(versions, 1):
        ledger.add("nse demo", name, time_command(python, "demo", *args.demo.split()))
    return {"unit": "s", **ledger.summarize(is_speed=False)}


def time_command(python: str, *words: str) -> float:
    """Return the seconds of a command of nse, in its own process and folder."""
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run([python, "-m", "nse", *words], check=True, stdout=subprocess.DEVNULL, cwd=folder)
        return time.perf_counter() - start


COMPARISONS = {
    "answers": compare_answers,
    "first": compare_first_answers,
    "steps": compare_steps,
    "demo": compare_demos,
}


def main() -> None:
    """Measure both versions in alternating rounds and write the figures after each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="DIR", help="checkout of the other version")
    parser.add_argument("--data", type=Path, help="folder of the published data")
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=list(COMPARISONS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0, help="of HTTP in each round")
    parser.add_argument("--pairs", type=int, help="use only this many pairs, to try it out")
    parser.add_argument("--demo", default="", help="options of nse demo, in one word")
    parser.add_argument("--out", type=Path, default=RESULTS / "compare_versions.json")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(CHILDREN[args.child[0]](*args.child[1:]))
        return
    args.data = args.data and args.data.resolve()
    versions = {"before": str(args.before.resolve() / ".venv/bin/python"), "now": sys.executable}
    report = json.loads(args.out.read_text("utf-8")) if args.out.is_file() else {}
    commits = {name: read_commit(folder) for name, folder in (("before", args.before), ("now", ROOT))}
    for part in args.only:
        report |= {"commits": commits, "machine": describe_versions()}
        report[part] = COMPARISONS[part](versions, args)
        write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


def read_commit(folder: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
