"""The world's words: what there is to see, and what can be said of it."""

SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross", "ring", "heart", "moon", "hourglass")

COLOURS = {
    "red": (222, 38, 38),
    "orange": (255, 136, 16),
    "yellow": (250, 226, 40),
    "green": (34, 164, 54),
    "cyan": (40, 212, 220),
    "blue": (40, 74, 226),
    "purple": (142, 46, 196),
    "pink": (255, 128, 190),
    "white": (246, 246, 246),
    "black": (18, 18, 18),
}
"""Each colour's sRGB, far from the muted backgrounds and from each other."""

COLOUR_NAMES = tuple(COLOURS)

TEXTURES = ("plain", "striped", "dotted", "checkered", "framed")

CHANGES = ("colour", "size", "place")
"""What an object can change in a moment."""

PHRASES = {  # change: the same in the infinitive and in the past
    "colour": ("change its colour", "changed its colour"),
    "size": ("change its size", "changed its size"),
    "place": ("jump to another place", "jumped to another place"),
}

NOTHING = "nothing"
YES_NO = ("yes", "no")
NUMBERS = ("one", "two", "three", "four")
DIRECTIONS = ("left", "right", "up", "down")
TURNS = ("clockwise", "anticlockwise")
ORDERS = ("before", "after")
QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")
QUADRANTS = ("top left", "top right", "bottom left", "bottom right")
