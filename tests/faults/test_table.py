"""The table of promises names every fault and every test of it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_documented_fault_has_a_test_file():
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8").split("\n## ")[0]  # figures come after it
    rows = re.findall(r"^\| (\d+) \| .* \| ([^|]*) \|$", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 24))
    named = set()
    for number, tests in rows:
        files = re.findall(r"`([\w/]+\.py)`", tests)
        assert any(file.startswith(f"test_{int(number):02}_") for file in files), f"row {number}"
        for file in files:
            path = ROOT / file if "/" in file else ROOT / "tests" / "faults" / file
            assert re.search(r"^def test_", path.read_text("utf-8"), re.MULTILINE), file
        named |= set(files)
    there = {file.name for file in (ROOT / "tests" / "faults").glob("test_*.py")}
    assert there - named == {"test_table.py"}
