"""Checks of the questions' balance: classifiers that try to answer without the video, or from one frame.

A blind classifier has the question's words, and the options if there are any. A single-frame classifier has the words
and the ground truth of one frame, an upper bound for any encoder: every subject's position, size and look, the number
of objects in each cell, and the time. Both are trained on some questions and tested on others.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from aviot.scenes.scene import COLOUR_NAMES, SHAPES, TEXTURES, Scene, tracks
from aviot_lab.world.grammar import LETTERS
from aviot_lab.world.layout import CELLS
from aviot_lab.world.questions import Question

Features = NDArray[np.float32]  # [F] of one question, [N,F] of several

SUBJECTS = 5  # largest number per question
RARE = 10  # least occurrences of a word or pair
HIDDEN = 64
STEPS = 150
WEIGHT_DECAY = 0.05


@dataclass(frozen=True)
class Score:
    """Right answers to held-out questions, and the expected accuracy of guessing."""

    right: int
    asked: int
    chance: float

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.right / self.asked

    @property
    def excess(self) -> float:
        """Difference from chance, in standard deviations of guessing."""
        return (self.accuracy - self.chance) / max((self.chance * (1 - self.chance) / self.asked) ** 0.5, 1e-9)


def word_features(texts: Sequence[str]) -> Features:
    """Return indicators of words and of pairs of neighbouring words, without rare ones."""
    found = [set(words) | set(pairwise(words)) for words in map(str.split, texts)]
    often = Counter(term for terms in found for term in terms)
    terms = sorted((term for term, count in often.items() if count >= RARE), key=str)
    return np.array([[term in words for term in terms] for words in found], np.float32)


def frame_features(scene: Scene, question: Question, frame: int) -> Features:
    """Return the ground truth of a frame: its time, objects per cell, and the question's subjects."""
    truth = tracks(scene, [frame])
    x, y, size, visible = (values[:, 0] for values in (truth.x, truth.y, truth.size, truth.visible))
    rows, columns = (np.clip((place * CELLS).astype(int), 0, CELLS - 1) for place in (y, x))
    cells = np.bincount(rows * CELLS + columns, visible, CELLS * CELLS)
    looks = np.zeros((SUBJECTS, 4 + len(COLOUR_NAMES) + len(TEXTURES) + len(SHAPES)))
    for row, i in zip(looks, question.subjects, strict=False):
        if visible[i]:
            row[:4] = 1, x[i], y[i], 5 * size[i]
            row[4 + truth.colour[i, 0]] = 1
            row[4 + len(COLOUR_NAMES) + truth.texture[i, 0]] = 1
            row[4 + len(COLOUR_NAMES) + len(TEXTURES) + truth.shape[i, 0]] = 1
    return np.concatenate([[frame / scene.frames], cells, looks.ravel()]).astype(np.float32)


def held_out_score(features: Features, questions: Sequence[Question], letters: bool = False) -> Score:
    """Train a network with one hidden layer on half of the questions, and return its score on the others.

    It chooses among the question's candidates, or the letter of an option.
    """
    choices = [q.options if letters else q.candidates for q in questions]
    answers = sorted({word for words in choices for word in words})
    slots = list(LETTERS) if letters else answers
    target = torch.tensor([slots.index(q.letter if letters else q.answer) for q in questions])
    allowed = torch.zeros(len(questions), len(slots), dtype=torch.bool)
    for row, words in enumerate(choices):
        allowed[row, list(range(len(words))) if letters else [slots.index(word) for word in words]] = True
    half = len(questions) // 2
    x = torch.from_numpy(features)
    x = (x - x[:half].mean(0)) / (x[:half].std(0) + 1e-3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, len(slots)))
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=WEIGHT_DECAY)
    for _ in range(STEPS):
        scores = network(x[:half]).masked_fill(~allowed[:half], -1e9)
        optimizer.zero_grad()
        F.cross_entropy(scores, target[:half]).backward()
        optimizer.step()
    with torch.no_grad():
        predicted = network(x[half:]).masked_fill(~allowed[half:], -1e9).argmax(1)
    chance = (1 / allowed[half:].sum(1).double()).mean()
    return Score(int((predicted == target[half:]).sum()), len(questions) - half, float(chance))
