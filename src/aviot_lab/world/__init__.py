"""A procedural video world with a question grammar: reproducible, balanced, drawn in batches. It knows no models."""

from aviot.scenes import (
    Actor,
    Clips,
    Evidence,
    Plot,
    RenderPlan,
    Scene,
    Split,
    Tracks,
    draw,
    plan,
    render,
    save,
    tracks,
)
from aviot.utils.moved import renamed
from aviot_lab.world.description import descriptions, frame_descriptions
from aviot_lab.world.grammar import vocabulary
from aviot_lab.world.questions import FAMILIES, Question
from aviot_lab.world.words import SPLITS, own_looks
from aviot_lab.world.world import World, WorldBatch, WorldConfig, demo_scene

__getattr__ = renamed(__name__)

__all__ = [
    "FAMILIES",
    "SPLITS",
    "Actor",
    "Clips",
    "Evidence",
    "Plot",
    "Question",
    "RenderPlan",
    "Scene",
    "Split",
    "Tracks",
    "World",
    "WorldBatch",
    "WorldConfig",
    "demo_scene",
    "descriptions",
    "draw",
    "frame_descriptions",
    "own_looks",
    "plan",
    "render",
    "save",
    "tracks",
    "vocabulary",
]
