"""The running server: its address, its gate, and its end."""

import copy
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from aviot.engine.choice import TRANSFORMERS, engine_of
from aviot.engine.continuous import ContinuousEngine
from aviot.serve.app import OPEN, Service
from aviot.serve.settings import Settings
from aviot.session import VideoLM
from aviot.web.access import Access, resolve
from aviot.web.gate import Gate, Keys
from aviot.web.server import WebServer, listening

ENDING_MARGIN = 30.0  # seconds, beside the longest answer's, in which requests are finished


def in_continuous_batches(lm: VideoLM, places: int) -> VideoLM:
    """Return the same model with an engine that decodes several answers at a time."""
    tokenizer = copy.deepcopy(lm.backbone.tokenizer)  # not safe to use from two threads
    return VideoLM(lm.backbone, engine=ContinuousEngine(lm.backbone.model, tokenizer, places=places))


def with_engine(lm: VideoLM, choice: str, places: int, key: str | None = None) -> VideoLM:
    """Return a model with the engine of a name or address; a decoder that runs elsewhere is freed in this process.

    `places` is the number of answers that this process decodes at a time, `key` a vLLM server's API key.
    """
    if choice == TRANSFORMERS:
        return in_continuous_batches(lm, places)
    return VideoLM(lm.backbone, engine=engine_of(choice, lm.backbone.model, lm.backbone.tokenizer, key=key))


def share_processors(lm: VideoLM) -> None:
    """Let each stage use half of the processors, on a CPU: encoding, compressing and decoding run side by side.

    Does nothing if OMP_NUM_THREADS says how many to use.
    """
    if lm.backbone.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() // 2))


@dataclass(frozen=True)
class At:
    """The place and the clients of a server: an address, further names of it, and an API key if there is one."""

    host: str = "127.0.0.1"
    port: int = 8000
    names: Iterable[str] = ()
    key: str | None = None


class Serving:
    """A server that listens; `run` answers until a signal, or until `end` is called, and closes the model's engine."""

    def __init__(self, lm: VideoLM, settings: Settings, at: At) -> None:
        self.listener: socket.socket = listening(resolve(at.host, at.port))
        try:
            host, port = self.listener.getsockname()[:2]
            self.access = Access.of(str(host), port, at.names)
            self.key = at.key or self.access.token  # an address that others can reach always has one
            self.service = self.make_service(lm, settings)
        except BaseException:
            self.listener.close()
            raise
        gate = self.make_gate(self.access)
        self._server = WebServer(gate, ending_seconds=self.ending_seconds, before_end=self._note_end)

    @property
    def url(self) -> str:
        """The address for clients."""
        return self.access.url.partition("?")[0]

    @property
    def ending_seconds(self) -> float:
        """Seconds after the first signal in which requests are finished."""
        return self.service.settings.limits.answer_seconds + ENDING_MARGIN

    def make_service(self, lm: VideoLM, settings: Settings) -> Service:
        """Return the application."""
        return Service(lm, settings)

    def make_gate(self, access: Access) -> Gate:
        """Return the gate in front of the application."""
        return Gate(self.service.app, access, Keys(self.key, OPEN), self.service.refusal)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Answer requests; return when all that were taken are finished. `ready` is called when signals are handled."""
        try:
            self._server.run_at(self.listener, ready)
        finally:
            self.service.close()

    def end(self) -> None:
        """Begin to end, from any thread; a second call ends at once."""
        self._server.end()

    def _note_end(self) -> None:
        self.service.ending = True
