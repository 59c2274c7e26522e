"""Access control of servers: by bind address, by a request's Host and Origin, and by a token."""

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
    "it, and traffic is not encrypted."
)
LOCALHOST = "localhost"
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+(?:%25[\w.-]+)?\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_UNUSED = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}  # addresses reserved for documentation


class AccessError(ValueError):
    """Raised for a request that must not be answered."""


@dataclass(frozen=True)
class Bound:
    """An address to listen at: its family and the socket address."""

    family: socket.AddressFamily
    address: tuple[str, int] | tuple[str, int, int, int]


def resolve(host: str, port: int) -> Bound:
    """Return the address to bind for a host; raise ValueError for an invalid one, OSError for an unknown name."""
    name = host.removeprefix("[").removesuffix("]")
    if not name.strip():
        raise ValueError("the host is empty; expected an address such as 127.0.0.1, or 0.0.0.0 for all interfaces")
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
    except UnicodeError:
        raise ValueError(f"{host!r} is neither a host name nor an address; try 127.0.0.1") from None
    return Bound(family, address)  # type: ignore[arg-type]


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address, or the name localhost."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == LOCALHOST
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


@dataclass(frozen=True)
class Access:
    """The conditions under which requests to a bound address are answered.

    On a loopback address, Host must be a loopback name with the right port: a page that reaches the server under its
    own name (DNS rebinding) is refused. On other addresses, Host must be an address or a name of this machine, and the
    request must have the token. `names` are further names, with or without a port, for tunnels and proxies.
    """

    address: str
    port: int
    names: frozenset[str] = frozenset()
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, address: str, port: int, names: Iterable[str] = ()) -> "Access":
        """Return the conditions for an address; raise ValueError for a malformed name."""
        for name in names:
            if _HOST.fullmatch(name) is None:
                raise ValueError(f"{name!r} is not a host; expected a name such as video.example or video.example:8080")
        token = None if is_loopback(address) else secrets.token_urlsafe(32)
        return cls(address, port, frozenset(map(str.lower, names)), token)

    @property
    def url(self) -> str:
        """The address to open, with the token if one is needed."""
        address = self.address
        if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
            address = _own_address(*((socket.AF_INET6,) if ":" in address else ()), socket.AF_INET)
        host = f"[{quote(address, safe=':')}]" if ":" in address else address
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    @property
    def cookie(self) -> str:
        """The name of the token's cookie; it has the port because browsers share cookies among the ports of a host."""
        return f"aviot-{self.port}"

    @property
    def set_cookie(self) -> str:
        """The Set-Cookie header that gives the token to a browser."""
        return f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    def check(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Raise AccessError unless a request's Host and Origin headers are allowed."""
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None or not self._answers_to(found["name"].lower(), found["port"]):
            raise AccessError("this server answers only to the address it is served at")
        for origin in origins:
            if not _is_of(origin, hosts[0]):
                raise AccessError("only the pages of this server may send requests from a browser")

    def admits(self, token: str) -> bool:
        """Return whether this is the token; the comparison takes constant time."""
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
            return True  # DNS rebinding needs a name; the port may be mapped on the way
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
    """Return an address of this machine in its network; nothing is sent to find it."""
    for family in families:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_UNUSED[family], 9))
            return str(probe.getsockname()[0])
    return "::1" if socket.AF_INET6 in families else "127.0.0.1"
