"""An animation for slides: the video plays, with its tokens in time and what the model saw at each moment."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from aviot.explain.blends import blended
from aviot.explain.clip import even_size
from aviot.explain.pictures import Pictures
from aviot.explain.spending import clock
from aviot.explain.study import Study
from aviot.explain.view import View
from aviot.utils.files import atomic_write

SUFFIXES = (".mp4", ".gif")
SIZE = (880, 470)  # pixels
MARGIN, PICTURES_TALL, TIMELINE_TALL = 20, 264, 74
MOST_STEPS = 96  # moments of the video that are drawn
STEPS_PER_SECOND = 8
GIF_WIDTH, GIF_STEPS, GIF_PER_SECOND = 560, 18, 3  # smaller, since GIF compresses worse
GIF_COLOURS = 128
PAPER, INK, SOFT, LINE = "#fbfbfa", "#17191d", "#565b63", "#dadde2"
SERIES = ("#0b5cad", "#b34700", "#00664b", "#7a3b8f")


@dataclass
class AnimationViews:
    """A collector of what an animation needs of each view."""

    pictures: Pictures
    cover: float
    blends: list[list[Image.Image]] = field(default_factory=list)
    best: list[list[int]] = field(default_factory=list)  # of each frame, the output that it gave most to
    spent: list[list[float]] = field(default_factory=list)

    def add(self, view: View) -> None:
        """Copy one view's numbers, and blend its supports."""
        self.blends.append(blended(view.coefficients, self.pictures, view.grid, self.cover))
        self.best.append(view.frames.argmax(0).tolist())
        self.spent.append(view.spent.tolist())


def check_suffix(path: Path) -> None:
    """Raise ValueError for a file that is neither MP4 nor GIF."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"an animation ends in {' or '.join(SUFFIXES)}, got {path.name}")


def write_animation(path: Path, study: Study, views: AnimationViews, sentences: Sequence[str]) -> None:
    """Write the animation; `sentences` has one per condition. Questions take turns, each compressed for itself."""
    is_gif = path.suffix.lower() == ".gif"
    frames = _drawn(study, views, sentences, GIF_STEPS if is_gif else MOST_STEPS)
    with atomic_write(path) as partial:
        if is_gif:
            _write_gif(partial, frames)
        else:
            _write_mp4(partial, frames)


def _drawn(study: Study, views: AnimationViews, sentences: Sequence[str], most: int) -> list[Image.Image]:
    """Return the pictures: for every question in turn, evenly spaced moments of the video."""
    count, steps = len(study.times), min(len(study.times), most)
    shown = sorted({round(n * (count - 1) / max(1, steps - 1)) for n in range(steps)})
    first = {each.question: n for n, each in reversed(list(enumerate(study.conditions)))}
    return [
        _picture(study, views, number, frame, sentences[number])
        for number in (first[question] for question in sorted(first))
        for frame in shown
    ]


def _picture(study: Study, views: AnimationViews, number: int, frame: int, sentence: str) -> Image.Image:
    condition = study.conditions[number]
    image = Image.new("RGB", SIZE, PAPER)
    draw = ImageDraw.Draw(image)
    colour, inner = SERIES[condition.question % len(SERIES)], SIZE[0] - 2 * MARGIN
    asked, answer, small = (ImageFont.load_default(size) for size in (15, 22, 13))
    draw.text((MARGIN, 12), _cut(draw, study.questions[condition.question], asked, inner), SOFT, asked)
    draw.text((MARGIN, 32), _cut(draw, condition.answer or "(an empty answer)", answer, inner), colour, answer)
    support = views.best[condition.view][frame]
    half = (inner - MARGIN) // 2
    top = 68
    for place, (shown, said) in enumerate(
        (
            (study.pictures.images[frame], f"the video, {clock(study.times[frame])}"),
            (views.blends[condition.view][support], "what the model read of this moment"),
        )
    ):
        left = MARGIN + place * (half + MARGIN)
        fitted = _fitted(shown, study.pictures.size, (half, PICTURES_TALL - 18))
        image.paste(fitted, (left, top))
        draw.text((left, top + PICTURES_TALL - 14), said, SOFT, small)
    bottom = top + PICTURES_TALL + 8
    _timeline(draw, study, views, number, frame, bottom)
    model = f"{study.tokens[0]:,} to {condition.tokens[1]:,} tokens. {sentence}. Answered by {study.model.name}."
    draw.text((MARGIN, bottom + TIMELINE_TALL + 22), _cut(draw, model, small, inner), SOFT, small)
    return image


def _timeline(
    draw: ImageDraw.ImageDraw, study: Study, views: AnimationViews, number: int, frame: int, top: int
) -> None:
    """Draw the tokens spent on each moment as the thickness of a line, the shown question in front."""
    length = max(study.video.duration, study.times[-1], 1e-3)
    left, width, middle = MARGIN, SIZE[0] - 2 * MARGIN, top + TIMELINE_TALL // 2
    shown = study.conditions[number]
    mains = {each.question: each for each in reversed(study.conditions)}
    spent = {q: [s * each.tokens[1] for s in views.spent[each.view]] for q, each in mains.items()}
    most = max(max(row) for row in spent.values()) or 1.0
    xs = [left + time / length * width for time in study.times]
    for question in sorted(spent, key=lambda q: q == shown.question):
        tall = [max(1.0, value / most * (TIMELINE_TALL / 2)) for value in spent[question]]
        outline = [(x, middle - t) for x, t in zip(xs, tall, strict=True)]
        outline += [(x, middle + t) for x, t in zip(reversed(xs), reversed(tall), strict=True)]
        colour = SERIES[question % len(SERIES)]
        if len(xs) > 1:
            draw.polygon(outline, fill=colour if question == shown.question else _paler(colour))
    x = xs[frame]
    draw.line((x, top - 2, x, top + TIMELINE_TALL + 2), fill=INK, width=2)
    small = ImageFont.load_default(12)
    for share in (0.0, 0.5, 1.0):
        text = clock(share * length)
        draw.text((left + share * (width - draw.textlength(text, small)), top + TIMELINE_TALL + 4), text, SOFT, small)


def _paler(colour: str) -> str:
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{(part + 3 * 250) // 4:02x}" for part in parts)


def _fitted(image: Image.Image, size: tuple[int, int], room: tuple[int, int]) -> Image.Image:
    """Return a picture as large as the room allows, with the video's aspect ratio."""
    scale = min(room[0] / size[0], room[1] / size[1])
    whole = (max(1, round(size[0] * scale)), max(1, round(size[1] * scale)))
    return image.resize(whole, Image.Resampling.LANCZOS)


def _cut(draw: ImageDraw.ImageDraw, text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, room: int) -> str:
    """Return text shortened to one line."""
    line = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))[:400]
    if draw.textlength(line, font) <= room:
        return line
    while line and draw.textlength(f"{line}…", font) > room:
        line = line[:-1]
    return f"{line.rstrip()}…"


def _write_gif(path: Path, frames: Sequence[Image.Image]) -> None:
    size = (GIF_WIDTH, round(GIF_WIDTH * SIZE[1] / SIZE[0]))
    frames = [frame.resize(size, Image.Resampling.LANCZOS) for frame in frames]
    palette = _sheet(frames).quantize(GIF_COLOURS, Image.Quantize.MEDIANCUT)
    few = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    step = round(1000 / GIF_PER_SECOND)
    few[0].save(path, format="GIF", save_all=True, append_images=few[1:], duration=step, loop=0, optimize=True)


def _sheet(frames: Sequence[Image.Image]) -> Image.Image:
    """Return some frames below each other, for one palette of all."""
    some = [np.asarray(frame.resize((SIZE[0] // 4, SIZE[1] // 4))) for frame in frames[:: max(1, len(frames) // 12)]]
    return Image.fromarray(np.concatenate(some))


def _write_mp4(path: Path, frames: Sequence[Image.Image]) -> None:
    try:
        import av
    except ImportError as error:
        raise ValueError("an MP4 needs PyAV; install it with pip install 'aviot[video]', or write a .gif") from error
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=Fraction(STEPS_PER_SECOND), options={"crf": "24"})
        stream.width, stream.height = even_size(SIZE, max(SIZE))
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_image(frame)))
        container.mux(stream.encode(None))
