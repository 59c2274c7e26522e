"""A vLLM server for the tests, which can go away and return."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2

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
                if httpx2.get(f"{self.address}/health", timeout=2).is_success:
                    return
            except httpx2.TransportError:
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
