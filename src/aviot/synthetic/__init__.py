"""A procedural video world with a question grammar: reproducible, balanced, drawn in batches. It knows no models."""

from aviot.synthetic.config import WorldConfig
from aviot.synthetic.description import descriptions, sights
from aviot.synthetic.families import FAMILIES
from aviot.synthetic.grammar import vocabulary
from aviot.synthetic.mp4 import is_drawn, save
from aviot.synthetic.question import Question
from aviot.synthetic.render import Clips, Plan, draw, plan, render
from aviot.synthetic.scene import Actor, Evidence, Plot, Scene
from aviot.synthetic.split import SPLITS, Split
from aviot.synthetic.tracks import Tracks, own_looks, tracks
from aviot.synthetic.world import Batch, World

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
    "is_drawn",
    "own_looks",
    "plan",
    "render",
    "save",
    "sights",
    "tracks",
    "vocabulary",
]
