"""What happens, in numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from heedful.serve.messages import Counts
from heedful.serve.model_process import ModelProcess

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Everything that is counted."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "heedful_requests", "Requests answered.", ["route", "method", "status"], registry=registry
        )
        self.seconds = Histogram(
            "heedful_request_seconds", "From the first byte to the last.", ["route"], registry=registry, buckets=SECONDS
        )
        self.rejections = Counter("heedful_rejections", "Requests turned away.", ["reason"], registry=registry)
        self.connections = Gauge("heedful_connections", "Open connections.", registry=registry)
        self.batches = Histogram(
            "heedful_batch_sentences", "Sentences searched at once.", ["model"], registry=registry, buckets=SENTENCES
        )
        self.tokens = Counter("heedful_tokens", "Tokens read and written.", ["model", "direction"], registry=registry)
        self.answered = cache(self.requests.labels)  # found again without a lock
        self.took = cache(self.seconds.labels)
        self.rejected = cache(self.rejections.labels)
        self.queue = Gauge("heedful_queue_sentences", "Sentences accepted and not done.", ["model"], registry=registry)
        self.ready = Gauge("heedful_model_ready", "1 if the model is loaded.", ["model"], registry=registry)

    def watch(self, engine: ModelProcess) -> None:
        """Count what a model does."""
        name = engine.served.name
        self.queue.labels(name).set_function(lambda: engine.outstanding)
        self.ready.labels(name).set_function(lambda: engine.ready)
        engine.counted = self._counter(name)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str) -> Callable[[Counts], None]:
        def count(counts: Counts) -> None:
            for size in counts.batches:
                self.batches.labels(name).observe(size)
            self.tokens.labels(name, "in").inc(counts.tokens_in)
            self.tokens.labels(name, "out").inc(counts.tokens_out)

        return count
