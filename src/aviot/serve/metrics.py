"""The server's metrics in Prometheus' format."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

KIND = CONTENT_TYPE_LATEST
SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics:
    """Counters and times of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter(
            "aviot_requests",
            "Requests by HTTP status; 499: the client left.",
            ["status"],
            registry=own,
        )
        self.seconds = Histogram(
            "aviot_request_seconds",
            "Seconds from a request to its last token.",
            buckets=SECONDS,
            registry=own,
        )
        self.first = Histogram(
            "aviot_first_token_seconds",
            "Seconds from a request to its first token.",
            buckets=SECONDS,
            registry=own,
        )
        self.stages = Histogram(
            "aviot_stage_seconds",
            "Seconds that a request or a video spent in a stage, waiting included.",
            ["stage"],
            buckets=SECONDS,
            registry=own,
        )
        self.features = Counter(
            "aviot_feature_lookups", "Lookups of encoder features, found or not.", ["result"], registry=own
        )
        self.tokens = Counter(
            "aviot_token_lookups", "Lookups of compressed tokens, found or not.", ["result"], registry=own
        )
        self.visual = Counter(
            "aviot_visual_tokens", "Visual tokens before and after compression.", ["when"], registry=own
        )
        self.decoded = Counter("aviot_answer_tokens", "Tokens decoded for answers.", registry=own)

    def gauge(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Add a gauge that is read when metrics are asked for."""
        Gauge(f"aviot_{name}", what, registry=self.registry).set_function(value)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Observe the time of a block that succeeds."""
        start = time.perf_counter()
        yield
        self.stages.labels(name).observe(time.perf_counter() - start)

    def page(self) -> bytes:
        """Return all metrics as text."""
        return generate_latest(self.registry)
