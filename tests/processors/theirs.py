"""The same video through the families' own processors and through ours."""

from dataclasses import replace
from functools import cache

import numpy as np
import tiny_models as tiny

import aviot
from aviot.backbones.base import CompressionRequest

FPS = 2.0
SYSTEM = "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are terse.<|im_end|>\n{% endif %}"


@cache
def loaded(family, system=False):
    """Return a family's tiny model with its own processor; `system` adds a default system turn to the template."""
    model, tokenizer = tiny.FAMILIES[family]()
    if system:
        start = "{% for message in messages %}"
        tokenizer.chat_template = tokenizer.chat_template.replace(start, start + SYSTEM)
    processor = tiny.PROCESSORS[family](tokenizer)
    return aviot.VideoLM(model, processor), model, processor


def clip(frames, size, seed=0):
    """Return frames of coarse patterns with a little noise."""
    random = np.random.RandomState(seed)
    coarse = random.randint(0, 256, (frames, 6, 9, 3)).astype(np.uint8)
    rows = np.arange(size[0]) * 6 // size[0]
    columns = np.arange(size[1]) * 9 // size[1]
    noise = random.randint(0, 20, (frames, *size, 3))
    return np.clip(coarse[:, rows][:, :, columns].astype(int) + noise, 0, 255).astype(np.uint8)


def conversation(question, history=()):
    """Return the turns of a conversation about a video, which comes first."""
    turns = [*(part for turn in history for part in turn), question]
    made = []
    for number, text in enumerate(turns):
        video = [{"type": "video"}] if number == 0 else []
        made.append({"role": ("user", "assistant")[number % 2], "content": [*video, {"type": "text", "text": text}]})
    return made


def metadata(frames, fps=FPS, indices=None, total=None):
    """Return what the families' processors read about a video whose frames have been sampled."""
    indices = list(range(len(frames))) if indices is None else list(indices)
    total = len(frames) if total is None else total
    about = {"fps": fps, "total_num_frames": total, "frames_indices": indices, "duration": total / fps}
    return about | {"width": frames.shape[2], "height": frames.shape[1]}


def processed(processor, clips, questions, histories=None, about=None, **options):
    """Return the inputs that a family's own processor makes."""
    histories = histories or [()] * len(clips)
    texts = [
        processor.apply_chat_template(conversation(question, history), add_generation_prompt=True, tokenize=False)
        for question, history in zip(questions, histories, strict=True)
    ]
    return processor(
        text=texts,
        videos=tiny.nested(processor, clips),
        video_metadata=tiny.nested(processor, about or [metadata(one) for one in clips]),
        return_tensors="pt",
        do_sample_frames=False,
        padding=True,
        **options,
    )


def placed(lm, videos, questions, histories=None, method="none", budget=4):
    """Return our decoder inputs of videos that have been read, or of arrays at the usual rate."""
    videos = [lm.backbone.read(one, source_fps=FPS, fps=FPS) if isinstance(one, np.ndarray) else one for one in videos]
    encoded = lm.backbone.encode(videos)
    histories = histories or [()] * len(videos)
    prompts = [
        replace(lm.backbone.prompt(question, video, history=history), video=number)
        for number, (question, video, history) in enumerate(zip(questions, videos, histories, strict=True))
    ]
    made = lm.backbone.compress(encoded, prompts, CompressionRequest(aviot.Budget.of(budget), method))
    return lm.backbone.place(prompts, made)


def pixels_of(lm, video):
    """Return our encoder input of one video."""
    (ours,) = lm.backbone.pixels([video])
    return ours[0] if isinstance(ours, tuple) else ours
