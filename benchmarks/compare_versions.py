"""Compare the speed of two versions of the program, side by side, from a file and over HTTP.

    python benchmarks/compare_versions.py --before PYTHON [--pairs FILE]

PYTHON is an interpreter in whose environment the version before is installed. In each round both versions
run `nse predict` over all pairs of a file, the whole process, and answer 32 clients over HTTP, one after the
other. The order alternates from round to round. Writes results/compare_versions.json.
"""

import argparse
import json
import math
import sys
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from statistics import mean, median, stdev
from tempfile import TemporaryDirectory
from typing import Any

from http_speed import (
    CLIENTS,
    RESULTS,
    describe_versions,
    encode_request,
    measure_file,
    measure_http,
    read_pairs,
    start_server,
)

from nse.files import write_text


def compare_speeds(before: list[float], after: list[float]) -> dict[str, Any]:
    """Summarize the ratios after / before of the rounds, with a 95% interval of their mean."""
    ratios = [b / a for a, b in zip(before, after, strict=True)]
    margin = 2.262 * stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) == 10 else None  # t, 9 degrees
    return {
        "before_per_second": median(before),
        "now_per_second": median(after),
        "ratio": mean(ratios),
        "ratio_margin_95": margin,
        "rounds": {"before": before, "now": after},
    }


def main() -> None:
    """Measure both versions in alternating rounds and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", required=True, metavar="PYTHON")
    parser.add_argument("--model", default="snli")
    parser.add_argument("--pairs", type=Path, help="as in http_speed.py")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8.0, help="of HTTP in each round")
    parser.add_argument("--out", type=Path, default=RESULTS / "compare_versions.json")
    args = parser.parse_args()
    pairs = read_pairs(args.pairs)
    requests = cycle([encode_request(pair) for pair in pairs])
    versions = {"before": args.before, "now": sys.executable}
    files: dict[str, list[float]] = {name: [] for name in versions}
    http: dict[str, list[float]] = {name: [] for name in versions}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            name: stack.enter_context(start_server(args.model, python=python))
            for name, python in versions.items()
        }
        for port, pid in servers.values():
            measure_http(port, pid, requests, CLIENTS, min(5.0, args.seconds))  # warm up
        for number in range(args.rounds):
            for name in sorted(versions, reverse=bool(number % 2)):
                files[name].append(measure_file(args.model, pairs, Path(folder), versions[name]))
                answers = measure_http(*servers[name], requests, CLIENTS, args.seconds)
                http[name].append(answers["pairs_per_second"])
            print(json.dumps({name: [files[name][-1], http[name][-1]] for name in versions}), flush=True)
    report = {
        "model": args.model,
        "pairs": len(pairs),
        "clients": CLIENTS,
        "seconds": args.seconds,
        "file": compare_speeds(files["before"], files["now"]),
        "http": compare_speeds(http["before"], http["now"]),
        **describe_versions(),
    }
    write_text(args.out, json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
