"""Training-free AVIOT as its equations say, in float64 and loops: the reference of the batched program."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from aviot.methods.free.parameters import DEFAULTS, FreeParameters


def log_gains(
    x: Float[Tensor, "T S D"], question: Float[Tensor, "D"] | None, parameters: FreeParameters = DEFAULTS
) -> list[list[float]]:
    """Return log g_i of every token, frame by frame; -inf where a distance is zero and counts."""
    x = x.double()
    gains = []
    for frame in x:
        far = [float((token - frame.mean(0)).norm()) for token in frame]
        row = []
        for i, token in enumerate(frame):
            before = [j for j in range(len(frame)) if far[j] > far[i] or (far[j] == far[i] and j < i)]
            apart = min([far[i]] + [float((token - frame[j]).norm()) for j in before])
            row.append((1 - parameters.coverage) * _log(far[i]) + parameters.coverage * _log(apart))
        gains.append(row)
    if question is None:
        return gains
    masses = log_masses(x, question.double(), parameters)
    return [[gain + mass for gain, mass in zip(*rows, strict=True)] for rows in zip(gains, masses, strict=True)]


def log_masses(
    x: Float[Tensor, "T S D"], question: Float[Tensor, "D"], parameters: FreeParameters
) -> list[list[float]]:
    """Return log a_i of every token."""
    mean = x.mean((0, 1))
    cosines = [[float(torch.cosine_similarity(token - mean, question, dim=0)) for token in frame] for frame in x]
    every = [value for row in cosines for value in row]
    middle = sum(every) / len(every)
    deviation = math.sqrt(sum((value - middle) ** 2 for value in every) / len(every))
    scale = parameters.relevance / (deviation + parameters.evidence)
    return [[scale * (value - middle) for value in row] for row in cosines]


def kept(gains: list[list[float]], count: int) -> list[int]:
    """Return the flat indices of the tokens that are kept, in ascending order."""
    patches = len(gains[0])
    flat = [gain for row in gains for gain in row]
    first = [t * patches + row.index(max(row)) for t, row in enumerate(gains)] if count >= len(gains) else []
    others = sorted((i for i in range(len(flat)) if i not in first), key=lambda i: (-flat[i], i))
    return sorted(first + others[: count - len(first)])


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf
