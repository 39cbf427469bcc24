"""A trace does not depend on the device that computed it."""

import numpy as np
import pytest

import nse
from faults.made_models import save_model
from small_models import save_document_model, save_ranking_model, save_sentence_model

TEXTS = {
    "sentence": ["the good dog runs and the cat sleeps"],
    "pair": ["all dogs that bark do not dance", "some dogs bark"],
    "mma": ["all dogs that bark do not dance", "some dogs bark"],
    "ranks": ["who runs ?", "a dog runs .", "the cat sleeps ."],
    "document": ["A good film. The cat sleeps, the dog runs."],
    "snli": ["Two dogs play in the snow.", "The animals are outdoors."],
}


def make_folder(name, path):
    match name:
        case "sentence":
            return save_sentence_model(path, directions=2, starts=1, blanks=2)
        case "ranks":
            return save_ranking_model(path)
        case "document":
            return save_document_model(path)
        case "pair" | "mma":
            save_model(path, model={"encoder": name.replace("pair", "nse"), "starts": 1, "init_range": 0.5})
            return path
    return name


@pytest.mark.gpu
@pytest.mark.parametrize("name", TEXTS)
def test_a_trace_on_a_gpu_equals_the_one_on_a_cpu(name, tmp_path):
    folder = make_folder(name, tmp_path / name)
    on_cpu, on_gpu = (nse.load(folder, device).trace(*TEXTS[name]) for device in ("cpu", "cuda"))
    assert [reading.name for reading in on_cpu.readings] == [reading.name for reading in on_gpu.readings]
    for one, other in zip(on_cpu.readings, on_gpu.readings, strict=True):
        assert one.words == other.words
        for first, second in zip(one.memories, other.memories, strict=True):
            assert np.abs(first.keys - second.keys).max() < 2e-3
            assert first.own == second.own
