"""How boldly a map over the patches is drawn: the closer it is to an even one, the fainter.

A map is outlined around the fifth of its positions that holds most. Of an even map that fifth holds a fifth, and what
is outlined is noise; so outlines and colours fade as the share in it falls towards a fifth.
"""

from aviot.methods.aviot.analysis import TOP_SHARE

BOLD = 2 * TOP_SHARE  # share in the outlined fifth from which on a map is drawn at full opacity
FAINTEST = 0.15  # opacity of an even map


def opacity(share: float) -> float:
    """Return the opacity of a map whose outlined fifth holds `share` of its mass."""
    beyond = (share - TOP_SHARE) / (BOLD - TOP_SHARE)
    return FAINTEST + (1 - FAINTEST) * min(1.0, max(0.0, beyond))
