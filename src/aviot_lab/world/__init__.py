"""A procedural video world with a question grammar: reproducible, balanced, drawn in batches. It knows no models."""

from aviot_lab.world.config import WorldConfig
from aviot_lab.world.description import descriptions, sights
from aviot_lab.world.families import FAMILIES
from aviot_lab.world.grammar import vocabulary
from aviot_lab.world.mp4 import save
from aviot_lab.world.question import Question
from aviot_lab.world.render import Clips, Plan, draw, plan, render
from aviot_lab.world.scene import Actor, Evidence, Plot, Scene
from aviot_lab.world.split import SPLITS, Split
from aviot_lab.world.tracks import Tracks, own_looks, tracks
from aviot_lab.world.world import Batch, World

__all__ = [
    "FAMILIES",
    "SPLITS",
    "Actor",
    "Batch",
    "Clips",
    "Evidence",
    "Plan",
    "Plot",
    "Question",
    "Scene",
    "Split",
    "Tracks",
    "World",
    "WorldConfig",
    "descriptions",
    "draw",
    "own_looks",
    "plan",
    "render",
    "save",
    "sights",
    "tracks",
    "vocabulary",
]
