"""The real server, for the faults that arrive by HTTP; one for all tests that leave it as they found it."""

import pytest

from serve.running import run_server
from small_models import save_sentence_model


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """The address of a small model of sentences, which reads a hundred words."""
    folder = save_sentence_model(tmp_path_factory.mktemp("served") / "mine", max_words=100)
    with run_server(folder) as (address, _):
        yield address
