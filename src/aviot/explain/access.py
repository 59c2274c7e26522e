"""Who may ask the app: by the address it is bound to, the Host and Origin of a request, and a token."""

import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

EXPOSED = (
    "Anything but localhost exposes the app to your network: whoever has the address below, token included, can use "
    "it, and what is sent is not encrypted."
)
LOCALHOST = "localhost"
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+(?:%25[\w.-]+)?\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_SOMEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # of documentation: nobody's


class AccessError(ValueError):
    """A request that may not be answered."""


@dataclass(frozen=True)
class Bound:
    """Where to listen: a family of addresses, and the socket's address in it."""

    family: socket.AddressFamily
    address: tuple[str, int] | tuple[str, int, int, int]


def resolve(host: str, port: int) -> Bound:
    """Return where a host name or address is to be bound; ValueError for what is none, OSError for an unknown name."""
    name = host.removeprefix("[").removesuffix("]")
    if not name.strip():
        raise ValueError("the host is empty; name an address to serve at, such as 127.0.0.1, or 0.0.0.0 for all")
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
    except UnicodeError:
        raise ValueError(f"{host!r} is no host name and no address; try 127.0.0.1") from None
    return Bound(family, address)  # type: ignore[arg-type]


def is_loopback(host: str) -> bool:
    """Return whether an address, or the name localhost, is of this machine alone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == LOCALHOST
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


@dataclass(frozen=True)
class Access:
    """What a request must bring to be answered at a bound address.

    On a loopback address its Host must be of this machine, with the right port: a page that reached the server under a
    name of its own (DNS rebinding) is refused. Elsewhere it must be an address or a name of this machine, and the
    request must bring the token. `names` are further names, with or without a port, for tunnels and proxies.
    """

    address: str
    port: int
    names: frozenset[str] = frozenset()
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, address: str, port: int, names: Iterable[str] = ()) -> "Access":
        """Return the rules for an address; ValueError for a name that no Host could be."""
        for name in names:
            if _HOST.fullmatch(name) is None:
                raise ValueError(f"{name!r} is no host; give a name such as video.example or video.example:8080")
        token = None if is_loopback(address) else secrets.token_urlsafe(32)
        return cls(address, port, frozenset(map(str.lower, names)), token)

    @property
    def url(self) -> str:
        """The address to open, with the token where one is needed."""
        address = self.address
        if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
            address = _own_address(*((socket.AF_INET6,) if ":" in address else ()), socket.AF_INET)
        host = f"[{quote(address, safe=':')}]" if ":" in address else address
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    @property
    def cookie(self) -> str:
        """The cookie that keeps the token; browsers share cookies among the ports of a host."""
        return f"aviot-{self.port}"

    @property
    def set_cookie(self) -> str:
        """The header's value that hands the token to a browser."""
        return f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    def check(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Refuse a request by its Host and Origin headers."""
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None or not self._answers_to(found["name"].lower(), found["port"]):
            raise AccessError("this app answers only to the address it is served at")
        for origin in origins:
            if not _is_of(origin, hosts[0]):
                raise AccessError("only the app's own page may ask")

    def admits(self, token: str) -> bool:
        """Return whether this is the token; comparing takes as long whatever it is."""
        return self.token is None or hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    def admits_cookies(self, headers: Iterable[str]) -> bool:
        """Return whether the token is among a request's cookies."""
        pairs = (pair.strip().partition("=") for header in headers for pair in header.split(";"))
        return self.token is None or any(name == self.cookie and self.admits(value) for name, _, value in pairs)

    def _answers_to(self, name: str, port: str | None) -> bool:
        if name in self.names or f"{name}:{port}" in self.names:
            return True
        bare = name.removeprefix("[").removesuffix("]")
        if self.token is not None and _is_address(bare):
            return True  # rebinding takes a name; a port may be mapped to another on the way
        own = {LOCALHOST, socket.gethostname().lower()} if self.token is not None else set()
        return int(port or 80) == self.port and (is_loopback(bare) or bare in own)


def _is_of(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _own_address(*families: socket.AddressFamily) -> str:
    """Return the address that others reach this machine at; nothing is sent to find it."""
    for family in families:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_SOMEWHERE[family], 9))
            return str(probe.getsockname()[0])
    return "::1" if socket.AF_INET6 in families else "127.0.0.1"
