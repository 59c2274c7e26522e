"""Provenance of visual tokens as JSON: which frames, or which patches, each was made from."""

from http import HTTPStatus
from typing import Any

from aviot.methods.base import Compressed
from aviot.web.refusal import Refused

SMALLEST_SHARE = 0.001  # of a frame that is listed
MOST_ENTRIES = 2_000_000  # of the sources of all tokens
DIGITS = 5


def provenance_of(made: Compressed, kind: str) -> dict[str, Any]:
    """Return the sources of a method's tokens: by moment and frame, or of every token by patch."""
    return _by_frame(made) if kind == "frames" else _by_token(made)


def _by_frame(made: Compressed) -> dict[str, Any]:
    """Return, for each moment that has tokens, its time, their number, and the frames that they were made from."""
    moments, output = made.moments
    shares = made.mixture.frame_shares().float().cpu()
    counts = output.cpu().bincount(minlength=len(moments))
    means = shares.new_zeros(len(moments), shares.shape[1]).index_add_(0, output.cpu(), shares) / counts[:, None]
    listed = []
    for time, count, row in zip(moments, counts.tolist(), means, strict=True):
        frames = (row >= SMALLEST_SHARE).nonzero()[:, 0].tolist()
        sources = [[frame, round(float(row[frame]), DIGITS)] for frame in frames]
        listed.append({"seconds": float(time), "tokens": count, "frames": sources})
    return {"frame_seconds": list(made.frame_times), "moments": listed}


def _by_token(made: Compressed) -> dict[str, Any]:
    """Return every token's position, and the patches that it was made from with their weights."""
    mixture = made.mixture
    if mixture.indices.numel() > MOST_ENTRIES:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"all sources are {mixture.indices.numel():,} numbers, and at most {MOST_ENTRIES:,} are sent; "
            "ask for provenance by frames",
            code="provenance_too_large",
            field="aviot.provenance",
        )
    return {
        "frame_seconds": list(made.frame_times),
        "patches_per_frame": mixture.patches,
        "positions": [[round(value, DIGITS) for value in row] for row in made.positions.float().cpu().tolist()],
        "sources": mixture.indices.cpu().tolist(),
        "weights": [[round(value, DIGITS) for value in row] for row in mixture.weights.float().cpu().tolist()],
    }
