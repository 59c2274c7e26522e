"""Batches of questions answered with every method: a video is decoded and encoded once for all of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aviot.backbones.base import CompressionRequest, Prompt, VideoInPrompt, with_question
from aviot.engine.base import Stopwatch
from aviot.methods.base import Method
from aviot.session import AskOptions, VideoLM, VideoSession
from aviot_lab.demo_model.batches import as_prompt
from aviot_lab.field.size import FieldSetting
from aviot_lab.world import Question, Scene, World, render

Record = dict[str, Any]
OnSetting = Callable[[int, int], None]  # the setting that is answered next, counted from 1, and their number

PROMPTS_AT_ONCE = {"cpu": 1, "cuda": 32}  # a CPU gains nothing from batches, and padding costs it time
LONGEST_ANSWER = 12  # tokens; a right answer has at most three
NOT_FINITE = "not finite"  # in errors about NaN and infinity, which are no refusals


@dataclass(frozen=True)
class Asked:
    """One question about an opened video."""

    session: VideoSession
    scene: Scene
    question: Question
    text: str
    prompt: Prompt
    answer: str


@dataclass(frozen=True)
class Given:
    """A model's answer, the visual tokens that entered its decoder, and those that its last layer read."""

    text: str
    entered: int
    left: int


class FieldEvaluator:
    """One model and the settings with which it answers; `untrained` has reasons why trained methods are left out."""

    def __init__(
        self,
        lm: VideoLM,
        settings: Sequence[FieldSetting],
        untrained: str = "",
        on_setting: OnSetting = lambda setting, settings: None,
    ) -> None:
        self.lm, self.settings, self.untrained, self.on_setting = lm, tuple(settings), untrained, on_setting
        self.at_once = PROMPTS_AT_ONCE.get(lm.backbone.device.type, 1)

    @torch.inference_mode()
    def answer(self, world: World, scenes: Sequence[Scene]) -> Record:
        """Return right answers, numbers of tokens, times and refusals of every setting."""
        videos = list(self._open(world, scenes))
        asked = [one for video in videos for one in video]
        record: Record = {
            "scenes": [one.scene.index for one in asked],
            "families": [one.question.family for one in asked],
        }
        record |= {name: {} for name in ("right", "entered", "left", "milliseconds", "refused")}
        for number, setting in enumerate(self.settings, start=1):
            self.on_setting(number, len(self.settings))
            try:
                self._add(record, setting, videos)
            except ValueError as error:
                if NOT_FINITE in str(error):
                    raise
                record["refused"][setting.key] = " ".join(str(error).split())
        return record

    def _add(self, record: Record, setting: FieldSetting, videos: Sequence[Sequence[Asked]]) -> None:
        """Add one setting's answers to a record; raises ValueError if the method refuses the model or the budget."""
        method = self.lm.backbone.method(setting.method)
        if method.trained and self.untrained:
            raise ValueError(self.untrained)
        times = self._times(setting, method, videos[0][0])
        given = list(self._answers(setting, method, videos))
        asked = [one for video in videos for one in video]
        record["right"][setting.key] = [float(got.text == one.answer) for got, one in zip(given, asked, strict=True)]
        record["entered"][setting.key] = [got.entered for got in given]
        record["left"][setting.key] = [got.left for got in given]
        record["milliseconds"][setting.key] = times

    def _open(self, world: World, scenes: Sequence[Scene]) -> Iterator[list[Asked]]:
        """Draw, encode and ask about each scene; open questions and such with options take turns."""
        frames = render(scenes, self.lm.backbone.device).frames.cpu().numpy()
        for scene, shown in zip(scenes, frames, strict=True):
            session = self.lm.open(shown, source_fps=scene.fps, fps=scene.fps, max_frames=len(shown))
            yield [
                Asked(session, scene, question, text, session.prompt(text), answer)
                for number, question in enumerate(world.questions(scene))
                for text, answer in [as_prompt(question, open_ended=bool((scene.index + number) % 2))]
            ]

    def _answers(self, setting: FieldSetting, method: Method, videos: Sequence[Sequence[Asked]]) -> Iterator[Given]:
        """Answer all questions about all videos."""
        how = AskOptions(budget=setting.budget, method=method, max_new_tokens=LONGEST_ANSWER)
        if method.inside is not None:
            for asked in videos:
                for one in asked:
                    answer = one.session.ask(one.text, **how)
                    yield Given(answer.text, answer.tokens_entering, answer.tokens_after)
            return
        pairs = [pair for asked in videos for pair in self._compressed(setting, method, asked)]
        for start in range(0, len(pairs), self.at_once):
            prompts, made = zip(*pairs[start : start + self.at_once], strict=True)
            for text, video in zip(self._generate(prompts, made), made, strict=True):
                yield Given(text, len(video.tokens), len(video.tokens))

    def _compressed(
        self, setting: FieldSetting, method: Method, asked: Sequence[Asked]
    ) -> list[tuple[Prompt, VideoInPrompt]]:
        """Compress a video for each question about it; once, if the method uses no question."""
        session, prompts = asked[0].session, [one.prompt for one in asked]
        request = CompressionRequest(setting.budget, method, times=session.encoded.times)
        if method.uses_question:
            return list(zip(prompts, self.lm.backbone.compress([session.encoded], prompts, request), strict=True))
        (made,) = self.lm.backbone.compress([session.encoded], prompts[:1], request)
        return [(prompt, made) for prompt in prompts]

    def _generate(self, prompts: Sequence[Prompt], videos: Sequence[VideoInPrompt]) -> Sequence[str]:
        backbone = self.lm.backbone
        inputs = backbone.place(prompts, videos)
        backbone.check_length(inputs.length, LONGEST_ANSWER)
        return self.lm.engine.generate(inputs, LONGEST_ANSWER, Stopwatch(backbone.device))

    def _times(self, setting: FieldSetting, method: Method, asked: Asked) -> dict[str, float | None]:
        """Return the milliseconds of the method alone (None inside the decoder) and of the first token, of one prompt.

        Those of the first token include projection, compression and prefill, not the encoder.
        """
        session, backbone = asked.session, self.lm.backbone
        own: float | None = None
        if method.inside is not method:
            features = backbone.features(session.encoded, method, conditioned=True)
            features = with_question(features, method, asked.prompt)
            watch = Stopwatch(backbone.device)
            with watch.part("method"):
                method(features, question=asked.prompt.question, budget=setting.budget)
            own = round(watch.spent["method"], 3)
        (answer,) = session.answer_all([asked.prompt], budget=setting.budget, method=method, max_new_tokens=1)
        return {"method": own, "first token": answer.milliseconds["compress"] + answer.milliseconds["prefill"]}
