"""Attack the program as `tests/faults` does, and count what it withstood: each case of a test is one attack.

    python benchmarks/attacks.py                      # writes results/attacks.json

An attack belongs to the fault whose number its file has, `test_NN_*.py`; those of `test_fuzz.py`, which
breaks input at random, belong to none.
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
"""Looks whether documents and tests agree."""


class Attacks:
    """Counts the outcomes of tests, as a plugin of pytest.

    Attributes:
        outcomes: Of each test by its name: "held", "failed" or "skipped".
    """

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what came of a test, which fails if its set-up or what ends it does."""
        if report.failed:
            self.outcomes[report.nodeid] = "failed"
        elif report.skipped:
            self.outcomes[report.nodeid] = "skipped"
        elif report.when == "call":
            self.outcomes[report.nodeid] = "held"

    def rows(self) -> list[dict[str, Any]]:
        """Count the outcomes by fault, those of none last."""
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
    """Attack and write; gives 1 where an attack succeeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slow", action="store_true", help="also those that take minutes")
    parser.add_argument("--gpu", action="store_true", help="also those that need a CUDA device")
    parser.add_argument("--processes", type=int, default=2, help="that attack at a time")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "attacks.json")
    wanted = parser.parse_args()
    left_out = [f"not {mark}" for mark in ("slow", "gpu") if not getattr(wanted, mark)]
    options = ["-q", "-m", " and ".join(left_out), "-n", str(wanted.processes), "--timeout", "1800"]
    attacks, start = Attacks(), time.perf_counter()
    command = [str(FAULTS), f"--rootdir={ROOT}", f"--ignore={FAULTS / NO_ATTACK}", *options]
    code = pytest.main(command, plugins=[attacks])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(f"attacks.py: pytest ended with code {int(code)} and not all was tried; nothing is written")
    report = {
        "environment": describe_environment(torch.device("cpu"), 1),
        "slow": wanted.slow,
        "gpu": wanted.gpu,
        "seconds": time.perf_counter() - start,
        "rows": attacks.rows(),
    }
    write_text(wanted.out, json.dumps(report, indent=1) + "\n")
    for row in report["rows"]:
        print(json.dumps(row))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
