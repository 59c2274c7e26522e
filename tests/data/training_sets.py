"""Helpers that write small training sets with real videos."""

import json
from pathlib import Path

import av
import numpy as np

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"


def record(number: int = 0, **changes) -> dict:
    """Return a record in the format of LLaVA-Video-178K; a change to None removes the key."""
    values = {
        "id": f"r{number}",
        "conversations": [
            {"from": "human", "value": f"<image>\nWhat happens in clip {number}?"},
            {"from": "gpt", "value": f"Event {number}."},
        ],
        "data_source": "0_30_s_academic_v0_1",
        "video": f"academic_source/{number}.mp4",
    }
    return {key: value for key, value in (values | changes).items() if value is not None}


def turns(*texts: str) -> list[dict]:
    """Return alternating questions and answers as turns."""
    return [{"from": ("human", "gpt")[i % 2], "value": text} for i, text in enumerate(texts)]


def write_json(path: Path, records: list) -> Path:
    path.write_text(json.dumps(records, indent=1), encoding="utf-8")
    return path


def write_lines(path: Path, records: list) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return path


def write_video(path: Path, frames: int = 12, rate: int = 4, shade: int = 0) -> Path:
    """Write a video whose frames grow brighter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for i in range(frames):
            picture = np.full((32, 32, 3), (shade + i * 200 // frames) % 256, np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return path


def make_set(folder: Path, count: int = 6, *, missing: tuple[int, ...] = ()) -> Path:
    """Write records as a JSON array, and their videos of 6, 7, 8, … frames at two per second."""
    records = []
    for number in range(count):
        one = record(number)
        records.append(one)
        if number not in missing:
            write_video(folder / one["video"], frames=12 + 2 * number, shade=10 * number)
    return write_json(folder / "train.json", records)
