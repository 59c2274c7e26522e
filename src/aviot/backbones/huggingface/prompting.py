"""Prompts and conversations in a checkpoint's own chat template, with a placeholder for the video."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aviot.backbones.base import Backbone, History, Prompt
from aviot.backbones.huggingface.chat import ChatText, Segment, training_segments
from aviot.backbones.huggingface.processing import Processing
from aviot.backbones.questions import question_tokens
from aviot.video import Video

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for part in message['content'] %}{{ 'VIDEO' if part['type'] == 'video' else part['text'] }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' if add_generation_prompt else '' }}"
)


class ChatPrompting(Backbone):
    """A backbone whose prompts follow the chat template of its `processing`."""

    processing: Processing
    placeholder: ClassVar[str] = "<|video_pad|>"  # stands for a video in the text of a prompt
    token: ClassVar[str] = "<|video_pad|>"  # stands for one visual token
    in_template: ClassVar[str] = "<|vision_start|><|video_pad|><|vision_end|>"  # a video in `TEMPLATE`

    @classmethod
    def template_of(cls, processing: Processing) -> str:
        """Return the checkpoint's chat template, or the common one if it has none."""
        return processing.template or TEMPLATE.replace("VIDEO", cls.in_template)

    @torch.inference_mode()
    def prompt(
        self, question: str, video: Video, *, history: History = (), span: tuple[int, int] | None = None
    ) -> Prompt:
        """Apply the checkpoint's chat template; the question is represented by the mean of its embeddings."""
        self._refuse_placeholders((question, *(part for turn in history for part in turn)))
        text = self.processing.chat(question, history, self.template_of(self.processing))
        self._check_template(text)
        first, last = span or (0, len(question))
        own = question_tokens(self.tokenizer, self._embed, question, (first, last))
        mean = self._mean_embedding([question[first:last] or question])
        return Prompt(question, ChatText(text, video), mean, question_tokens=own)

    def segments(self, turns: History, system: str | None = None) -> tuple[Segment, ...]:
        """Return a conversation for training in segments of text; ValueError if it cannot be learned.

        The first is the prompt of the first question, with a placeholder for the video.
        """
        self._refuse_placeholders((system or "", *(part for turn in turns for part in turn)))
        render = partial(self.processing.render, self.template_of(self.processing))
        segments = training_segments(turns, system, render)
        self._check_template(segments[0].text)
        return segments

    def conversation(self, turns: History, video: Video, *, system: str | None = None, number: int = 0) -> Prompt:
        """Return a conversation about a video for training; its tokens are conditioned on all questions together.

        `number` is the video's among several encoded ones.
        """
        first, *following = self.segments(turns, system)
        questions = [question for question, _ in turns]
        content = ChatText(first.text, video, tuple(following))
        return Prompt(questions[0], content, self._mean_embedding(questions), number)

    def _refuse_placeholders(self, texts: Sequence[str]) -> None:
        if any(self.placeholder in text or self.token in text for text in texts):
            raise ValueError(f"the text contains {self.token!r}, which stands for a video; leave it out")

    def _check_template(self, text: str) -> None:
        if text.count(self.placeholder) != 1:
            raise ValueError(
                f"the chat template writes {self.placeholder!r} {text.count(self.placeholder)} times for one video; "
                "use the chat template of the model's own checkpoint"
            )

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of text inside a prompt."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    @torch.no_grad()
    def _mean_embedding(self, questions: Sequence[str]) -> Float[Tensor, "d"]:
        """Return the mean input embedding of all questions' tokens."""
        asked = [number for question in questions for number in self.token_ids(question)]
        return self._embed(torch.tensor(asked)).mean(0)

    def _embed(self, ids: Int[Tensor, "L"]) -> Float[Tensor, "L d"]:
        """Return the input embeddings of token ids; weights that lie elsewhere are fetched by their own hooks."""
        return self.model.get_input_embeddings()(ids.to(self.device))
