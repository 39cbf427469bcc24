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

from http_speed import CLIENTS, RESULTS, about, as_request, from_a_file, over_http, read_pairs, server

from nse.files import write_text


def compare(before: list[float], now: list[float]) -> dict[str, Any]:
    """Summarize the ratios now / before of the rounds, with a 95% interval of their mean."""
    ratios = [b / a for a, b in zip(before, now, strict=True)]
    margin = 2.262 * stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) == 10 else None  # t, 9 degrees
    return {
        "before_per_second": median(before),
        "now_per_second": median(now),
        "ratio": mean(ratios),
        "ratio_margin_95": margin,
        "rounds": {"before": before, "now": now},
    }


def main() -> None:
    """Measure both versions in turns and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", required=True, metavar="PYTHON")
    parser.add_argument("--model", default="snli")
    parser.add_argument("--pairs", type=Path, help="as of http_speed.py")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8.0, help="of HTTP in each round")
    parser.add_argument("--out", type=Path, default=RESULTS / "compare_versions.json")
    options = parser.parse_args()
    pairs = read_pairs(options.pairs)
    requests = cycle([as_request(pair) for pair in pairs])
    versions = {"before": options.before, "now": sys.executable}
    files: dict[str, list[float]] = {name: [] for name in versions}
    http: dict[str, list[float]] = {name: [] for name in versions}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            name: stack.enter_context(server(options.model, python=python))
            for name, python in versions.items()
        }
        for port, pid in servers.values():
            over_http(port, pid, requests, CLIENTS, min(5.0, options.seconds))  # warm up
        for number in range(options.rounds):
            for name in sorted(versions, reverse=bool(number % 2)):
                files[name].append(from_a_file(options.model, pairs, Path(folder), versions[name]))
                answers = over_http(*servers[name], requests, CLIENTS, options.seconds)
                http[name].append(answers["pairs_per_second"])
            print(json.dumps({name: [files[name][-1], http[name][-1]] for name in versions}), flush=True)
    report = {
        "model": options.model,
        "pairs": len(pairs),
        "clients": CLIENTS,
        "seconds": options.seconds,
        "file": compare(files["before"], files["now"]),
        "http": compare(http["before"], http["now"]),
        **about(),
    }
    write_text(options.out, json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
