"""Published methods with both of their stages: one on projected tokens, one inside the decoder.

Each needs its first stage in the registry, under the name without the ending.
"""

from aviot.methods.base import TokenMethod
from aviot.methods.inside import InsideMethod, TwoStage
from aviot.methods.peers.inside.attention import LatePruning
from aviot.methods.peers.inside.decoding import Choosing
from aviot.methods.peers.inside.folding import Folding
from aviot.methods.peers.inside.question import QuestionPruning
from aviot.methods.registry import get

ENDING = "-full"


def _full(name: str, second: InsideMethod) -> TwoStage:
    first = get(name)
    assert isinstance(first, TokenMethod)  # one of this package's own methods
    return TwoStage(name + ENDING, first, second, f"{first.title or first.name} in full")


def holitom() -> TwoStage:
    """Return HoliTom with its inner merge, the rows named HoliTom in its paper's tables; those "w/o M" are `holitom`.

    The paper's ratio counts the tokens that enter, as the budget does; from layer 18 on half of them are left.
    """
    return _full("holitom", Folding())


def dycoke() -> TwoStage:
    """Return DyCoke with its choice of visible tokens while decoding."""
    return _full("dycoke", Choosing())


def flashvid() -> TwoStage:
    """Return FlashVID with its pruning in a late layer."""
    return _full("flashvid", LatePruning())


def prunevid() -> TwoStage:
    """Return PruneVid with its pruning for the question."""
    return _full("prunevid", QuestionPruning())
