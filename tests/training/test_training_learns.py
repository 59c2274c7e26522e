"""A tiny model overfits a small set whose questions are all the same, so that only the videos differ."""

import json

import numpy as np
import pytest
import torch
from tiny import config, lines, make_start, write_video

from aviot.models import AviotForConditionalGeneration, AviotProcessor
from aviot.training.run import train

COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 200, 30),
    "blue": (30, 30, 220),
    "white": (235, 235, 235),
    "black": (20, 20, 20),
    "yellow": (230, 220, 40),
}
QUESTION = "Which colour is it?"


def make_colours(folder):
    folder.mkdir()
    generator, records = np.random.default_rng(0), []
    for name, colour in COLOURS.items():
        noise = generator.integers(-15, 15, (16, 32, 32, 3))
        write_video(folder / f"{name}.mp4", list(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)))
        turns = [{"from": "human", "value": f"<image>\n{QUESTION}"}, {"from": "gpt", "value": f"It is {name}."}]
        records.append({"id": name, "video": f"{name}.mp4", "conversations": turns})
    (folder / "train.json").write_text(json.dumps(records))


@pytest.mark.slow
@pytest.mark.untraced  # hundreds of passes over code that other tests cover
def test_a_small_set_is_memorized(tmp_path):
    make_start(tmp_path / "start")
    make_colours(tmp_path / "set")
    chosen = {"steps": 90, "global_batch": 6, "micro_batch": 6, "learning_rate": 1e-2}
    last = train(
        config(
            tmp_path,
            data={"ratios": [2.0, 4.0]},
            optimization=chosen,
            saving={"every": 90},
            logging={"every": 10},
            gradient_checkpointing=False,
        )
    )
    losses = [line["lm_loss"] for line in lines(last)]
    assert losses[0] > 3
    assert losses[-1] < 0.05
    model, processor = AviotForConditionalGeneration.from_pretrained(last).eval(), AviotProcessor.from_pretrained(last)
    videos = [str(tmp_path / "set" / f"{name}.mp4") for name in COLOURS]
    batch = processor(videos, [QUESTION] * len(COLOURS))
    with torch.no_grad():
        tokens = model.generate(**batch, ratio=3.0, max_new_tokens=24, do_sample=False)
    answers = processor.tokenizer.batch_decode(tokens, skip_special_tokens=True)
    assert [answer.strip() for answer in answers] == [f"It is {name}." for name in COLOURS]
