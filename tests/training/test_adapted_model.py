"""Training's forward pass on the families' models: the engine's logits, labels on answers alone, true gradients."""

import json

import numpy as np
import pytest
import torch
from adapting import config, save_model, save_records
from torch.nn import functional as F

from aviot import Budget, VideoLM
from aviot.backbones.base import CompressionRequest
from aviot.backbones.huggingface.chat import messages_of, training_segments
from aviot.data import BatchLayout, Clip, Corpus
from aviot.training.adapted_setup import StartingModel, load_adapted
from aviot.training.datasets import training_data

FAMILIES = ["qwen2.5-vl", "qwen3-vl", "llava-onevision", "internvl", "video-llama3", "smolvlm"]
ONE, SEVERAL, WITH_SYSTEM, LONGEST = range(4)  # numbers of records: one question, two questions, a system text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("adapted")
    (made / "set").mkdir()
    save_records(made / "set")
    return made


def loaded(folder, family, **changes):
    """Return a model in evaluation mode and the data that it is trained on."""
    if not (folder / family).is_dir():
        save_model(family, folder / family)
    chosen = config(folder, family, **changes)
    model, processor = load_adapted(chosen, StartingModel.of(chosen), "0", None)
    return model.eval(), training_data(chosen, Corpus.open(chosen.data), model, processor, BatchLayout(4))


def batch_of(data, *numbers):
    """Return a batch of records by their numbers in the file, whatever the order of training."""
    positions = {data.dataset.order.record(position): position for position in range(len(data.dataset))}
    return data.collate([data.dataset[positions[number]] for number in numbers])


def forward(model, data, batch, **options):
    return model(**data.trained.inputs(batch, encoded=False), **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_has_the_engines_logits(folder, family):
    """Two records of different lengths in one batch, against answers that generation is forced to give to each."""
    model, data = loaded(folder, family)
    batch = batch_of(data, ONE, LONGEST)
    with torch.no_grad():
        out = forward(model, data, batch)
    for number in range(2):
        answer = [token for token in batch["labels"][number].tolist() if token != -100]
        expected = forced_logits(VideoLM(model.backbone), folder, batch, number, answer)
        found = out.logits[number, -len(answer) - 1 : -1]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def forced_logits(lm, folder, batch, number, answer):
    """Return the logits before each token of an answer while `generate` is made to give it."""
    session = lm.open(str(folder / "set" / f"{batch['ids'][number]}.mp4"))
    prompt = session.prompt(batch["conversations"][number].turns[0][0])
    request = CompressionRequest(Budget(ratio=batch["ratios"][number]))
    videos = lm.backbone.compress([session.encoded], [prompt], request)
    inputs = lm.backbone.place([prompt], videos)
    given = lm.backbone.model.generate(
        **inputs.arguments,
        max_new_tokens=len(answer),
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        prefix_allowed_tokens_fn=lambda _, ids: [answer[len(ids) - inputs.length]],
    )
    return torch.cat(given.logits)


@pytest.mark.parametrize("family", ["qwen2.5-vl", "internvl"])
def test_the_loss_is_that_of_the_answers_alone(folder, family):
    model, data = loaded(folder, family)
    batch = batch_of(data, SEVERAL)
    with torch.no_grad():
        out = forward(model, data, batch, logits_to_keep=1_000_000)
    tokenizer = data.trained.processor.tokenizer
    ids = placed_ids(model, data, batch)
    answers = [tokenizer(f"{text}<|im_end|>")["input_ids"] for text in ("It is green.", "It becomes brighter.")]
    places = [at for answer in answers for at in range(len(ids)) if ids[at : at + len(answer)] == answer]
    assert len(places) == 2
    wanted = [at + i for at, answer in zip(places, answers, strict=True) for i in range(len(answer))]
    logits = out.logits[0, [at - 1 for at in wanted]].float()
    expected = F.cross_entropy(logits, torch.tensor([ids[at] for at in wanted]))
    assert out.lm_loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert sum(map(len, answers)) == int((batch["labels"] != -100).sum())


def placed_ids(model, data, batch):
    """Return the token ids of one prompt with its conversation, placeholders included."""
    (clip,), (talk,) = batch["clips"], batch["conversations"]
    encoded = model.encoded(clip)
    prompt = model.backbone.conversation(talk.turns, encoded.video, system=talk.system)
    with torch.no_grad():
        videos = model.backbone.compress_each([encoded], [prompt], CompressionRequest(batch["ratios"]))
        return model.backbone.place_each([prompt], videos)[0].arguments["input_ids"][0].tolist()


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl"])
def test_gradients_are_those_of_finite_differences(folder, family):
    """Through mixed tokens and, on Qwen3-VL, mixed deepstack features; in float64."""
    model, data = loaded(folder, family)
    model.double()
    batch = batch_of(data, LONGEST)
    side = model.backbone.scaling().factor
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (32, 2 * side, 3 * side, 3), dtype=np.uint8))
    clip = Clip(tuple(number / 2 for number in range(32)), 16.0, pixels, None, None)
    inputs = {"clips": [clip], "conversations": batch["conversations"], "ratio": [2.0]}
    weight = model.parts["compressor"].gate[3].weight  # the paper stops gradients of other weights at some points
    model.parts["compressor"].gate[3].bias.data.zero_()  # without a preference for the whole frame

    def loss():  # the model's own casts logits to float32
        return model(**inputs).logits.log_softmax(-1)[0, :, 65].sum()

    loss().backward()
    found, start = weight.grad.norm().item(), weight.detach().clone()
    steepest, step = weight.grad / found, 3e-3
    with torch.no_grad():
        sides = [loss().item() for sign in (1, -1) if weight.copy_(start + sign * step * steepest) is not None]
    expected = (sides[0] - sides[1]) / (2 * step)
    assert expected > 1e-3
    assert found == pytest.approx(expected, rel=1e-2)  # the decoders normalise in float32 whatever their type


def test_deepstack_features_carry_gradients(folder):
    model, data = loaded(folder, "qwen3-vl")
    batch = batch_of(data, ONE)
    encoded = model.encoded(batch["clips"][0])
    prompt = model.backbone.conversation(batch["conversations"][0].turns, encoded.video)
    (video,) = model.backbone.compress_each([encoded], [prompt], CompressionRequest(batch["ratios"]))
    for name, extra in video.layout.extras.items():
        model.zero_grad()
        extra.square().sum().backward(retain_graph=True)
        assert model.parts["compressor"].metric.embed[0].weight.grad.abs().max() > 0, name
        rebuilt = video.made.mixture.rebuild(encoded.extras[name].flatten(0, 1))
        torch.testing.assert_close(extra, rebuilt[video.order].to(extra.dtype), rtol=1e-5, atol=1e-6)


def test_cached_features_give_the_same_losses(folder, tmp_path):
    model, data = loaded(folder, "qwen3-vl", cache={"folder": str(tmp_path / "features"), "gigabytes": 1})
    fresh = batch_of(data, ONE, SEVERAL)
    with torch.no_grad():
        first = forward(model, data, fresh)
    data.trained.keep(fresh, first.encoded, data.cache, torch.float32)
    cached = batch_of(data, ONE, SEVERAL)
    assert all(clip.pixels is None and clip.features is not None for clip in cached["clips"])
    with torch.no_grad():
        second = forward(model, data, cached)
    assert torch.equal(first.logits, second.logits)
    assert torch.equal(first.loss, second.loss)
    counts = [data.trained.visual_tokens(each["clips"][0], 2.0) for each in (fresh, cached)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("family", ["qwen3-vl", "internvl", "smolvlm", "llava-onevision"])
def test_the_number_of_tokens_is_known_before_a_video_is_encoded(folder, family):
    model, data = loaded(folder, family)
    batch = batch_of(data, WITH_SYSTEM)
    counted = data.trained.visual_tokens(batch["clips"][0], batch["ratios"][0]) + len(batch["conversations"][0].ids) - 1
    assert counted == pytest.approx(len(placed_ids(model, data, batch)), abs=2)


def test_a_short_video_trains_without_the_compressor(folder):
    """Every weight still has a gradient, which distributed training needs."""
    model, data = loaded(folder, "qwen2.5-vl")
    batch = batch_of(data, ONE)
    clip = batch["clips"][0]
    short = type(clip)(clip.times[:1], clip.duration, clip.pixels[:1], None, None)
    out = model(clips=[short], conversations=batch["conversations"], ratio=[4.0])
    out.loss.backward()
    assert all(weight.grad is not None for weight in model.parts.parameters())


def test_text_that_stands_for_a_video_is_refused(folder):
    _, data = loaded(folder, "qwen2.5-vl")
    with pytest.raises(ValueError, match="video_pad"):
        data.trained.processor.encode_conversation([("What is <|video_pad|>?", "Nothing.")], 1.0, (0.0,))


def render(template):
    from jinja2 import Template

    return lambda messages, prompt: Template(template).render(messages=messages, add_generation_prompt=prompt)


TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}SPACE{% endif %}"
    "{% for part in m.content %}{{ 'V' if part.type == 'video' else part.text }}{% endfor %}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
TURNS = [("Q one", "A one"), ("Q two", "A two")]


@pytest.mark.parametrize("space", ["", " "])
def test_segments_are_the_prompt_and_its_answers(space):
    template = render(TEMPLATE.replace("SPACE", space))
    found = training_segments(TURNS, "S", template)
    assert [(each.text, each.supervised) for each in found] == [
        ("[system]S</s>\n[user]VQ one</s>\n[assistant]", False),
        (f"{space}A one</s>", True),
        ("\n[user]Q two</s>\n[assistant]", False),
        (f"{space}A two</s>", True),
    ]
    prompt = template(messages_of(["Q one", "Q two"], ["A one"], "S"), True)
    assert "".join(each.text for each in found[:-1]) == prompt


def test_a_start_of_answers_that_history_lacks_is_not_supervised():
    """Templates of thinking models open an answer with a thought, and leave it out of earlier answers."""
    thinking = TEMPLATE.replace("SPACE", "").replace("[assistant]{% endif %}", "[assistant]<t></t>{% endif %}")
    found = training_segments(TURNS, None, render(thinking))
    assert found[-2].text.endswith("[assistant]<t></t>")
    assert [each.text for each in found if each.supervised] == ["A one</s>", "A two</s>"]


def test_a_template_that_drops_turns_is_refused():
    with pytest.raises(ValueError, match="leaves out or repeats parts"):
        training_segments(TURNS, None, render("{{ messages[-1].content[0].text }}"))


def test_records_name_their_answers(folder):
    """The records of these tests are what they are taken for."""
    records = json.loads((folder / "set" / "train.json").read_text())
    assert [len(record["messages"]) for record in records] == [2, 4, 2, 2]
    assert records[WITH_SYSTEM]["system"]
