"""What the server counts, as Prometheus reads it."""

from prometheus_client.parser import text_string_to_metric_families

from serve.inside import inside
from small_models import sentence_model


def figures(server):
    """Every figure, by its name and labels."""
    status, headers, body = server.ask("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    samples = (each for family in text_string_to_metric_families(body.decode()) for each in family.samples)
    return {(each.name, *each.labels.values()): each.value for each in samples}


def test_requests_texts_batches_and_refusals_are_counted(tmp_path):
    model = sentence_model(tmp_path / "mine")
    with inside(model) as server, inside(model, max_queue=1) as other:
        before = figures(server)
        assert before["nse_refused_total", "queue_full"] == 0
        assert before["nse_ready",] == 1
        for texts in (["a"], ["good", "bad"], [""]):
            server.ask("/v1/predict", {"texts": texts})
        server.ask("/no/such/path")
        server.service.draining = True
        server.ask("/v1/predict", {"texts": ["a"]})
        found = figures(server)
        assert found["nse_requests_total", "/v1/predict", "200"] == 2
        assert found["nse_requests_total", "/v1/predict", "400"] == 1
        assert found["nse_requests_total", "/v1/predict", "503"] == 1
        assert found["nse_requests_total", "other", "404"] == 1
        assert found["nse_request_seconds_count", "/v1/predict"] == 4
        assert found["nse_batch_rows_count",] == 3
        assert found["nse_batch_rows_sum",] == found["nse_texts_total",] == 4
        assert found["nse_refused_total", "draining"] == 1
        assert found["nse_ready",] == 0
        assert found["nse_queue_requests",] == found["nse_computing",] == 0
        assert found["process_resident_memory_bytes",] > 1e6
        assert ("nse_requests_total", "/v1/predict", "200") not in figures(other)  # each server has its own
        assert [key for key in found if key[0] == "nse_model_info"]
