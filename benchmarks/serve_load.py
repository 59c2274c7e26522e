"""Load on `aviot serve` with the bundled demo model: throughput at several numbers of clients, and memory.

    python benchmarks/serve_load.py --seconds 60 --clients 1 32
    python benchmarks/serve_load.py --requests 5000 --clients 32 --only shared

The server runs in a process of its own, freshly started for every run, so that nothing is cached from another. Each
client asks one question after another, with budgets and lengths that vary, about drawn videos that are sent as data.

- shared: all clients go through the same sequence of videos, so that one encoding serves all of them;
- own: no video is ever sent twice;
- warm: as shared, with few videos that are all encoded after the first requests.
"""

import argparse
import base64
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from aviot.scenes import save, scene_with_questions

KINDS = ("shared", "own", "warm")
WARM_VIDEOS = 4
BUDGETS = (4, 8, {"keep": 0.1}, 16)
LENGTHS = (4, 8, 16)
SCENES = 64


@dataclass
class Load:
    """What the clients of one run do, and what came of it."""

    kind: str
    clients: int
    seconds: float
    requests: int | None
    sampling: dict[str, int] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)  # requests done, and bytes that the server holds
    lock: threading.Lock = field(default_factory=threading.Lock)

    def video(self, client: int, number: int) -> int:
        """Return the number of the video that a client asks about."""
        if self.kind == "warm":
            return (client + number) % WARM_VIDEOS
        return number if self.kind == "shared" else number * self.clients + client


class Videos:
    """Drawn videos as data addresses; the same scene is sent as different videos by bytes that decoders skip."""

    def __init__(self) -> None:
        self._scenes: list[tuple[bytes, list[str]]] = []
        with tempfile.TemporaryDirectory() as folder:
            for number in range(SCENES):
                drawn, path = scene_with_questions(number), Path(folder) / "scene.mp4"
                save(drawn.scene, path)
                self._scenes.append((path.read_bytes(), [question for question, _ in drawn.questions]))

    def address(self, number: int) -> str:
        data, _ = self._scenes[number % SCENES]
        content = number.to_bytes(8, "big")
        free = (8 + len(content)).to_bytes(4, "big") + b"free" + content  # a box of an MP4 that means nothing
        return f"data:video/mp4;base64,{base64.b64encode(data + free).decode()}"

    def questions(self, number: int) -> list[str]:
        return self._scenes[number % SCENES][1]


def resident(process: int) -> int:
    """Return the bytes of memory that a process and its children hold."""
    children = Path(f"/proc/{process}/task/{process}/children")
    held = [process, *(int(one) for one in children.read_text().split())] if children.exists() else [process]
    total = 0
    for one in held:
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total


def processor_seconds(process: int) -> float:
    """Return the processor time of a process and of its children that have ended or still run."""
    children = Path(f"/proc/{process}/task/{process}/children")
    total = 0
    for one in [process, *(int(child) for child in children.read_text().split())]:
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15] if one == process else fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def ask_until_over(load: Load, videos: Videos, client: int, url: str, process: int, ends: float) -> None:
    """Ask question after question, as one client."""
    chance, number = random.Random(client), 0
    with httpx2.Client(timeout=600, trust_env=False) as http:
        while time.monotonic() < ends and (load.requests is None or len(load.times) < load.requests):
            which = load.video(client, number)
            question = chance.choice(videos.questions(which))
            content = [
                {"type": "video_url", "video_url": {"url": videos.address(which)}},
                {"type": "text", "text": question},
            ]
            aviot = {"budget": chance.choice(BUDGETS), "method": "aviot"} | load.sampling
            asked = {"model": "aviot", "messages": [{"role": "user", "content": content}], "aviot": aviot}
            asked |= {"max_tokens": chance.choice(LENGTHS), "stream": chance.random() < 0.5}
            start = time.monotonic()
            reply = http.post(f"{url}v1/chat/completions", json=asked)
            good = reply.status_code == 200 and '"error":{' not in reply.text
            with load.lock:
                load.times.append(time.monotonic() - start)
                if not good:
                    load.wrong.append(f"{reply.status_code} {reply.text[:200]}")
                if len(load.times) % 100 == 0:
                    load.memory.append((len(load.times), resident(process)))
            number += 1


def run(load: Load, videos: Videos, options: list[str]) -> dict:
    """Start a server, put the load on it, and return what was measured."""
    command = [sys.executable, "-m", "aviot", "serve", "--port", "0", "--queue", "512", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        if not urlsplit(url).port:
            raise SystemExit("the server did not start")
        begun, processor = time.monotonic(), processor_seconds(server.pid)
        threads = [
            threading.Thread(target=ask_until_over, args=(load, videos, client, url, server.pid, begun + load.seconds))
            for client in range(load.clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, processor = time.monotonic() - begun, processor_seconds(server.pid) - processor
    finally:
        server.terminate()
        code = server.wait(120)
    per_request = round(processor / max(1, len(load.times)), 2)
    return summary(load, seconds) | {"processor_seconds_per_request": per_request, "exit": code}


def summary(load: Load, seconds: float) -> dict:
    """Return the numbers of a run."""
    times = sorted(load.times)
    found = {
        "load": load.kind,
        "clients": load.clients,
        "requests": len(times),
        "errors": len(load.wrong),
        "first_errors": load.wrong[:3],
        "requests_per_second": round(len(times) / seconds, 2),
        "p50_seconds": round(times[len(times) // 2], 2),
        "p95_seconds": round(times[int(len(times) * 0.95)], 2),
    }
    later = [held for done, held in load.memory if done >= 500]
    if later:
        found["memory_mb_after_500"] = [round(min(later) / 1e6), round(max(later) / 1e6), round(later[-1] / 1e6)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run; default: 60")
    parser.add_argument("--requests", type=int, help="of each run, instead of a time")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32], help="default: 1 32")
    parser.add_argument("--only", choices=KINDS, nargs="+", default=KINDS, help="default: all")
    parser.add_argument("--frames", type=int, help="to sample of each video; default: the model's rate")
    parser.add_argument("--options", default="", help="further options of aviot serve, as one text")
    chosen = parser.parse_args()
    videos, first = Videos(), {}
    seconds = chosen.seconds if chosen.requests is None else 1e9
    for kind in chosen.only:
        for clients in chosen.clients:
            sampling = {} if chosen.frames is None else {"frames": chosen.frames}
            found = run(Load(kind, clients, seconds, chosen.requests, sampling), videos, chosen.options.split())
            rate = found["requests_per_second"]
            first.setdefault(kind, rate)
            print(json.dumps(found | {"times_the_first": round(rate / first[kind], 2)}), flush=True)


if __name__ == "__main__":
    main()
