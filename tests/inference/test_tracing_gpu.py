"""A trace does not depend on the device that computed it."""

import numpy as np
import pytest

import nse
from faults.made_models import saved
from small_models import save_document_model, save_ranking_model, save_sentence_model

TEXTS = {
    "sentence": ["the good dog runs and the cat sleeps"],
    "pair": ["all dogs that bark do not dance", "some dogs bark"],
    "mma": ["all dogs that bark do not dance", "some dogs bark"],
    "ranks": ["who runs ?", "a dog runs .", "the cat sleeps ."],
    "document": ["A good film. The cat sleeps, the dog runs."],
    "snli": ["Two dogs play in the snow.", "The animals are outdoors."],
}


def folder_of(name, place):
    match name:
        case "sentence":
            return save_sentence_model(place, directions=2, starts=1, blanks=2)
        case "ranks":
            return save_ranking_model(place)
        case "document":
            return save_document_model(place)
        case "pair" | "mma":
            saved(place, model={"encoder": name.replace("pair", "nse"), "starts": 1, "init_range": 0.5})
            return place
    return name


@pytest.mark.gpu
@pytest.mark.parametrize("name", TEXTS)
def test_a_trace_on_a_gpu_is_that_of_a_cpu(name, tmp_path):
    folder = folder_of(name, tmp_path / name)
    here, there = (nse.load(folder, device).trace(*TEXTS[name]) for device in ("cpu", "cuda"))
    assert [each.name for each in here.readings] == [each.name for each in there.readings]
    for one, other in zip(here.readings, there.readings, strict=True):
        assert one.words == other.words
        for mine, theirs in zip(one.memories, other.memories, strict=True):
            assert np.abs(mine.keys - theirs.keys).max() < 2e-3
            assert mine.own == theirs.own
