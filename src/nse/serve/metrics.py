"""What the server counts, for Prometheus."""

from __future__ import annotations

import math
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

import nse
from nse.inference.model import Model

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, math.inf)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, math.inf)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The figures of one server, in a registry of its own.

    Args:
        served: The model that is served.
    """

    def __init__(self, served: Model):
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, CPU time, open files
        model = Info("nse_model", "What is served.", registry=self.registry)
        model.info(
            {
                "model": served.name,
                "kind": served.kind.name,
                "task": served.config.task,
                "version": nse.__version__,
            }
        )
        self.requests = Counter(
            "nse_requests", "Requests answered.", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "nse_request_seconds",
            "From the first line of a request to its answer.",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.refused = Counter(
            "nse_refused", "Requests that were not let in.", ["reason"], registry=self.registry
        )
        self.crowded_out = Counter(
            "nse_connections_crowded_out",
            "Connections without a request that were closed to make room for others.",
            registry=self.registry,
        )
        self.texts = Counter("nse_texts", "Texts computed.", registry=self.registry)
        self.failed = Counter(
            "nse_model_failures", "Requests on which the model failed.", registry=self.registry
        )
        self.batch_rows = Histogram(
            "nse_batch_rows", "Texts computed at a time.", buckets=ROWS, registry=self.registry
        )
        self.batch_seconds = Histogram(
            "nse_batch_seconds", "How long a batch took.", buckets=SECONDS, registry=self.registry
        )
        for reason in ("queue_full", "draining"):
            self.refused.labels(reason)  # so that it is 0 from the start, and not missing

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A figure that is looked up whenever it is asked for."""
        Gauge(name, about, registry=self.registry).set_function(value)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def computed(self, rows: int, seconds: float) -> None:
        """Count a batch."""
        self.texts.inc(rows)
        self.batch_rows.observe(rows)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)
