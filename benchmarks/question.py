"""Does the compressor follow the question? python benchmarks/question.py FOLDER [--steps 1500]

A tiny model is trained as `aviot train` trains, on generated videos of four frames. Every frame is striped in two
colours: a mark, one of four and each once a video, and a shade, one of two. The question names a mark, and the answer
is the shade beside it. At ratio 2 two supports are left, so the answer is sure only where the asked frame is kept apart
from the others, and which that is, nothing but the question says. Ratio 1.01, at which nothing is compressed, is drawn
as well: from it the decoder learns to read.

The trained model then answers held-out videos at ratio 2, with the compressor given their own question, another's (the
decoder still reads the right one), or none. One JSON object: language loss and accuracy of each.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch

from aviot.data import BatchLayout, Collate, Corpus
from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor
from aviot.models.backbone import Prompts
from aviot.models.sequence import IGNORED, pad_left, place_video
from aviot.training.config import TrainingConfig
from aviot.training.run import train
from aviot.training.source import training_data

ROOT = Path(__file__).parents[1]
MARKS = {"W": (230, 20, 20), "X": (20, 200, 20), "Y": (20, 20, 230), "Z": (230, 230, 20)}
SHADES = {"a": (20, 20, 20), "b": (235, 235, 235)}
SIDE, PATCH = 24, 6
RATIOS, RATIO = (1.01, 2.0), 2.0
WEIGHT = 0.1  # of the objective, which knows nothing of answers and would outweigh theirs at this size


def make_start(folder: Path) -> Path:
    tokenizer = AviotProcessor.from_pretrained(ROOT / "tests" / "golden" / "checkpoint").tokenizer
    torch.manual_seed(0)
    vision = {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": SIDE,
        "patch_size": PATCH,
        "vision_use_head": False,
    }
    text = {
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 1024,
        "vocab_size": len(tokenizer),
    }
    compressor = {"cost_dim": 32, "regions": ((1, 1), (2, 2), (4, 4)), "segments": 1, "warmup_steps": 100}
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = AviotConfig(vision, text, compressor, transport_loss_weight=WEIGHT, eos_token_id=end)
    model = AviotForConditionalGeneration(config)
    with torch.no_grad():  # as far apart as words are after training, so that questions differ
        model.get_input_embeddings().weight.normal_()
    model.save_pretrained(folder)
    AviotProcessor(tokenizer, image_size=SIDE).save_pretrained(folder)
    return folder


def make_videos(folder: Path, count: int, seed: int) -> Path:
    """Videos in a lossless codec, two frames a second, and a question about each."""
    folder.mkdir(parents=True)
    generator, records = np.random.default_rng(seed), []
    marks, shades = list(MARKS), list(SHADES)
    for number in range(count):
        order, shown = generator.permutation(len(marks)), generator.integers(0, len(shades), len(marks))
        with av.open(str(folder / f"{number}.mkv"), "w") as out:
            stream = out.add_stream("ffv1", rate=2)
            stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "bgr0"
            for mark, shade in zip(order, shown, strict=True):
                picture = np.empty((SIDE, SIDE, 3), np.uint8)
                stripe = np.arange(SIDE) % PATCH < PATCH // 2  # both in every patch
                picture[stripe], picture[~stripe] = MARKS[marks[mark]], SHADES[shades[shade]]
                out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            out.mux(stream.encode(None))
        asked = generator.integers(0, len(marks))
        said = [
            {"from": "human", "value": f"<image>\n{marks[order[asked]]}?"},
            {"from": "gpt", "value": shades[shown[asked]]},
        ]
        records.append({"id": str(number), "video": f"{number}.mkv", "conversations": said})
    (folder / "train.json").write_text(json.dumps(records))
    return folder / "train.json"


def settings(folder: Path, records: Path, a: argparse.Namespace) -> TrainingConfig:
    return TrainingConfig.from_dict(
        {
            "model": str(folder / "start"),
            "output": str(folder / "run"),
            "precision": "float32",
            "gradient_checkpointing": False,
            "data": {"records": str(records), "ratios": RATIOS, "index_folder": str(folder / "index")},
            "optimization": {
                "steps": a.steps,
                "global_batch": 32,
                "micro_batch": 32,
                "learning_rate": a.learning_rate,
            },
            "loader": {"workers": 0},
            "saving": {"every": a.steps},
            "logging": {"every": 50, "report_to": []},
        }
    )


@torch.no_grad()
def held_out(model: AviotForConditionalGeneration, batch: Any, question: str) -> dict[str, float]:
    """Loss and accuracy where the compressor is given each prompt's own question, its neighbour's, or none."""
    prompts = Prompts(
        *(batch[name] for name in ("input_ids", "attention_mask", "question_span", "video_index", "labels"))
    )
    encoded = model.encode(batch["pixel_values"], batch["frame_counts"].tolist())
    rows = model.model.embed_rows(prompts)
    given = {"own": [row.question for row in rows], "none": [None] * len(rows)}
    given["another's"] = [rows[number - 1].question for number in range(len(rows))]
    asked = [replace(row, question=mean) for row, mean in zip(rows, given[question], strict=True)]
    done = dict(model.model.compress_rows(asked, encoded, ratio=RATIO, compressor="aviot", step=None, record=True))
    placed = [place_video(row.embeds, row.place, done[i].tokens, row.labels) for i, row in enumerate(rows)]
    merged = pad_left([embeds for embeds, _ in placed], [labels for _, labels in placed])
    out = model(inputs_embeds=merged.embeds, attention_mask=merged.attention_mask, labels=merged.labels)
    predicted, labels = out.logits[:, :-1].argmax(-1), merged.labels[:, 1:]
    right = ((predicted == labels) | (labels == IGNORED)).all(1)
    return {"loss": round(out.lm_loss.item(), 4), "accuracy": round(right.float().mean().item(), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="A new folder for videos, features and the run.")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--videos", type=int, default=4000)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    a = parser.parse_args()
    make_start(a.folder / "start")
    config = settings(a.folder, make_videos(a.folder / "videos", a.videos, seed=1), a)
    last = train(config)
    test = settings(a.folder, make_videos(a.folder / "held-out", 400, seed=2), a)
    model, processor = AviotForConditionalGeneration.from_pretrained(last).eval(), AviotProcessor.from_pretrained(last)
    data = training_data(test, Corpus.open(test.data), model, processor, BatchLayout(32))
    batch = Collate(0)([data.dataset[position] for position in range(400)])
    print(json.dumps({question: held_out(model, batch, question) for question in ("own", "another's", "none")}))


if __name__ == "__main__":
    main()
