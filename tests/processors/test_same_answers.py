"""Uncompressed through AVIOT equals the family's own processor and `generate`, pixel for pixel and token for token."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_models as tiny
import torch
from theirs import FPS, clip, loaded, metadata, pixels_of, placed, processed

import aviot
from aviot.engine.base import Stopwatch

SIZES = [(64, 98), (120, 90), (57, 131)]  # height and width: landscape, portrait, odd
QUESTIONS = ["What happens?", "And who is there at the end?"]
HISTORIES = [(("Who is it?", "A cat."),), (("Where?", "Outside, near a tree."), ("When?", "At 0:01."))]
NEW = 12  # tokens of an answer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("frames", [1, 2, 5, 8])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_pixels_equal_the_processors(family, frames, size):
    lm, _, processor = loaded(family)
    one = clip(frames, size)
    shown = one
    if frames == 1 and family in tiny.NO_SINGLE_FRAMES:
        shown = np.repeat(one, 2, 0)  # the family's own processor refuses one frame, and pads an odd number of them
    theirs = processed(processor, [shown], ["What?"])
    pixels = pixels_of(lm, lm.backbone.read(one, source_fps=FPS, fps=FPS))
    expected = theirs[tiny.PIXELS[family]].reshape(pixels.shape)
    assert torch.equal(pixels, expected)


def check(loaded_family, clips, histories=None):
    """Compare prompts and generated tokens of a batch."""
    lm, model, processor = loaded_family
    questions = QUESTIONS[: len(clips)]
    ours = placed(lm, clips, questions, histories)
    inputs = processed(processor, clips, questions, histories)
    assert torch.equal(ours.arguments["input_ids"], inputs["input_ids"])
    assert torch.equal(ours.arguments["attention_mask"], inputs["attention_mask"])
    if "mm_token_type_ids" in ours.arguments:
        assert torch.equal(ours.arguments["mm_token_type_ids"], inputs["mm_token_type_ids"])
    expected = model.generate(**inputs, max_new_tokens=NEW, do_sample=False)
    found = model.generate(**ours.arguments, max_new_tokens=NEW, do_sample=False)
    assert torch.equal(found, expected)
    texts = processor.batch_decode(expected[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    answers = lm.engine.generate(placed(lm, clips, questions, histories), NEW, Stopwatch(torch.device("cpu")))
    assert answers == [text.strip() for text in texts]


@pytest.mark.parametrize("size", SIZES[:2])
@pytest.mark.parametrize("lengths", [(1,), (5,), (6,), (6, 6)])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_uncompressed_answers_equal_the_models(family, lengths, size):
    if 1 in lengths and family in tiny.NO_SINGLE_FRAMES:
        pytest.skip("the family's own processor refuses one frame")
    check(loaded(family), [clip(frames, size, seed) for seed, frames in enumerate(lengths)])


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_mixed_lengths_equal_the_models(family):
    clips = [clip(frames, SIZES[0], seed) for seed, frames in enumerate((4, 7))]
    if family not in tiny.ONE_LENGTH:
        check(loaded(family), clips)
        return
    lm, model, processor = loaded(family)
    answers = lm.engine.generate(placed(lm, clips, QUESTIONS), NEW, Stopwatch(torch.device("cpu")))
    for one, question, answer in zip(clips, QUESTIONS, answers, strict=True):
        inputs = processed(processor, [one], [question])
        expected = model.generate(**inputs, max_new_tokens=NEW, do_sample=False)[:, inputs["input_ids"].shape[1] :]
        assert answer == processor.batch_decode(expected, skip_special_tokens=True)[0].strip()


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_text_before_the_video_and_earlier_turns_equal_the_models(family):
    lm, _, processor = loaded(family, system=True)
    clips = [clip(6, SIZES[2], seed) for seed in range(2)]
    check((lm, lm.backbone.model, processor), clips, HISTORIES)
    asked = lm.backbone.tokenizer.decode(placed(lm, clips, QUESTIONS, HISTORIES).arguments["input_ids"][1])
    assert asked.index("Where?") < asked.index("near a tree") < asked.index("At 0:01.") < asked.index(QUESTIONS[1])
    system = family != "smolvlm"  # whose own processor puts its own template in the place of any other
    assert ("You are terse." in asked) == system


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_long_videos_equal_the_models(family):
    """Times pass the text's positions, where families with rotary axes continue after the video."""
    check(loaded(family), [clip(40, SIZES[0])])


def test_temporal_positions_are_true_times_where_the_processors_drift():
    """Qwen2.5-VL's own processor divides the length by the number of frames: 121 are 11 of 0.44 s, not 0.48 s."""
    lm, model, processor = loaded("qwen2.5-vl")
    whole, fps, per_second = clip(121, (56, 56)), 25.0, 2
    assert model.config.vision_config.tokens_per_second == per_second
    video = lm.backbone.read(whole, source_fps=fps, fps=2.0)
    assert video.times == pytest.approx([0.48 * frame for frame in range(11)])
    shown = whole[list(video.indices)]
    about = [metadata(shown, fps, video.indices, len(whole))]
    inputs = dict(processed(processor, [shown], ["What?"], about=about))
    assert inputs["second_per_grid_ts"] == pytest.approx([0.88])
    ours = placed(lm, [video], ["What?"]).arguments
    assert torch.equal(ours["input_ids"], inputs["input_ids"])
    visual = inputs["mm_token_type_ids"][0] == 2

    def ticks(positions):
        return positions[0, 0, visual].unique() - int(visual.nonzero()[0, 0])

    assert ticks(ours["position_ids"][1:]).tolist() == [int(0.96 * pair * per_second) for pair in range(6)]
    own = {name: inputs[name] for name in ("input_ids", "mm_token_type_ids", "video_grid_thw", "attention_mask")}
    drifted, _ = model.model.get_rope_index(**own, second_per_grid_ts=torch.as_tensor(inputs["second_per_grid_ts"]))
    assert ticks(drifted).tolist() == [int(0.88 * pair * per_second) for pair in range(6)]
    exact, _ = model.model.get_rope_index(**own, second_per_grid_ts=torch.tensor([0.96]))
    assert torch.equal(ours["position_ids"][1:], exact)


@pytest.mark.parametrize("compression", [True, False])
def test_unchanged_tokens_of_videollama3(compression):
    """The family drops tokens whose pixels hardly change; of a frame without change it keeps the first."""
    lm, model, processor = loaded("video-llama3")
    one = clip(7, (84, 112))
    one[2] = one[1]  # nothing changes
    one[4, :, :50] = one[3, :, :50]  # the left side stays
    one[6] = one[5] // 1 + (one[5] < 255) * (np.arange(112) > 80)[None, :, None].astype(np.uint8)  # by one of 255
    inputs = processed(processor, [one], ["What?"], use_token_compression=compression)
    settings = {**lm.backbone.processing.video, "use_token_compression": compression}
    backbone = type(lm.backbone)(model, replace(lm.backbone.processing, video=settings))
    ours = placed(aviot.VideoLM(backbone), [one], ["What?"])
    assert torch.equal(ours.arguments["input_ids"], inputs["input_ids"])
    assert (inputs["video_compression_mask"].all().item()) != compression
    found = model.generate(**ours.arguments, max_new_tokens=NEW, do_sample=False)
    assert torch.equal(found, model.generate(**inputs, max_new_tokens=NEW, do_sample=False))


@pytest.mark.parametrize("fps", [20.0, 30000 / 1001])
@pytest.mark.parametrize("family", ["qwen3-vl", "qwen3.5", "video-llama3", "smolvlm"])
def test_times_in_the_text_equal_the_processors(family, fps):
    """Frames are spread unevenly; at 20 frames a second many times lie halfway between tenths of a second."""
    lm, _, processor = loaded(family)
    whole = clip(70, (56, 56))
    video = lm.backbone.read(whole, source_fps=fps, frames=23)
    assert len(set(np.diff(video.indices))) > 1
    shown = whole[list(video.indices)]
    inputs = processed(processor, [shown], ["What?"], about=[metadata(shown, fps, video.indices, len(whole))])
    assert torch.equal(placed(lm, [video], ["What?"]).arguments["input_ids"], inputs["input_ids"])


def test_numbers_in_words_are_the_librarys():
    from num2words import num2words

    from aviot.backbones.smolvlm import in_words

    assert [in_words(count) for count in range(10_000)] == [num2words(count) for count in range(10_000)]
