"""Does the compressor follow the question? python benchmarks/question.py FOLDER [--steps 400]

A tiny model is trained as `aviot train` trains, on generated videos of four scenes of two frames. A scene has a mark,
one of four colours and each once a video, and a pair of shades, red then cyan or green then magenta, whose mean is the
same grey. The question names a mark, and the answer says which pair its scene has. At ratio 1.6 five supports are left:
one a scene, which is grey, and one more. So the answer is there only if the question moves that one to its scene.

Where supports go follows from the cosine of words and projected frames, which training does not teach: a video language
model brings it along. The tiny one starts with it, the marks' words put where the projector puts their frames.

The trained model then answers held-out videos, with the compressor given their own question, another's (the
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

from aviot.backbones.base import CompressionRequest
from aviot.backbones.llava_video.prompt_batch import IGNORED, Prompts, pad_left, place_video
from aviot.data import BatchLayout, Collate, Corpus
from aviot.models import AviotConfig, AviotForConditionalGeneration, AviotProcessor
from aviot.training.config import TrainingConfig
from aviot.training.datasets import training_data
from aviot.training.run import train

ROOT = Path(__file__).parents[1]
MARKS = {"W": (230, 20, 20), "X": (20, 200, 20), "Y": (20, 20, 230), "Z": (230, 230, 20)}
PAIRS = {"a": ((220, 20, 20), (20, 220, 220)), "b": ((20, 220, 20), (220, 20, 220))}
GREY = (120, 120, 120)
SIDE, PATCH = 24, 6
RATIO = 1.6


def make_start(folder: Path, seed: int) -> Path:
    tokenizer = AviotProcessor.from_pretrained(ROOT / "tests" / "golden" / "checkpoint").tokenizer
    torch.manual_seed(seed)
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
    compressor = {"cost_dim": 32, "regions": ((1, 1), (2, 2), (4, 4)), "warmup_steps": 100}
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model = AviotForConditionalGeneration(AviotConfig(vision, text, compressor, eos_token_id=end))
    place_words(model, tokenizer)
    model.save_pretrained(folder)
    AviotProcessor(tokenizer, image_size=SIDE).save_pretrained(folder)
    return folder


@torch.no_grad()
def place_words(model: AviotForConditionalGeneration, tokenizer: Any) -> None:
    """Give each mark's word the direction in which its frames differ from the others' in the decoder's space."""
    pictures = np.stack([picture(colour, GREY) for colour in MARKS.values()])
    pixels = torch.from_numpy(pictures).permute(0, 3, 1, 2)
    means = model.model.connector.frame_means(model.encode(pixels, [len(MARKS)])[0])
    words = torch.tensor([tokenizer.convert_tokens_to_ids(mark) for mark in MARKS])
    away = means - means.mean(0)
    model.get_input_embeddings().weight[words] = away / away.norm(dim=-1, keepdim=True)


def picture(mark: tuple[int, ...], shade: tuple[int, ...]) -> np.ndarray:
    """Stripes of both, so that every patch shows both."""
    made = np.empty((SIDE, SIDE, 3), np.uint8)
    stripe = np.arange(SIDE) % PATCH < PATCH // 2
    made[stripe], made[~stripe] = mark, shade
    return made


def make_videos(folder: Path, count: int, seed: int) -> Path:
    """Videos in a lossless codec, two frames a second, and a question about each."""
    folder.mkdir(parents=True)
    generator, records = np.random.default_rng(seed), []
    marks, pairs = list(MARKS), list(PAIRS)
    for number in range(count):
        order, shown = generator.permutation(len(marks)), generator.integers(0, len(pairs), len(marks))
        with av.open(str(folder / f"{number}.mkv"), "w") as out:
            stream = out.add_stream("ffv1", rate=2)
            stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "bgr0"
            for mark, pair in zip(order, shown, strict=True):
                for shade in PAIRS[pairs[pair]]:
                    frame = av.VideoFrame.from_ndarray(picture(MARKS[marks[mark]], shade), format="rgb24")
                    out.mux(stream.encode(frame))
            out.mux(stream.encode(None))
        asked = generator.integers(0, len(marks))
        said = [
            {"from": "human", "value": f"<image>\n{marks[order[asked]]}?"},
            {"from": "gpt", "value": pairs[shown[asked]]},
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
            "seed": a.seed,
            "gradient_checkpointing": False,
            "data": {"records": str(records), "ratios": [RATIO], "index_folder": str(folder / "index")},
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
    rows = model.model.embed_prompts(prompts)
    given = {"own": [row.question for row in rows], "none": [None] * len(rows)}
    given["another's"] = [rows[number - 1].question for number in range(len(rows))]
    asked = [replace(row, question=mean) for row, mean in zip(rows, given[question], strict=True)]
    done = dict(model.model.compress_prompts(asked, encoded, CompressionRequest(RATIO)))
    placed = [place_video(row.embeds, row.placeholder, done[i].tokens, row.labels) for i, row in enumerate(rows)]
    merged = pad_left([embeds for embeds, _ in placed], [labels for _, labels in placed])
    out = model(inputs_embeds=merged.embeds, attention_mask=merged.attention_mask, labels=merged.labels)
    predicted, labels = out.logits[:, :-1].argmax(-1), merged.labels[:, 1:]
    right = ((predicted == labels) | (labels == IGNORED)).all(1)
    return {"loss": round(out.lm_loss.item(), 4), "accuracy": round(right.float().mean().item(), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="A new folder for videos, features and the run.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--videos", type=int, default=1500)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    make_start(a.folder / "start", a.seed)
    config = settings(a.folder, make_videos(a.folder / "videos", a.videos, seed=2 * a.seed + 1), a)
    last = train(config)
    test = settings(a.folder, make_videos(a.folder / "held-out", 400, seed=2 * a.seed + 2), a)
    model, processor = AviotForConditionalGeneration.from_pretrained(last).eval(), AviotProcessor.from_pretrained(last)
    data = training_data(test, Corpus.open(test.data), model, processor, BatchLayout(32))
    batch = Collate(0)([data.dataset[position] for position in range(400)])
    print(json.dumps({question: held_out(model, batch, question) for question in ("own", "another's", "none")}))


if __name__ == "__main__":
    main()
