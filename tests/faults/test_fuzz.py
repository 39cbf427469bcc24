"""Broken input at random: `benchmarks/fuzz.py` tries as much as you like, here is a little of each kind."""

from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from faults.fuzzing import folders, plausible, recipes, try_folder, try_plausible, try_recipe
from faults.made_checkpoints import Broken, changed, damaged_bytes, stopped_run, try_checkpoint
from faults.made_models import save_model
from serve.made_heads import draw_heads, try_heads

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def outcomes(strategy, attempt, inputs=60):
    """Try a few inputs; gives how many came to which outcome."""
    counts = Counter()

    @settings(
        max_examples=inputs,
        deadline=None,
        database=None,
        derandomize=True,  # `benchmarks/fuzz.py` draws anew
        suppress_health_check=CHECKS,
        report_multiple_bugs=False,  # each would be made smaller for minutes
    )
    @given(strategy)
    def run(value):
        counts[attempt(value)] += 1

    run()
    return counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a good model and a run that was stopped."""
    folder = tmp_path_factory.mktemp("good")
    save_model(folder / "good")
    stopped_run(folder / "run")
    return folder


@pytest.fixture(scope="module")
def files(folder):
    """The files of the good model."""
    return {file.name: file.read_bytes() for file in (folder / "good").iterdir()}


def test_a_damaged_model_folder_raises_only_an_error_with_a_message(files, tmp_path):
    assert try_folder(files, tmp_path / "broken")  # or nothing was told apart
    loaded = outcomes(folders(files), lambda given: try_folder(given, tmp_path / "broken"))
    assert loaded[False] > loaded.total() / 4


def test_a_damaged_folder_with_right_checksums_is_refused_or_answers_the_same(files, tmp_path):
    attempt = try_plausible(files, tmp_path / "plausible")
    assert attempt(files) == "same answers"
    assert outcomes(plausible(files), attempt)["refused"] > 30


def test_a_damaged_recipe_raises_only_an_error_with_a_message(tmp_path):
    loaded = outcomes(recipes(), lambda given: try_recipe(*given, tmp_path / "recipe.toml"))
    assert loaded[False] > loaded.total() / 4


def test_a_damaged_checkpoint_is_detected_or_makes_no_difference(folder, tmp_path):
    content = (folder / "run" / "checkpoint.pt").read_bytes()
    attempt = try_checkpoint(folder / "run", tmp_path / "resumed")
    assert attempt(Broken("not at all", content)) == "went on"
    assert outcomes(damaged_bytes(content), attempt, 30)["refused"] > 20


def test_a_changed_checkpoint_is_refused_or_resumed(folder, tmp_path):
    packed = torch.load(folder / "run" / "checkpoint.pt", weights_only=True)
    attempt = try_checkpoint(folder / "run", tmp_path / "resumed")
    assert attempt(Broken("not at all", packed)) == "went on"
    assert outcomes(changed(packed), attempt, 30)["refused"] > 5


def test_any_bytes_get_valid_http_answers(folder):
    ends = outcomes(draw_heads(), try_heads(folder / "good"))
    assert ends["200"] > 5
    assert ends["400"] + ends["431"] > 5
