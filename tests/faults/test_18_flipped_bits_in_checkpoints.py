"""Fault 18, in training: a checkpoint that changed on the disk is found, and the one before it is taken."""

import io
import random
import shutil

import pytest
import torch

from faults.made_runs import assert_same_end, finished, stop, train
from nse import RunError
from nse.train import checkpoints
from nse.train.checkpoints import BAD, CURRENT, PREVIOUS

STRETCHES = 16
"""So many parts of a checkpoint file are attacked one by one; the last holds its checksum."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that was stopped twice, so that it has two checkpoints."""
    folder = tmp_path_factory.mktemp("made") / "run"
    stop(folder, after=4)
    stop(folder, after=12, resume=True)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same run, never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(folder)
    return folder


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


def flip(file, at, bit):
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << bit
    file.write_bytes(content)


@pytest.mark.parametrize("stretch", range(STRETCHES))
def test_a_flipped_bit_anywhere_is_found_and_the_one_before_is_taken(run, stretch):
    file, draw = run / CURRENT, random.Random(stretch)
    content = file.read_bytes()
    size = len(content) // STRETCHES
    assert checkpoints.load(run).packed["step"] == 12
    for _ in range(8):
        flip(file, draw.randrange(stretch * size, (stretch + 1) * size), draw.randrange(8))
        loaded = checkpoints.load(run)
        assert (loaded.file.name, loaded.packed["step"]) == (PREVIOUS, 9)
        assert "its checksum is wrong" in loaded.wrong
        file.write_bytes(content)


@pytest.mark.parametrize("at", range(-40, 0, 3))
def test_a_flipped_bit_in_the_checksum_is_found(run, at):
    flip(run / CURRENT, at, 5)
    assert checkpoints.load(run).file.name == PREVIOUS


def test_the_run_goes_on_from_the_one_before_says_so_and_ends_the_same(run, whole):
    flip(run / CURRENT, 5000, 3)
    broken, told = (run / CURRENT).read_bytes(), io.StringIO()
    train(run, resume=True, told=told)
    assert (
        f"{run / CURRENT} cannot be read as a checkpoint (its checksum is wrong: it has changed since it was "
        f"saved); it is kept as {BAD}, and the one before it is taken"
    ) in told.getvalue()
    assert f"resumed after step 9 (epoch 2) from {PREVIOUS}" in told.getvalue()
    assert (run / BAD).read_bytes() == broken
    assert_same_end(run, whole)


@pytest.mark.parametrize(
    "content", [None, b"", b"garbage", "cut in the middle", "cut at the end", "longer", "a folder"]
)
def test_other_harm_to_the_newest_costs_its_steps_only(run, content):
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
    told = io.StringIO()
    stop(run, after=11, resume=True, told=told)
    assert f"resumed after step 9 (epoch 2) from {PREVIOUS}" in told.getvalue()
    assert checkpoints.load(run).packed["step"] == 11
    assert checkpoints.read_file(run / PREVIOUS)["step"] == 9  # a bad one never takes the place of a good one


def test_where_both_are_bad_both_are_named_in_one_line(run):
    for name in (CURRENT, PREVIOUS):
        flip(run / name, 3000, 0)
    answer = finished(run)
    assert answer.returncode == 2
    (line,) = answer.stderr.strip().split("\n")
    assert str(run / CURRENT) in line
    assert str(run / PREVIOUS) in line
    assert line.endswith("get one of them back, or remove both to start over")
    assert not (run / BAD).exists()


def test_another_recipe_is_refused_before_a_bad_one_is_moved(run):
    flip(run / CURRENT, 3000, 0)
    with pytest.raises(RunError, match="another recipe"):
        train(run, "seed=7", resume=True)
    assert (run / CURRENT).exists()


def test_the_newest_is_named_as_well_where_it_is_good(run):
    told = io.StringIO()
    stop(run, after=14, resume=True, told=told)
    assert f"resumed after step 12 (epoch 2) from {CURRENT}" in told.getvalue()


def test_a_checkpoint_of_another_version_is_no_bad_one(run):
    checkpoints.write_file(run / CURRENT, {"format": 99})
    with pytest.raises(RunError, match=r"checkpoint.pt: format 99, this version reads 3: use the version"):
        train(run, resume=True)
    torch.save({"format": 2}, run / PREVIOUS)  # as it was before there were checksums
    (run / CURRENT).unlink()
    with pytest.raises(RunError, match="it is cut off, or of another version"):
        train(run, resume=True)


NO_NUMBERS = [None, True, 3.0, "3", ["a\nb"], -1, 1 << 40, torch.zeros(2, 2)]


@pytest.mark.parametrize("number", NO_NUMBERS)
def test_a_checkpoint_without_a_format_number_is_a_bad_one(run, number):
    """Told in one line, whatever stands there instead, and the one before it is taken."""
    checkpoints.write_file(run / CURRENT, {"format": number})
    loaded = checkpoints.load(run)
    assert (loaded.file.name, loaded.packed["step"]) == (PREVIOUS, 9)
    assert loaded.wrong == f"{run / CURRENT} cannot be read as a checkpoint (it holds no format number)"
