"""vLLM in this process and behind an address, started once: loading takes most of a test's time."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("vllm", reason="vLLM wants an environment of its own: make test-vllm")

from aviot.bundled import embedded_model
from aviot.engine.decoder_folder import save_decoder
from aviot.engine.vllm import VllmEngine
from aviot.session import VideoLM

START_SECONDS = 400


class Served:
    """A `vllm serve` of a decoder, which can be ended and started again at the same address."""

    def __init__(self, folder: Path, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.folder, self.log = folder, log
        self.process: subprocess.Popen | None = None

    def start(self, *, wait: bool = True) -> None:
        words = ["--enable-prompt-embeds", "--dtype", "float32", "--enforce-eager", "--host", "127.0.0.1"]
        words += ["--port", str(self.port), "--max-model-len", "4096"]
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]  # `vllm serve` wants vllm's own metadata
        self.process = subprocess.Popen(
            [*command, "--model", self.folder, *words],
            stdout=self.log.open("ab"),
            stderr=subprocess.STDOUT,
            env=os.environ | {"VLLM_NO_USAGE_STATS": "1"},
        )
        if wait:
            self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                if httpx.get(f"{self.address}/health", timeout=2).is_success:
                    return
            except httpx.TransportError:
                time.sleep(0.5)
        raise AssertionError(self.log.read_text()[-3000:])

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture(scope="session")
def bundled():
    return VideoLM.from_pretrained(embedded_model(), device="cpu")


@pytest.fixture(scope="session")
def decoder(bundled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoder") / "decoder"
    save_decoder(bundled.backbone.model, bundled.backbone.tokenizer, folder)
    return folder


@pytest.fixture(scope="session")
def served(decoder, tmp_path_factory):
    server = Served(decoder, tmp_path_factory.mktemp("log") / "vllm.log")
    server.start(wait=False)
    try:
        yield server
    finally:
        server.end()


@pytest.fixture(scope="session")
def in_process(bundled, decoder):
    model, tokenizer = bundled.backbone.model, bundled.backbone.tokenizer
    engine = VllmEngine(model, tokenizer, folder=decoder, max_model_len=4096, enforce_eager=True)
    yield engine
    engine.close()
