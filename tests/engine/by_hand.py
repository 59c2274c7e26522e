"""Tiny models of every family, and their language models run layer by layer by hand on the tokens that are left."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch
from families import tiny_models as tiny

import aviot
from aviot.backbones.base import CompressionRequest
from aviot.backbones.huggingface.processing import Processing
from aviot.backbones.registry import families
from aviot.engine.base import Reducing
from aviot.engine.reduction import reduced_decoder
from aviot.methods import InsideMethod, Kept, Reduction

SMALL = {"size": {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 12}}
LARGER = {"size": {"shortest_edge": 32 * 32 * 8, "longest_edge": 32 * 32 * 40}}
SETTINGS = {
    **dict.fromkeys(("qwen2-vl", "qwen2.5-vl", "video-llama3"), SMALL),
    **dict.fromkeys(("qwen3-vl", "qwen3-vl-moe", "qwen3.5"), LARGER),
    "llava-onevision": {"size": {"height": 42, "width": 42}},
    "internvl": {"size": {"height": 48, "width": 48}},
    "smolvlm": {"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 48}},
}
GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
FAMILIES = ("llava-video", *tiny.FAMILIES)
NEW = 4  # tokens to generate


@cache
def opened(family, dtype=torch.float32):
    """Return a session of a tiny model about a video of five frames."""
    frames = np.random.default_rng(0).integers(0, 255, (5, 56, 84, 3), dtype=np.uint8)
    if family == "llava-video":
        return aviot.VideoLM.from_pretrained(GOLDEN, device="cpu").open(frames, source_fps=2)
    model, tokenizer = tiny.FAMILIES[family]()
    model = model.to(dtype)
    (kind,) = (one for one in families() if one.handles(model.config.to_dict()))
    lm = aviot.VideoLM(kind(model, Processing(tokenizer, None, {}, SETTINGS[family])))
    return lm.open(frames, source_fps=2, fps=2)


def placed(session, method, budget=0.5):
    prompt = session.prompt("What happens?")
    (video,) = session.backbone.compress(
        [session.encoded], [prompt], CompressionRequest(aviot.Budget(keep=budget), method)
    )
    inputs = session.backbone.place([prompt], [video])
    return inputs, Reducing(method.inside, video.made, video.order, len(video.tokens) // 2)


@dataclass
class Planned(Reduction):
    """Steps that are known beforehand."""

    steps: dict = field(default_factory=dict)

    def before(self, layer, hidden, attention):
        return self.steps.get(("before", layer))

    def within(self, layer, hidden, attention):
        return self.steps.get(("within", layer))


class Plan(InsideMethod):
    """Drop and merge random tokens at chosen points; `steps` has a share that stays for each."""

    name = "plan"

    def __init__(self, points, *, merge, cut=False):
        self.points, self.merge, self.cut = points, merge, cut

    def start(self, entering):
        generator, count, steps = torch.Generator().manual_seed(3), len(entering), {}
        for point in self.points:
            left = max(1, count // 2)
            index = torch.randperm(count, generator=generator)[:left].sort().values
            steps[point] = Kept(index, cut=self.cut)
            if self.merge:
                into = torch.randint(-1, left, (count,), generator=generator)
                into[index] = torch.arange(left)
                steps[point] = Kept(index, into, torch.rand(count, generator=generator), cut=self.cut)
            count = left
        self.started = Planned(steps)
        return self.started


def matrix(kept, count):
    """Return a step as the dense matrix that it applies to the visual tokens."""
    found = torch.zeros(len(kept.index), count)
    for token in range(count):
        if kept.into is None:
            found[:, token] = kept.index == token
        elif kept.into[token] >= 0:
            found[kept.into[token], token] = kept.weights[token]
    return found


def decoder_call(model, arguments):
    """Return what the language model is called with in a plain prefill."""
    seen = {}
    hook = model.get_decoder().register_forward_pre_hook(lambda _, args, kwargs: seen.update(kwargs), with_kwargs=True)
    try:
        model(**arguments, use_cache=False)
    finally:
        hook.remove()
    return seen


def eager_weights(decoder, layer, normed, rotary):
    """Return a layer's attention weights, [heads, L, L], which transformers' eager attention returns."""
    before = decoder.config._attn_implementation
    decoder.config._attn_implementation = "eager"
    try:
        mask = torch.full((normed.shape[1],) * 2, -torch.inf).triu(1)[None, None]
        return layer.self_attn(normed, position_embeddings=rotary, attention_mask=mask)[1][0]
    finally:
        decoder.config._attn_implementation = before


class ByHand:
    """A language model, run layer by layer with its own parts, on tokens that leave at certain points.

    These are planned, or decided in the first call by a `reduction`, from eager attention.
    """

    def __init__(self, model, inputs, steps, hidden_from_answer=(), reduction=None):
        self.model, self.decoder, self.steps, self.reduction = model, model.get_decoder(), steps, reduction
        call = decoder_call(model, inputs.arguments)
        self.embeds, positions = call["inputs_embeds"], call.get("position_ids")
        self.positions = torch.arange(inputs.length)[None] if positions is None else positions
        self.positions = self.positions[1:] if self.positions.shape[0] == 4 else self.positions
        self.deeper = call.get("deepstack_visual_embeds") or []
        ((first, count),) = inputs.visual
        self.visual = inputs.scattered[0] if inputs.scattered else torch.arange(first, first + count)
        self.weights = self.choosing = None
        self.unseen = {}
        self.length, self.hidden_from_answer = inputs.length, set(hidden_from_answer)

    def __call__(self, answer):
        """Return the logits after a prompt and some tokens of the answer."""
        extra = self.model.get_input_embeddings()(torch.tensor([answer], dtype=torch.long))
        hidden = torch.cat((self.embeds, extra), 1)
        after = self.positions.max() if self.positions.ndim == 2 else self.positions[..., -1:]
        further = after + 1 + torch.arange(len(answer)).expand(*self.positions.shape[:-1], -1)
        cos, sin = self.decoder.rotary_emb(hidden, torch.cat((self.positions, further), -1))
        at, visual, extras = torch.arange(hidden.shape[1]), self.visual, [one.clone() for one in self.deeper]
        for number, layer in enumerate(self.decoder.layers):
            hidden, at, visual, extras, cos, sin = self.step(("before", number), hidden, at, visual, extras, cos, sin)
            normed, self.weights = layer.input_layernorm(hidden), None
            if hasattr(layer, "self_attn"):
                sees = at[:, None] >= at[None]
                if answer and number in self.hidden_from_answer:
                    sees &= ~((at[:, None] >= self.length) & self.gone(at)[None])
                if self.choosing is not None and number + 1 == self.choosing.layer:
                    weights = eager_weights(self.decoder, layer, normed, (cos, sin)).mean(0)
                    self.choose(weights[self.length :, visual], visual)
                for row, unseen in self.unseen.items():
                    if number >= self.choosing.layer:
                        sees[row, unseen] = False
                mixed, _ = layer.self_attn(normed, position_embeddings=(cos, sin), attention_mask=sees[None, None])
                if self.reduction is not None and (queries := self.reduction.queries(number)):
                    self.weights = eager_weights(self.decoder, layer, normed, (cos, sin))[:, -queries:]
            else:
                mixed = layer.linear_attn(normed)
            hidden = hidden + mixed
            hidden, at, visual, extras, cos, sin = self.step(("within", number), hidden, at, visual, extras, cos, sin)
            found = layer.mlp(layer.post_attention_layernorm(hidden))
            hidden = hidden + (found[0] if isinstance(found, tuple) else found)
            if number < len(extras):
                hidden[0, visual] = hidden[0, visual] + extras[number]
        self.left, self.reduction = at, None
        return self.model.lm_head(self.decoder.norm(hidden))[0, -1]

    def choose(self, rows, visual):
        """Note what each decoded token does not see from a layer on, by its attention and that of the one before."""
        for number, row in enumerate(rows):
            if number and torch.nn.functional.cosine_similarity(row, rows[number - 1], dim=0) >= self.choosing.change:
                continue
            count = max(1, int((len(row) - 1) * (1 - self.choosing.hidden)))
            self.unseen[self.length + number] = visual[row.argsort()[: len(row) - count]]

    def gone(self, at):
        """Return which of these tokens leave in some layer."""
        left = self.visual
        for kept in self.steps.values():
            left = left[kept.index]
        return torch.isin(at, self.visual) & ~torch.isin(at, left)

    def step(self, point, hidden, at, visual, extras, cos, sin):
        if self.reduction is not None and point != ("before", 0):
            rows = None if self.weights is None else self.weights[..., visual]
            kept = getattr(self.reduction, point[0])(point[1], hidden[0, visual], rows)
            if kept is not None:
                self.steps[point] = kept
        kept = self.steps.get(point)
        if kept is None:
            return hidden, at, visual, extras, cos, sin
        mixing = matrix(kept, len(visual))
        hidden = hidden.clone()
        hidden[0, visual[kept.index]] = mixing @ hidden[0, visual]
        stays = torch.tensor([place not in visual.tolist() for place in range(len(at))])
        stays[visual[kept.index]] = True
        new = stays.cumsum(0)[visual[kept.index]] - 1
        extras = [mixing @ one for one in extras]
        return hidden[:, stays], at[stays], new, extras, cos[:, stays], sin[:, stays]


def generated(model, inputs, reducing, **options):
    """Return the tokens of an answer, the logits behind each, and the cache."""
    with reduced_decoder(model, inputs, reducing):
        found = model.generate(
            **inputs.arguments, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, output_logits=True,
            return_dict_in_generate=True, **options,
        )  # fmt: skip
    logits = torch.stack([one[0] for one in found.logits])
    return found.sequences[0, -NEW:].tolist(), logits, found.past_key_values
