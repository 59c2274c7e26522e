"""Uncompressed through AVIOT equals the family's own processor and `generate`, pixel for pixel and token for token."""

from functools import cache

import numpy as np
import pytest
import tiny_models as tiny
import torch

import aviot
from aviot.engine.base import Stopwatch

FPS = 2.0
SIZES = [(64, 98), (120, 90), (57, 131)]  # height and width: landscape, portrait, odd


@cache
def loaded(family):
    model, tokenizer = tiny.FAMILIES[family]()
    processor = tiny.PROCESSORS[family](tokenizer)
    return aviot.VideoLM(model, processor), model, processor


def clip(frames, size, seed=0):
    random = np.random.RandomState(seed)
    coarse = random.randint(0, 256, (frames, 6, 9, 3)).astype(np.uint8)
    rows = np.arange(size[0]) * 6 // size[0]
    columns = np.arange(size[1]) * 9 // size[1]
    noise = random.randint(0, 20, (frames, *size, 3))
    return np.clip(coarse[:, rows][:, :, columns].astype(int) + noise, 0, 255).astype(np.uint8)


def processed(processor, clips, questions):
    texts = [
        processor.apply_chat_template(
            [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": question}]}],
            add_generation_prompt=True,
            tokenize=False,
        )
        for question in questions
    ]
    about = [
        {
            "fps": FPS,
            "total_num_frames": len(one),
            "frames_indices": list(range(len(one))),
            "duration": len(one) / FPS,
            "width": one.shape[2],
            "height": one.shape[1],
        }
        for one in clips
    ]
    return processor(
        text=texts,
        videos=tiny.nested(processor, clips),
        video_metadata=tiny.nested(processor, about),
        return_tensors="pt",
        do_sample_frames=False,
        padding=True,
    )


def placed(lm, clips, questions, method="none", budget=4):
    videos = [lm.backbone.read(one, source_fps=FPS, fps=FPS) for one in clips]
    encoded = lm.backbone.encode(videos)
    prompts = [
        tiny.numbered(lm.backbone.prompt(question, video), number)
        for number, (question, video) in enumerate(zip(questions, videos, strict=True))
    ]
    from aviot.backbones.base import CompressionRequest

    made = lm.backbone.compress(encoded, prompts, CompressionRequest(aviot.Budget.of(budget), method))
    return lm.backbone.place(prompts, made), made, encoded


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("frames", [1, 2, 5, 8])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_pixels_equal_the_processors(family, frames, size):
    lm, _, processor = loaded(family)
    one = clip(frames, size)
    if frames == 1 and family in tiny.NO_SINGLE_FRAMES:
        pytest.skip("the family's own processor refuses one frame")
    theirs = processed(processor, [one], ["What?"])
    (ours,) = lm.backbone.pixels([lm.backbone.read(one, source_fps=FPS, fps=FPS)])
    pixels = ours[0] if isinstance(ours, tuple) else ours
    expected = theirs[tiny.PIXELS[family]].reshape(pixels.shape)
    assert torch.equal(pixels, expected)


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("lengths", [(6,), (6, 6), (4, 7)])
def test_uncompressed_answers_equal_the_models(family, lengths):
    lm, model, processor = loaded(family)
    clips = [clip(frames, SIZES[0], seed) for seed, frames in enumerate(lengths)]
    questions = ["What happens?", "And who is there at the end?"][: len(lengths)]
    ours, _, _ = placed(lm, clips, questions)
    if len(set(lengths)) > 1 and family in tiny.ONE_LENGTH:
        check_one_by_one(lm, model, processor, clips, questions)
        return
    inputs = processed(processor, clips, questions)
    expected = model.generate(**inputs, max_new_tokens=12, do_sample=False)
    assert torch.equal(ours.arguments["input_ids"], inputs["input_ids"])
    assert torch.equal(ours.arguments["attention_mask"], inputs["attention_mask"])
    found = model.generate(**ours.arguments, max_new_tokens=12, do_sample=False)
    assert torch.equal(found, expected)
    texts = processor.batch_decode(expected[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    answers = lm.engine.generate(placed(lm, clips, questions)[0], 12, Stopwatch(torch.device("cpu")))
    assert answers == [text.strip() for text in texts]


def check_one_by_one(lm, model, processor, clips, questions):
    """Compare a batch through AVIOT with the model's answers to its prompts one at a time."""
    answers = lm.engine.generate(placed(lm, clips, questions)[0], 12, Stopwatch(torch.device("cpu")))
    for one, question, answer in zip(clips, questions, answers, strict=True):
        inputs = processed(processor, [one], [question])
        expected = model.generate(**inputs, max_new_tokens=12, do_sample=False)[:, inputs["input_ids"].shape[1] :]
        assert answer == processor.batch_decode(expected, skip_special_tokens=True)[0].strip()


def test_numbers_in_words_are_the_librarys():
    from num2words import num2words

    from aviot.backbones.smolvlm import in_words

    assert [in_words(count) for count in range(10_000)] == [num2words(count) for count in range(10_000)]
