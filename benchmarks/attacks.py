"""Run the attacks of `tests/faults` and count those that the program withstood: each test case is one attack.

    python benchmarks/attacks.py                      # writes results/attacks.json

An attack belongs to the fault whose number is in its file name, `test_NN_*.py`; the random inputs of
`test_fuzz.py` belong to none.
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from nse.files import write_text
from nse.train.environment import describe_environment

ROOT = Path(__file__).parents[1]
FAULTS = ROOT / "tests" / "faults"

NO_ATTACK = "test_table.py"
"""Checks only that documents and tests agree."""


class OutcomeCounter:
    """Plugin of pytest that counts the outcomes of tests.

    Attributes:
        outcomes: "held", "failed" or "skipped" by name of the test.
    """

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a test, which also fails if its set-up or tear-down does."""
        if report.failed:
            self.outcomes[report.nodeid] = "failed"
        elif report.skipped:
            self.outcomes[report.nodeid] = "skipped"
        elif report.when == "call":
            self.outcomes[report.nodeid] = "held"

    def count_by_fault(self) -> list[dict[str, Any]]:
        """Count the outcomes by fault; those without a fault come last."""
        faults: dict[int, Counter[str]] = {}
        for name, outcome in self.outcomes.items():
            number = re.search(r"test_(\d\d)_\w+\.py", name)
            faults.setdefault(int(number[1]) if number else 0, Counter())[outcome] += 1
        return [
            {
                "fault": fault or None,
                "tried": counts["held"] + counts["failed"],
                **{outcome: counts[outcome] for outcome in ("held", "failed", "skipped")},
            }
            for fault, counts in sorted(faults.items(), key=lambda item: item[0] or 1000)
        ]


def main() -> int:
    """Run the attacks and write the counts; return 1 if an attack succeeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slow", action="store_true", help="include those that take minutes")
    parser.add_argument("--gpu", action="store_true", help="include those that need a CUDA device")
    parser.add_argument("--processes", type=int, default=2, help="number of test processes")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "attacks.json")
    args = parser.parse_args()
    excluded = [f"not {mark}" for mark in ("slow", "gpu") if not getattr(args, mark)]
    options = ["-q", "-m", " and ".join(excluded), "-n", str(args.processes), "--timeout", "1800"]
    attacks, start = OutcomeCounter(), time.perf_counter()
    command = [str(FAULTS), f"--rootdir={ROOT}", f"--ignore={FAULTS / NO_ATTACK}", *options]
    code = pytest.main(command, plugins=[attacks])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(f"attacks.py: pytest ended with code {int(code)} before all attacks; nothing is written")
    report = {
        "environment": describe_environment(torch.device("cpu"), 1),
        "slow": args.slow,
        "gpu": args.gpu,
        "seconds": time.perf_counter() - start,
        "rows": attacks.count_by_fault(),
    }
    write_text(args.out, json.dumps(report, indent=1) + "\n")
    for row in report["rows"]:
        print(json.dumps(row))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
