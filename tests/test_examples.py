"""The examples run and print what they promise."""

import os
import re
from pathlib import Path

import pytest

import forking

EXAMPLES = Path(__file__).parents[1] / "examples"

PRINTED = {
    "inference": [
        r"entailment .* The animals are outdoors\.",
        r"contradiction .* cats sleep",
        r"-> .* z = \d",
    ],
    "answers": [r"dev MAP 0\.[6-9]", r"1\. +-?\d.*\n +2\. .*\n +3\. .* no cats dance"],
    "sentences": [r"positive .* A film that makes you think\.", r"negative .* Two hours too long", r"  ->  "],
    "documents": [r"step 60: loss", r"200 new documents: (9\d|100)%; [2-6]\d% are negative"],
    "translation": [r"-> ein hund \w+ (\w+ )*schnee\.", r"</S>"],
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    run = forking.run([EXAMPLES / f"{name}.py"], cwd=tmp_path, env=environment)
    assert run.returncode == 0, run.stderr
    for wanted in PRINTED[name]:
        assert re.search(wanted, run.stdout), (wanted, run.stdout)


def test_each_task_has_one_example():
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(PRINTED)
    report = (EXAMPLES / "README.md").read_text("utf-8")
    assert re.findall(r"`(\w+)\.py` \| 4\.(\d)", report) == [
        (name, str(section)) for section, name in enumerate(PRINTED, start=1)
    ]
