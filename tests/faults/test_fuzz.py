"""Faults 1 to 3 and 15, by the thousand: `benchmarks/fuzz.py` tries as many as you like, here are a few."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faults.fuzzing import folders, recipes, try_folder, try_recipe
from faults.made_models import saved

FEW = settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def test_a_broken_folder_is_a_message_and_nothing_else(tmp_path):
    saved(tmp_path / "good")
    files = {file.name: file.read_bytes() for file in (tmp_path / "good").iterdir()}
    loaded = []

    @FEW
    @given(st.data())
    def run(data):
        loaded.append(try_folder(data.draw(folders(files)), tmp_path / "broken"))

    run()
    assert try_folder(files, tmp_path / "broken")  # or nothing was told apart
    assert loaded.count(False) > len(loaded) / 4


def test_a_broken_recipe_is_a_message_and_nothing_else(tmp_path):
    loaded = []

    @FEW
    @given(recipes())
    def run(given):
        loaded.append(try_recipe(*given, tmp_path / "recipe.toml"))

    run()
    assert loaded.count(False) > len(loaded) / 4
