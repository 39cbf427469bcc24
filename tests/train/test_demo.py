"""The demo at full size keeps its promise: composition is needed, and an NSE learns it."""

import io

import pytest
from rich.console import Console

from nse.train.demo import demo
from nse.train.progress import Progress


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_an_nse_learns_what_a_bag_of_words_cannot(seed, tmp_path):
    console = Console(file=io.StringIO())
    with Progress(console) as progress:
        rows = {row["model"]: row for row in demo(console, progress, tmp_path / "demo.html", seed=seed)}
    assert rows["nse"]["accuracy"] > 0.95
    assert rows["nse"]["accuracy_unseen"] > 0.93
    assert rows["bow"]["accuracy"] < 0.70
