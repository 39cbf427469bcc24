"""Fault 18, in training: a checkpoint that changed on disk is detected, and the previous one is used."""

import io
import random
import shutil

import pytest
import torch

from faults.made_runs import assert_same_end, run_to_end, stop, train
from nse import RunError
from nse.train import checkpoints
from nse.train.checkpoints import BAD, CURRENT, PREVIOUS

PARTS = 16  # of a checkpoint file, damaged one after the other; the last holds its checksum


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory):
    """A run that was stopped twice, so that it has two checkpoints."""
    folder = tmp_path_factory.mktemp("made") / "run"
    stop(folder, after=4)
    stop(folder, after=12, resume=True)
    return folder


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """The same run, never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(folder)
    return folder


@pytest.fixture
def run(stopped_run, tmp_path):
    return shutil.copytree(stopped_run, tmp_path / "run")


def flip(file, position, bit):
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << bit
    file.write_bytes(content)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_flipped_bit_is_detected_and_the_previous_checkpoint_is_loaded(run, part):
    file, draw = run / CURRENT, random.Random(part)
    content = file.read_bytes()
    size = len(content) // PARTS
    assert checkpoints.load(run).content["step"] == 12
    for _ in range(8):
        flip(file, draw.randrange(part * size, (part + 1) * size), draw.randrange(8))
        loaded = checkpoints.load(run)
        assert (loaded.file.name, loaded.content["step"]) == (PREVIOUS, 9)
        assert "wrong checksum" in loaded.newer_error
        file.write_bytes(content)


@pytest.mark.parametrize("at", range(-40, 0, 3))
def test_a_flipped_bit_in_the_checksum_is_detected(run, at):
    flip(run / CURRENT, at, 5)
    assert checkpoints.load(run).file.name == PREVIOUS


def test_the_run_resumes_from_the_previous_checkpoint_and_ends_the_same(run, whole_run):
    flip(run / CURRENT, 5000, 3)
    damaged, log = (run / CURRENT).read_bytes(), io.StringIO()
    train(run, resume=True, log=log)
    assert (
        f"{run / CURRENT} cannot be read as a checkpoint (wrong checksum: it has changed since it was "
        f"saved); it is kept as {BAD}, and the previous one is used"
    ) in log.getvalue()
    assert f"resumed after step 9 (epoch 2) from {PREVIOUS}" in log.getvalue()
    assert (run / BAD).read_bytes() == damaged
    assert_same_end(run, whole_run)


@pytest.mark.parametrize(
    "content", [None, b"", b"garbage", "cut in the middle", "cut at the end", "longer", "a folder"]
)
def test_other_damage_to_the_newest_checkpoint_costs_only_its_steps(run, content):
    file = run / CURRENT
    before = file.read_bytes()
    changed = {
        "cut in the middle": before[: len(before) // 2],
        "cut at the end": before[:-1],
        "longer": before + b"\0",
    }
    file.unlink()
    if content == "a folder":
        file.mkdir()
    elif content is not None:
        file.write_bytes(changed.get(content, content))
    log = io.StringIO()
    stop(run, after=11, resume=True, log=log)
    assert f"resumed after step 9 (epoch 2) from {PREVIOUS}" in log.getvalue()
    assert checkpoints.load(run).content["step"] == 11
    assert checkpoints.read_file(run / PREVIOUS)["step"] == 9  # never replaced by a damaged one


def test_two_damaged_checkpoints_are_named_in_one_line(run):
    for name in (CURRENT, PREVIOUS):
        flip(run / name, 3000, 0)
    answer = run_to_end(run)
    assert answer.returncode == 2
    (line,) = answer.stderr.strip().split("\n")
    assert str(run / CURRENT) in line
    assert str(run / PREVIOUS) in line
    assert line.endswith("restore one of them, or remove both to start over")
    assert not (run / BAD).exists()


def test_another_recipe_is_refused_before_a_damaged_checkpoint_is_moved(run):
    flip(run / CURRENT, 3000, 0)
    with pytest.raises(RunError, match="another recipe"):
        train(run, "seed=7", resume=True)
    assert (run / CURRENT).exists()


def test_the_log_names_the_newest_checkpoint_if_it_is_valid(run):
    log = io.StringIO()
    stop(run, after=14, resume=True, log=log)
    assert f"resumed after step 12 (epoch 2) from {CURRENT}" in log.getvalue()


def test_a_checkpoint_of_another_version_is_refused(run):
    checkpoints.write_file(run / CURRENT, {"format": 99})
    with pytest.raises(RunError, match=r"has format 99; this version reads format 3: use the version"):
        train(run, resume=True)
    torch.save({"format": 2}, run / PREVIOUS)  # as files were before checksums
    (run / CURRENT).unlink()
    with pytest.raises(RunError, match="it is truncated or of another version"):
        train(run, resume=True)


NOT_FORMATS = [None, True, 3.0, "3", ["a\nb"], -1, 1 << 40, torch.zeros(2, 2)]


@pytest.mark.parametrize("number", NOT_FORMATS)
def test_a_checkpoint_without_a_format_number_counts_as_damaged(run, number):
    checkpoints.write_file(run / CURRENT, {"format": number})
    loaded = checkpoints.load(run)
    assert (loaded.file.name, loaded.content["step"]) == (PREVIOUS, 9)
    assert loaded.newer_error == f"{run / CURRENT} cannot be read as a checkpoint (it has no format number)"
