"""One row a question and setting: everything that can be known again, and nothing that changes from run to run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from aviot.evaluation.config import Setting
from aviot.evaluation.item import Item
from aviot.evaluation.plan import Key
from aviot.evaluation.scoring import answer_text, score_reply
from aviot.session import Answer
from aviot.utils.journal import Row
from aviot.video import Video

ANSWERED, FAILED = "answered", "failed"


def answered_row(number: int, item: Item, setting: Setting, answer: Answer, video: Video) -> Row:
    """Return the row of an answer, scored, with the visual tokens that the decoder would and did read."""
    score = score_reply(item, answer.text)
    return _common(number, item, setting, video) | {
        "status": ANSWERED,
        "frames": answer.frames,
        "supports": answer.supports,
        "tokens_before": answer.tokens_before,
        "tokens_after": answer.tokens_after,
        "prediction": answer.text,
        "read_as": score.read_as,
        "how": score.how,
        "correct": score.correct,
    }


def failed_row(number: int, item: Item, setting: Setting, reason: str, video: Video | None = None) -> Row:
    """Return the row of a question that could not be asked; it counts as wrong."""
    return _common(number, item, setting, video) | {
        "status": FAILED,
        "reason": reason,
        "correct": False if item.has_answer else None,
    }


def key_of(row: Mapping[str, Any]) -> Key:
    """Which row it is."""
    return row["item"], row["setting"]


def settled(rows: Iterable[Row], is_open: Callable[[Row], bool]) -> dict[Key, Row]:
    """What holds for each key: the first row that is not open, or else the last there is."""
    found: dict[Key, Row] = {}
    for row in rows:
        key = key_of(row)
        if key not in found or is_open(found[key]):
            found[key] = row
    return found


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether a row's question could not be asked."""
    return bool(row["status"] == FAILED)


def _common(number: int, item: Item, setting: Setting, video: Video | None) -> Row:
    """Return what every row holds; `damage` only where the video has some."""
    damage = None if video is None else video.damage
    return {
        "item": number,
        "id": item.id,
        "video": item.video,
        "setting": setting.name,
        "compressor": setting.compressor,
        "ratio": setting.ratio,
        **({"part": item.part} if item.part else {}),
        "kind": "choice" if item.is_choice else "open",
        "answer": answer_text(item),
        **({"unscored": item.problem} if item.problem else {}),
        **({"damage": asdict(damage)} if damage is not None else {}),
    }
