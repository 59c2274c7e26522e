"""Compressed videos in the prompts of every family, against prompts that the test builds on its own."""

from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import placing
import pytest
import tiny_models as tiny
import torch
from loaded import with_parts

import aviot
from aviot.backbones.base import CompressionRequest
from aviot.engine.transformers import TransformersEngine

SINGLE = ["uniform", "random"]  # methods for which one budget is enough
METHODS = ["segment-mean", "low-resolution", "aviot", "random-tokens", "uniform", "random"]
BUDGETS = {"2": 1 / 2, "4": 1 / 4, "keep0.1": 1 / 10}
EVEN, FRAMES = 2.0, 11
UNEVEN = (0.0, 0.15, 0.35, 1.0, 1.05, 2.75, 2.8, 4.0, 4.45, 7.65, 8.1)
HOUR = tuple(900.0 * (frame // 2) + 0.3 * (frame % 2) for frame in range(FRAMES))
QUESTION = "What happens next?"
NEW = 6


@cache
def loaded(family):
    return with_parts(tiny.backbone(family))


@cache
def encoded_video(family, times=None, frames=FRAMES, seed=0):
    """Return a clip of noise, encoded; its frames are evenly spaced unless it gets other times."""
    backbone = loaded(family)
    clip = np.random.RandomState(seed).randint(0, 256, (frames, 56, 112, 3)).astype(np.uint8)
    video = backbone.read(clip, source_fps=EVEN, fps=EVEN)
    if times:
        video = replace(video, times=times, duration=times[-1] + 1.1)
    (encoded,) = backbone.encode([video])
    return encoded


def budget_of(label):
    return aviot.Budget(keep=0.1) if label == "keep0.1" else aviot.Budget(ratio=float(label))


def method_of(name):
    return {"random-tokens": placing.RandomTokens(), "merged": placing.Merged()}.get(name, name)


def compressed(backbone, encoded, name, budget, question=QUESTION):
    prompt = backbone.prompt(question, encoded.video)
    (made,) = backbone.compress([encoded], [prompt], CompressionRequest(budget, method_of(name)))
    return prompt, made


def arguments_of(inputs):
    """Return a copy of the arguments of `generate`, which may change what it is given."""
    outputs = inputs.arguments["mm_encoder_outputs"]
    return {**inputs.arguments, "mm_encoder_outputs": {key: copy(value) for key, value in outputs.items()}}


CASES = [
    (name, label, times)
    for name in METHODS
    for label in BUDGETS
    for times in ("even", "uneven")
    if label == "2" or (times == "uneven" and name not in SINGLE)
]


@pytest.mark.parametrize(("name", "label", "times"), CASES)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_prompts_tokens_and_positions(family, name, label, times):
    backbone, encoded = loaded(family), encoded_video(family, UNEVEN if times == "uneven" else None)
    prompt, made = compressed(backbone, encoded, name, budget_of(label))
    check(family, backbone, encoded, prompt, made, groups_of(family, name, encoded, BUDGETS[label], made))


@pytest.mark.parametrize("times", [None, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_tokens_merged_over_time(family, times):
    backbone, encoded = loaded(family), encoded_video(family, times)
    prompt, made = compressed(backbone, encoded, "merged", budget_of("2"))
    check(family, backbone, encoded, prompt, made, placing.merged_groups(encoded))


@pytest.mark.parametrize("name", ["random-tokens", "uniform"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_times_of_an_hour_are_exact(family, name):
    """In float32 the time 3600.15 is off by a tenth of a millisecond, and its tick by one."""
    backbone, encoded = loaded(family), encoded_video(family, HOUR)
    prompt, made = compressed(backbone, encoded, name, budget_of("2"))
    check(family, backbone, encoded, prompt, made, groups_of(family, name, encoded, BUDGETS["2"], made))


def groups_of(family, name, encoded, keep, made):
    separators = 1 if family == "llava-onevision" else 0
    return placing.groups_of(name, encoded, keep, made.made, separators)


def check(family, backbone, encoded, prompt, made, groups):
    inputs = backbone.place([prompt], [made])
    text = placing.prompt_text(family, groups, encoded.video, QUESTION, backbone.token)
    ids = backbone.tokenizer(text, return_tensors="pt")["input_ids"]
    assert backbone.tokenizer.decode(inputs.arguments["input_ids"][0]) == text
    assert torch.equal(inputs.arguments["input_ids"], ids)
    tokens = torch.cat([group.tokens for group in groups])
    if family == "llava-onevision":
        tokens = torch.cat((tokens, backbone.model.model.image_newline[None].double()))
    torch.testing.assert_close(made.tokens.double(), tokens, rtol=1e-5, atol=1e-5)
    (visual,) = inputs.scattered
    assert torch.equal(visual, (ids[0] == backbone.token_id).nonzero()[:, 0])
    output = inputs.arguments["mm_encoder_outputs"][backbone.modality]
    assert torch.equal(torch.cat(list(output.pooler_output)), made.tokens)
    deeper = {layer: torch.cat([group.deeper[layer] for group in groups]) for layer in groups[0].deeper}
    for number, expected in enumerate(deeper.values()):
        torch.testing.assert_close(output.deepstack_features[number][0].double(), expected, rtol=1e-5, atol=1e-5)
    assert len(deeper) == (2 if family in ("qwen3-vl", "qwen3-vl-moe") else 0)
    rope = None
    if family in placing.ROTARY:
        per_second = getattr(backbone.model.config.vision_config, "tokens_per_second", 0)
        rope = placing.positions(family, ids[0], backbone.token_id, groups, encoded, encoded.video, per_second)
        assert torch.equal(inputs.arguments["position_ids"][1:, 0], rope)
        assert torch.equal(inputs.arguments["position_ids"][0, 0], torch.arange(ids.shape[1]))
        assert torch.equal(inputs.arguments["mm_token_type_ids"], 2 * (ids == backbone.token_id).long())
    check_logits(backbone, inputs, ids, tokens.float(), [one.float() for one in deeper.values()], rope)


@torch.inference_mode()
def check_logits(backbone, inputs, ids, tokens, deeper, rope):
    """Compare with the language model on embeddings that are put together here."""
    model, mask = backbone.model, ids == backbone.token_id
    embedded = model.get_input_embeddings()(ids).clone()
    embedded[mask] = tokens
    more = {"visual_pos_masks": mask, "deepstack_visual_embeds": deeper} if deeper else {}
    if rope is not None:
        more["position_ids"] = rope[:, None]
    text = getattr(model.model, "language_model", None) or model.model.text_model
    expected = model.lm_head(text(inputs_embeds=embedded, **more).last_hidden_state)
    torch.testing.assert_close(model(**arguments_of(inputs)).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", placing.ROTARY)
@pytest.mark.parametrize("frames", [1, 2, 7, 40])
def test_uncompressed_positions_are_the_models_own(family, frames):
    backbone, encoded = loaded(family), encoded_video(family, frames=frames)
    prompt, made = compressed(backbone, encoded, "none", aviot.Budget(ratio=4))
    given = backbone.place([prompt], [made]).arguments
    rows, columns = (2 * side for side in encoded.grid)
    expected, _ = backbone.model.model.get_rope_index(
        given["input_ids"],
        mm_token_type_ids=given["mm_token_type_ids"],
        video_grid_thw=torch.tensor([[len(encoded.times), rows, columns]]),
        attention_mask=given["attention_mask"],
        **({"second_per_grid_ts": torch.tensor([2 / EVEN])} if family == "qwen2.5-vl" else {}),
    )
    assert torch.equal(given["position_ids"][1:], expected)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_provenance_rebuilds_what_the_decoder_got(family, name):
    backbone, encoded = loaded(family), encoded_video(family, UNEVEN)
    _, placed = compressed(backbone, encoded, name, aviot.Budget(ratio=4))
    own = placed.order >= 0
    mixture, order = placed.made.mixture, placed.order[own]
    rebuilt = mixture.rebuild(encoded.features.flatten(0, 1))[order]
    torch.testing.assert_close(placed.tokens[own], rebuilt, rtol=1e-6, atol=1e-6)
    for layer, extra in encoded.extras.items():
        deeper = mixture.rebuild(extra.flatten(0, 1))[order]
        torch.testing.assert_close(placed.layout.extras[layer], deeper, rtol=1e-6, atol=1e-6)


def batch(family, name, budgets):
    """Return prompts about two videos of different lengths, compressed alone, and all together in one batch."""
    backbone = loaded(family)
    encoded = [encoded_video(family, UNEVEN), encoded_video(family, frames=6, seed=1)]
    questions = [QUESTION, "And who is there, near the end of it?"]
    prompts = [
        replace(backbone.prompt(question, one.video), video=number)
        for number, (question, one) in enumerate(zip(questions, encoded, strict=True))
    ]
    made = backbone.compress(encoded, prompts, CompressionRequest(budgets, method_of(name)))
    alone = [backbone.place([prompt], [one]) for prompt, one in zip(prompts, made, strict=True)]
    return backbone, alone, backbone.place(prompts, made)


def generated(backbone, inputs, **options):
    """Return the new tokens of every prompt, without padding after the end."""
    found = backbone.model.generate(**arguments_of(inputs), max_new_tokens=NEW, do_sample=False, **options)
    pad = backbone.tokenizer.pad_token_id
    return [[n for n in row if n != pad] for row in found[:, inputs.length :].tolist()]


@pytest.mark.parametrize("name", ["segment-mean", "random-tokens"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_batches_are_their_members(family, name):
    """Prompts of different lengths and numbers of tokens, padded on the left; with and without a cache."""
    backbone, alone, together = batch(family, name, [aviot.Budget(ratio=2), aviot.Budget(keep=0.25)])
    assert together.arguments["attention_mask"][:, 0].tolist() != [1, 1]
    single = [generated(backbone, one)[0] for one in alone]
    assert generated(backbone, together) == single
    if name == "random-tokens":
        assert generated(backbone, together, use_cache=False) == single
    with torch.inference_mode():
        both = backbone.model(**arguments_of(together)).logits
        for row, one in enumerate(alone):
            own = backbone.model(**arguments_of(one)).logits[0]
            torch.testing.assert_close(both[row, -len(own) :], own, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["segment-mean", "random-tokens"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_beams_are_those_of_one_prompt(family, name):
    """LLaVA-OneVision and InternVL take one tensor for a batch, so beams need equally many tokens there."""
    same = family in ("llava-onevision", "internvl")
    backbone, alone, together = batch(family, name, [aviot.Budget(supports=3), aviot.Budget(supports=3 if same else 2)])
    expected = [beams(backbone, one) for one in alone]
    found = beams(backbone, together)
    assert [row for row, _ in expected] == [found[0][:1], found[0][1:]]
    scores = torch.cat([score for _, score in expected])
    torch.testing.assert_close(found[1], scores, rtol=1e-4, atol=1e-4)


def beams(backbone, inputs):
    """Return the best of two beams for every prompt, and their scores."""
    options = {"max_new_tokens": NEW, "num_beams": 2, "output_scores": True, "return_dict_in_generate": True}
    found = backbone.model.generate(**arguments_of(inputs), **options)
    pad = backbone.tokenizer.pad_token_id
    return [
        [n for n in row if n != pad] for row in found.sequences[:, inputs.length :].tolist()
    ], found.sequences_scores


@pytest.mark.parametrize("family", ["llava-onevision", "internvl"])
def test_the_engine_never_uses_beams(family):
    """A checkpoint whose generation_config.json asks for beams answers batches of unequal prompts all the same."""
    backbone, alone, together = batch(family, "segment-mean", [aviot.Budget(ratio=2), aviot.Budget(ratio=4)])
    engine = TransformersEngine(backbone.model, backbone.tokenizer)
    expected = [generated(backbone, one)[0] for one in alone]
    backbone.model.generation_config.num_beams = 2
    try:
        found = engine._generate(replace(together, arguments=arguments_of(together)), NEW)[:, together.length :]
    finally:
        backbone.model.generation_config.num_beams = 1
    pad = backbone.tokenizer.pad_token_id
    assert [[n for n in row if n != pad] for row in found.tolist()] == expected
