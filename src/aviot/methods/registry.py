"""The registry of methods: those of this package, and those that other packages add by an entry point.

A package adds a method by an entry point in the group `aviot.methods`, whose name is the method's and whose value is a
`Method` subclass. Names are known without importing any method, so that wrong ones are refused before torch is loaded.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aviot.methods.base import Method

GROUP = "aviot.methods"
DEFAULT = "aviot"
"""The method of requests that do not name one."""

UNCOMPRESSED = "none"
"""The method that changes nothing."""

_OWN = {
    "aviot": "aviot.methods.aviot.method:AviotMethod",
    "aviot-free": "aviot.methods.free.method:AviotFree",
    "uniform": "aviot.methods.baselines:Uniform",
    "segment-mean": "aviot.methods.baselines:IntervalMean",
    "random": "aviot.methods.baselines:Random",
    "random-tokens": "aviot.methods.baselines:RandomTokens",
    "low-resolution": "aviot.methods.baselines:LowResolution",
    "vidcom2": "aviot.methods.peers.vidcom2:VidCom2",
    "vidcom2-exact": "aviot.methods.peers.vidcom2_exact:VidCom2Exact",
    "evs": "aviot.methods.peers.evs:EVS",
    "dycoke": "aviot.methods.peers.dycoke:DyCoke",
    "tome": "aviot.methods.peers.tome:ToMe",
    "fastvid": "aviot.methods.peers.fastvid:FastVID",
    "holitom": "aviot.methods.peers.holitom:HoliTom",
    "holitom-full": "aviot.methods.peers.inside.pairs:holitom",
    "visionzip": "aviot.methods.peers.visionzip:VisionZip",
    "flashvid": "aviot.methods.peers.flashvid:FlashVID",
    "flashvid-full": "aviot.methods.peers.inside.pairs:flashvid",
    "aot": "aviot.methods.peers.aot:AOT",
    "ottvid": "aviot.methods.peers.ottvid:OttVid",
    "prunevid": "aviot.methods.peers.prunevid:PruneVid",
    "semvid": "aviot.methods.peers.semvid:SemVid",
    "fastv": "aviot.methods.peers.fastv:FastV",
    "framefusion": "aviot.methods.peers.framefusion:FrameFusion",
    UNCOMPRESSED: "aviot.methods.baselines:Uncompressed",
}
_registered: "dict[str, Callable[[], Method]]" = {}


def names() -> tuple[str, ...]:
    """Return the names of all methods: first this package's, then others in alphabetical order."""
    others = {*_registered, *_installed()}
    return (*_OWN, *sorted(others - set(_OWN)))


def compresses(name: str) -> bool:
    """Return whether a method reduces the number of tokens; this package's methods are not imported for that."""
    return name != UNCOMPRESSED if name in _OWN else get(name).compresses


def check_name(name: str) -> None:
    """Raise ValueError if no method has this name."""
    if name not in names():
        raise ValueError(f"method must be one of {', '.join(map(repr, names()))}, got {name!r}")


def get(name: "str | Method") -> "Method":
    """Return the method with a name; a method is returned unchanged."""
    from aviot.methods.base import Method

    if isinstance(name, Method):
        return name
    check_name(name)
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        found = getattr(import_module(module), attribute)()
    elif name in _registered:
        found = _registered[name]()
    else:
        found = _load(name)
    if not isinstance(found, Method):
        raise ValueError(f"method {name!r} must be a subclass of aviot.methods.Method, got {type(found).__name__}")
    if getattr(found, "name", None) != name:
        own = getattr(found, "name", None)
        raise ValueError(f"method {name!r} is registered for a class whose name is {own!r}; give both the same name")
    return found


def register(make: "Callable[[], Method]", name: str) -> None:
    """Add a method for this process: a `Method` subclass, or a function that returns a method.

    Other packages use an entry point in the group `aviot.methods` instead, which needs no call.
    """
    if name in _OWN:
        raise ValueError(f"{name!r} is a method of this package; choose another name")
    if not callable(make):
        raise ValueError(f"register a Method subclass, or a function that returns a method, got {make!r}")
    _registered[name] = make


@cache
def _installed() -> dict[str, str]:
    """Return the names of other packages' methods, each with its package's name; nothing is imported."""
    return {
        point.name: "" if point.dist is None else point.dist.name
        for point in entry_points(group=GROUP)
        if point.name not in _OWN
    }


def _load(name: str) -> "Method":
    (point, *_) = entry_points(group=GROUP, name=name)
    try:
        return point.load()()
    except Exception as error:
        raise ValueError(
            f"method {name!r} of the package {_installed()[name] or 'that names it'} cannot be loaded "
            f"({type(error).__name__}: {error}); correct, update or uninstall that package"
        ) from error
