"""`aviot serve` in a process of its own, in the environment that has the server's packages."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("AVIOT_SERVER_PYTHON") or ROOT / ".venv" / "bin" / "python")
"""The interpreter of the server; lmms-eval's environment has another PyAV and no FastAPI."""


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[str]:
    """Yield the arguments of lmms-eval's model for a server with the folder's model and videos."""
    assert PYTHON.exists(), f"{PYTHON} is missing, which `make .venv/ready` makes; AVIOT_SERVER_PYTHON names another"
    command = [PYTHON, "-m", "aviot", "serve", "--model", folder / "model", "--media-folder", folder, "--port", "0"]
    log = folder / "server.log"
    where = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    with log.open("w") as errors:
        process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=errors, text=True, env=where)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, log.read_text()
        yield f"base_url={url}v1,model_version=model,api_key=none,max_retries=1"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
