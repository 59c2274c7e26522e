"""Prompts as token ids with placeholders, their positions, and the visual tokens that take the placeholders' place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from aviot.backbones.base import EncodedVideo, Prompt, VideoInPrompt
from aviot.backbones.huggingface.chat import ChatText
from aviot.backbones.huggingface.layout import TokenLayout, layout_of, runs_of
from aviot.backbones.huggingface.prompting import ChatPrompting
from aviot.engine.base import DecoderInput
from aviot.methods.base import Compressed, Method
from aviot.video import Video

IGNORED = -100  # label of what is not supervised, torch's default `ignore_index`


@dataclass(frozen=True)
class Row:
    """One prompt with its placeholders: token ids, and the indices of the visual ones among them.

    `labels` are the ids of what is supervised in training, `IGNORED` elsewhere.
    """

    ids: Int[Tensor, "L"]
    visual: Int[Tensor, "n"]
    positions: Int[Tensor, "3 L"] | None  # of families whose rotary embeddings have three axes
    labels: Int[Tensor, "L"]


class TokenPlacing(ChatPrompting):
    """A backbone whose model's `generate` takes visual tokens as `mm_encoder_outputs`."""

    modality: ClassVar[str] = "video"  # the key in `mm_encoder_outputs`
    token_id: int  # the number of `token`

    def project(self, made: Compressed, method: Method, encoded: EncodedVideo | None = None) -> VideoInPrompt:
        """Return the method's tokens in the order of the prompt; extras are mixed if the encoded video is given."""
        extras, placed = ({}, made) if encoded is None else (encoded.extras, made.on_grid(encoded.grid))
        layout = layout_of(placed, extras)
        order = layout.order.to(made.tokens.device)
        tokens, own = self.with_structure(made.tokens[order], order)
        return VideoInPrompt(tokens, made, order=own, layout=layout)

    def with_structure(
        self, tokens: Float[Tensor, "n d"], order: Int[Tensor, "n"]
    ) -> tuple[Float[Tensor, "v d"], Int[Tensor, "v"]]:
        """Add the structure tokens of the layout, with -1 in the order; by default there are none."""
        return tokens, order

    def frame_texts(self, times: Sequence[float], video: Video) -> list[str]:
        """Return the text before the tokens of each time, and the text after the last.

        By default all tokens stand together, without text.
        """
        return ["", ""]

    def rope(
        self, length: int, runs: list[tuple[int, int]], layout: TokenLayout, video: Video
    ) -> Int[Tensor, "3 L"] | None:
        """Return positions on three axes; None for families that count tokens."""
        return None

    def row(self, prompt: Prompt, placed: VideoInPrompt) -> Row:
        """Return one prompt's token ids: as many placeholders as there are tokens, between the family's texts."""
        content: ChatText = prompt.content
        layout: TokenLayout = placed.layout
        texts = self.frame_texts(layout.times, content.video)
        counts = layout.counts if len(texts) > 2 or len(layout.counts) == 1 else (sum(layout.counts),)
        counts = (*counts[:-1], counts[-1] + len(placed.tokens) - sum(counts))  # structure tokens come last
        before, after = content.text.split(self.placeholder)
        tokenized = self.tokenizer(before + self.token.join(texts) + after)["input_ids"]
        ids: list[int] = []
        runs: list[tuple[int, int]] = []
        left = iter(counts)
        for number in tokenized:
            if number == self.token_id:
                runs.append((len(ids), next(left)))
                ids.extend([number] * runs[-1][1])
            else:
                ids.append(number)
        labels = [IGNORED] * len(ids)
        for segment in content.following:
            more = self.token_ids(segment.text)
            ids.extend(more)
            labels.extend(more if segment.supervised else [IGNORED] * len(more))
        visual = torch.cat([torch.arange(start, start + count) for start, count in runs])
        positions = self.rope(len(ids), runs_of(visual), layout, content.video)
        return Row(torch.tensor(ids), visual, positions, torch.tensor(labels))

    @torch.inference_mode()
    def place(self, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt]) -> DecoderInput:
        """Build token ids with placeholders, positions, and the visual tokens that take their place."""
        return self.place_each(prompts, videos)[0]

    def place_each(
        self, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt]
    ) -> tuple[DecoderInput, Int[Tensor, "B L"]]:
        """Do the work of `place` in the caller's gradient mode; also return labels for training."""
        rows = [self.row(prompt, video) for prompt, video in zip(prompts, videos, strict=True)]
        length = max(len(row.ids) for row in rows)
        ids = torch.full((len(rows), length), self._pad)
        mask = torch.zeros_like(ids)
        labels = torch.full_like(ids, IGNORED)
        for place, row in enumerate(rows):
            start = length - len(row.ids)
            ids[place, start:], mask[place, start:], labels[place, start:] = row.ids, 1, row.labels
        arguments: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        if rows[0].positions is not None:
            arguments |= self._positions(rows, mask)
        arguments = {name: tensor.to(self.device) for name, tensor in arguments.items()}
        arguments["mm_encoder_outputs"] = {self.modality: self.encoder_output(videos)}
        at = tuple(row.visual + length - len(row.ids) for row in rows)
        visual = tuple((int(one[0]), len(one)) for one in at)
        return DecoderInput(arguments, length, visual, scattered=at), labels.to(self.device)

    def _positions(self, rows: Sequence[Row], mask: Int[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return positions in the text and on three axes, [4,B,L], zero where a row is padded, and token types."""
        positions = torch.zeros(4, *mask.shape, dtype=torch.long)
        kinds = torch.zeros_like(mask)
        for place, row in enumerate(rows):
            assert row.positions is not None  # a family has them for all rows or for none
            start = mask.shape[1] - len(row.ids)
            positions[0, place, start:] = torch.arange(len(row.ids))
            positions[1:, place, start:] = row.positions
            kinds[place, start + row.visual] = 2  # the number of videos among modalities
        return {"position_ids": positions, "mm_token_type_ids": kinds}

    def encoder_output(self, videos: Sequence[VideoInPrompt]) -> BaseModelOutputWithPooling:
        """Return the tokens of all prompts in the format of the model's own encoder."""
        return BaseModelOutputWithPooling(pooler_output=tuple(video.tokens for video in videos))

    @property
    def _pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        return pad if pad is not None else (self.tokenizer.eos_token_id or 0)
