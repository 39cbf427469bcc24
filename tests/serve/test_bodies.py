"""Random bodies get an answer or an error, never 500. `benchmarks/fuzz.py` tries more."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from faults.made_models import save_model
from serve.inside import serve_inside
from serve.made_bodies import draw_bodies, try_request
from small_models import save_document_model, save_ranking_model, save_sentence_model, save_translator

FEW = settings(
    max_examples=75,
    deadline=None,
    database=None,
    derandomize=True,  # so that some requests are valid
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.parametrize(
    "make", [save_sentence_model, save_model, save_ranking_model, save_translator, save_document_model]
)
def test_random_bodies_get_an_answer_or_a_well_formed_error(tmp_path, make):
    make(tmp_path / "mine")
    statuses = Counter()
    with serve_inside(tmp_path / "mine", max_chars=1000, max_texts=5) as server:

        @FEW
        @given(draw_bodies())
        def run(request):
            statuses[try_request(server.ask, request)] += 1

        run()
        own = server.app.model.task
    assert statuses[422] > 10  # most are invalid
    assert statuses[200] + statuses[400] > 10, own  # some are nearly valid
