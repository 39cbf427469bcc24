"""Time the backends side by side: `python benchmarks/speed`, or `make bench` and `make bench-gpu`."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import speed
from benchmarks.speed.cpu import PARTS, PEERS, Shape, measure_memory
from benchmarks.speed.instruction_sets import answer_questions
from nse.errors import NSEError, explain_errors
from nse.files import check_writable, write_text


def save(report: dict[str, Any], file: Path | None) -> None:
    """Write a report as JSON."""
    if file:
        with explain_errors(f"{file} cannot be written"):
            write_text(file, json.dumps(report, indent=1, allow_nan=False) + "\n")


def main(words: list[str] | None = None) -> None:
    """Measure, print and write; after an interruption, the rows so far are in OUT.unfinished.json."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python benchmarks/speed")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, help="write the rows to this JSON file as well")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything works")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads, on the CPU")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts, on the CPU")
    parser.add_argument("--skip", nargs="+", choices=PEERS, default=(), help="peers to leave out")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)  # of processes that others start
    parser.add_argument("--bursts", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.memory_of or args.bursts:
        if args.bursts:
            answer_questions(args.bursts, args.threads)
        else:
            side, (*shape, k) = args.memory_of[0], json.loads(args.memory_of[1])
            print(measure_memory(side, Shape(*shape), k, args.threads))
        return
    if args.out:  # minutes of measuring are not lost to a place that cannot be written
        with explain_errors(f"{args.out} cannot be written"):
            check_writable(args.out)
    unfinished = args.out.with_suffix(".unfinished.json") if args.out else None
    report = speed.run(
        quick=args.quick,
        threads=args.threads,
        log=Console(stderr=True),
        device=args.device,
        parts=args.only,
        skip=args.skip,
        save=lambda so_far: save(so_far, unfinished),
    )
    if args.out and args.out.is_file() and args.only != PARTS:
        report = json.loads(args.out.read_text("utf-8")) | report  # keeps the parts that were not measured
    save(report, args.out)
    if unfinished:
        unfinished.unlink(missing_ok=True)
    if args.json:
        print(json.dumps(report, indent=1, allow_nan=False))
    else:
        Console().print(speed.format_tables(report))


if __name__ == "__main__":
    try:
        main()
    except NSEError as error:
        sys.exit(f"speed: {error}")
