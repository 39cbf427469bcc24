"""Whatever is sent: an answer or an error in the one shape, never 500. `benchmarks/fuzz.py` tries more."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from faults.made_models import saved
from serve.inside import inside
from serve.made_bodies import bodies, try_request
from small_models import save_document_model, save_ranking_model, save_sentence_model, save_translator

FEW = settings(
    max_examples=75,
    deadline=None,
    database=None,
    derandomize=True,  # or by chance nothing may be right; `benchmarks/fuzz.py` draws anew
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.parametrize(
    "make", [save_sentence_model, saved, save_ranking_model, save_translator, save_document_model]
)
def test_anything_is_answered_in_one_shape(tmp_path, make):
    make(tmp_path / "mine")
    statuses = Counter()
    with inside(tmp_path / "mine", max_chars=1000, max_texts=5) as server:

        @FEW
        @given(bodies())
        def run(request):
            statuses[try_request(server.ask, request)] += 1

        run()
        own = server.app.model.task
    assert statuses[422] > 10  # most of it is nonsense
    assert statuses[200] + statuses[400] > 10, own  # and some of it is nearly right
