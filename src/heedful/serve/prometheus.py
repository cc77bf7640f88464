"""Metrics of the server for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from heedful.serve.messages import Counts
from heedful.serve.model_process import ModelProcess

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All counters, gauges and histograms."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "heedful_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "heedful_request_seconds",
            "Seconds to answer a request.",
            ["route"],
            registry=registry,
            buckets=SECONDS,
        )
        self.rejections = Counter("heedful_rejections", "Requests rejected.", ["reason"], registry=registry)
        self.connections = Gauge("heedful_connections", "Open connections.", registry=registry)
        self.batches = Histogram(
            "heedful_batch_sentences", "Sentences in a batch.", ["model"], registry=registry, buckets=SENTENCES
        )
        self.tokens = Counter("heedful_tokens", "Tokens read and written.", ["model", "direction"], registry=registry)
        self.count_request = cache(self.requests.labels)  # `labels` takes a lock
        self.observe_seconds = cache(self.seconds.labels)
        self.count_rejection = cache(self.rejections.labels)
        self.queue = Gauge("heedful_queue_sentences", "Sentences not finished.", ["model"], registry=registry)
        self.ready = Gauge("heedful_model_ready", "1 if the model is loaded.", ["model"], registry=registry)

    def watch(self, model: ModelProcess) -> None:
        """Export the metrics of a model."""
        name = model.served.name
        self.queue.labels(name).set_function(lambda: model.outstanding)
        self.ready.labels(name).set_function(lambda: model.ready)
        model.on_counts = self._counter(name)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str) -> Callable[[Counts], None]:
        def count(counts: Counts) -> None:
            for size in counts.batches:
                self.batches.labels(name).observe(size)
            self.tokens.labels(name, "in").inc(counts.tokens_in)
            self.tokens.labels(name, "out").inc(counts.tokens_out)

        return count
