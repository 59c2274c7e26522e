"""A small Qwen2-VL that learns the world by the same recipe: pairs of frames, 2 x 2 merging, M-RoPE."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration

from aviot.backbones.huggingface.layout import rope_positions
from aviot.backbones.huggingface.packed_attention import use_packed_attention
from aviot.backbones.huggingface.processing import Normalisation, Processing, in_patches
from aviot.backbones.llava_video.configuration import VIDEO_PLACEHOLDER
from aviot.backbones.llava_video.processing import TokenConversation
from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot.backbones.qwen2_vl import Qwen2VL
from aviot.budget import Budget
from aviot.config import CompressorConfig
from aviot.methods.baselines import RandomTokens
from aviot.methods.features import VideoFeatures
from aviot.utils.files import write_durably
from aviot.utils.printing import json_text
from aviot.utils.to_device import to_device
from aviot_lab.demo_model.architecture import TOKEN_GRID, init_matching
from aviot_lab.demo_model.batches import ConversationBatch
from aviot_lab.demo_model.families import ConversationTexts, Family
from aviot_lab.demo_model.learning import Answers, Sequences, read_answers
from aviot_lab.methods import CompressorName
from aviot_lab.world import RenderPlan, draw
from aviot_lab.world.world import GRID

SIDE = 4 * GRID  # pixels
MERGED = 2  # patches along a token's side, and frames per token
PATCH = SIDE // (TOKEN_GRID[0] * MERGED)  # pixels
SPECIAL = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
VIDEO_SETTINGS = {
    "size": {"shortest_edge": SIDE**2, "longest_edge": SIDE**2},
    "patch_size": PATCH,
    "merge_size": MERGED,
    "temporal_patch_size": MERGED,
    "image_mean": (0.5, 0.5, 0.5),
    "image_std": (0.5, 0.5, 0.5),
    "fps": 2.0,
    "max_frames": 224,
}
"""The video processor's settings: every frame becomes 108 x 108 pixels, as the world draws it."""


def qwen_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLConfig:
    """Return the configuration: as deep and wide as the demo model."""
    number = tokenizer.convert_tokens_to_ids
    text = {
        "hidden_size": 256,
        "intermediate_size": 640,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 32768,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0, "mrope_section": [8, 12, 12]},
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {
        "depth": 3,
        "embed_dim": 192,
        "hidden_size": 256,
        "num_heads": 3,
        "mlp_ratio": 3,
        "patch_size": PATCH,
        "spatial_merge_size": MERGED,
        "temporal_patch_size": MERGED,
    }
    return Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def new_qwen(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen2VLForConditionalGeneration:
    """Return the untrained model; its weights follow from the seed, and its decoder starts as the demo model's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2VLForConditionalGeneration(qwen_config(tokenizer))
        init_matching(model, tokenizer)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def save_processing(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the tokenizer and the video processor's settings beside a model's weights."""
    tokenizer.save_pretrained(folder)
    write_durably(folder / "video_preprocessor_config.json", json_text(VIDEO_SETTINGS).encode())


class QwenTexts:
    """Prompts in the chat template of Qwen2-VL."""

    def __init__(self, backbone: Qwen2VL) -> None:
        self.backbone = backbone.without_model()

    def encode_conversation(
        self, turns: Sequence[tuple[str, str]], duration: float, times: Sequence[float]
    ) -> TokenConversation:
        """Tokenize a conversation; the prompt tells nothing of times."""
        tokenizer, video = self.backbone.tokenizer, self.backbone.token_id
        ids: list[int] = []
        labels: list[int] = []
        questions = []
        asked = iter(turns)
        for segment in self.backbone.segments(turns):
            encoded = tokenizer(segment.text, add_special_tokens=False, return_offsets_mapping=True)
            tokens = encoded["input_ids"]
            if not segment.supervised:
                question, _ = next(asked)
                first = segment.text.rindex(question)
                inside = [
                    place
                    for place, (start, end) in enumerate(encoded["offset_mapping"])
                    if start < first + len(question) and end > first
                ]
                questions.append((len(ids) + inside[0], len(ids) + inside[-1] + 1))
            ids += [VIDEO_PLACEHOLDER if token == video else token for token in tokens]
            labels += tokens if segment.supervised else [IGNORED] * len(tokens)
        return TokenConversation(ids, labels, tuple(questions))


class QwenFamily(Family):
    """A small Qwen2-VL. It is trained on uncompressed videos and on videos with tokens missing."""

    name = "qwen"
    stride = MERGED
    merged_frames = MERGED
    model: Qwen2VLForConditionalGeneration

    @cached_property
    def backbone(self) -> Qwen2VL:
        """The model as a backbone."""
        return Qwen2VL(self.model, Processing(self.tokenizer, None, {}, VIDEO_SETTINGS))

    @property
    def texts(self) -> ConversationTexts:
        """The backbone's prompts."""
        return QwenTexts(self.backbone)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches of a pair of frames."""
        return SIDE // PATCH, SIDE // PATCH

    @property
    def encoder(self) -> nn.Module:
        """The vision transformer without the merger, which maps to the decoder's width."""
        visual = self.model.model.visual
        return nn.ModuleList([visual.patch_embed, visual.blocks])

    @property
    def encoder_layers(self) -> Sequence[nn.Module]:
        """The vision transformer's blocks."""
        return list(self.model.model.visual.blocks)

    @property
    def encoder_width(self) -> int:
        """The vision transformer's width."""
        return self.model.config.vision_config.embed_dim

    @property
    def compressor(self) -> CompressorConfig:
        """A new one's."""
        return CompressorConfig(dim=self.width)

    def freeze_encoder(self) -> None:
        """Also use one kernel launch per layer from now on, where there is one for frozen encoders."""
        super().freeze_encoder()
        use_packed_attention(self.model.model.visual)

    def encode(self, plans: Sequence[RenderPlan], videos: int) -> Float[Tensor, "V T S D"]:
        """Run the vision transformer; what it would merge is brought into the order of rows."""
        visual = self.model.model.visual
        frames = draw(plans, self.model.device)
        pixels = Normalisation.of(self.backbone.settings)(frames).unflatten(0, (videos, -1))
        patches = torch.cat([in_patches(one, PATCH, MERGED, MERGED) for one in pixels])
        pairs = -(-pixels.shape[1] // MERGED)
        thw = torch.tensor([[pairs, *self.grid]] * videos, device=patches.device)
        hidden = visual(patches.to(visual.dtype), grid_thw=thw).last_hidden_state
        rows, columns = TOKEN_GRID
        by_block = hidden.view(videos, pairs, rows, columns, MERGED, MERGED, -1)
        return by_block.transpose(3, 4).flatten(2, 5)

    def cells(self, features: Float[Tensor, "V T S D"]) -> Float[Tensor, "V T rows columns d"]:
        """Merge blocks of patches."""
        rows, columns = TOKEN_GRID
        by_row = features.unflatten(2, (rows, MERGED, columns, MERGED))
        blocks = by_row.transpose(3, 4).flatten(0, 5)  # as the encoder orders them
        return self.model.model.visual.merger(blocks).view(*features.shape[:2], rows, columns, -1)

    def by_cell(self, values: Float[Tensor, "B v d"]) -> Float[Tensor, "B T rows columns d"]:
        """There are no separators."""
        return values.unflatten(1, (-1, *TOKEN_GRID))

    def frame_means(self, answers: Answers) -> Float[Tensor, "V T d"]:
        """Return the mean token of every pair of frames."""
        return answers.x.mean(2)

    def answer(
        self,
        u: Float[Tensor, "V T S D"],
        batch: ConversationBatch,
        *,
        ratio: float | None,
        compressor: CompressorName,
    ) -> Answers:
        """Keep some tokens or all, place and decode."""
        device = u.device
        every = self.cells(u).flatten(2, 3)
        kept = batch.kept if ratio is None else self._drawn(every, ratio, compressor)
        kept = torch.arange(every.shape[1] * every.shape[2]) if kept is None else kept
        tokens = every.flatten(1, 2)[:, to_device(kept, device)][to_device(batch.video, device)]
        embed = self.model.get_input_embeddings()
        before, after = embed(to_device(batch.prefix, device)), embed(to_device(batch.ids, device))
        parts = before.expand(len(after), -1, -1), tokens, after
        whole = Sequences(*(part.to(tokens.dtype) for part in parts))
        positions = self.positions(len(batch.prefix), whole.length, kept)
        language, agrees = read_answers(self.model, whole, batch, positions=to_device(positions, device))
        return Answers(language, agrees, every, tokens, None)

    def positions(self, start: int, length: int, kept: Int[Tensor, "n"]) -> Int[Tensor, "3 L"]:
        """Return time, row and column of every token of a prompt, as at inference."""
        rows, columns = TOKEN_GRID
        pair, cell = kept // (rows * columns), kept % (rows * columns)
        offsets = torch.stack((pair, cell // columns, cell % columns), 1)
        return rope_positions(length, [(start, len(kept))], offsets, max(TOKEN_GRID), self.backbone.after_video)

    def _drawn(self, tokens: Float[Tensor, "V T S d"], ratio: float, compressor: CompressorName) -> Int[Tensor, "n"]:
        """Return the tokens that random dropping keeps, the only method that this family is examined with."""
        if compressor != "random-tokens":
            raise ValueError(
                f"a small Qwen2-VL is examined with random-tokens, got {compressor!r}; use aviot reproduce"
            )
        video = VideoFeatures(tokens[0].detach(), TOKEN_GRID)
        made: Any = RandomTokens()(video, budget=Budget(ratio=ratio))
        return made.mixture.indices[:, 0].cpu()
