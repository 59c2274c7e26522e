"""Videos of other machines, fetched without letting a request reach machines that only the server can reach."""

import asyncio
import hashlib
import ipaddress
import socket
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

import httpx2

from aviot.serve.media import Media
from aviot.web.body import Reservation
from aviot.web.refusal import Refused

REDIRECTS = 3
FETCH_SECONDS = 60.0
CONNECT_SECONDS = 10.0
HEADERS = {"Accept": "video/*, application/octet-stream;q=0.9", "Accept-Encoding": "identity", "User-Agent": "aviot"}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SCHEMES = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_remote(url: str) -> bool:
    """Return whether an address is another machine's."""
    return url[:8].lower().startswith(("http://", "https://"))


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public Internet, also through the address that may be inside it."""
    if isinstance(address, ipaddress.IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if inside is None and address in _NAT64:
            inside = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inside is not None:
            return is_public(inside)
        if address.is_site_local:  # private networks had these before fc00::/7
            return False
    return address.is_global and not address.is_multicast


class Fetcher:
    """Fetches videos over http and https, at most `most_bytes` each, from public addresses alone.

    A name is resolved once, its addresses are checked, and the connection goes to one of them: a second answer of the
    name server cannot lead elsewhere. Redirects are followed by the same rules; proxies of the environment are not
    used.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes

    async def fetch(self, url: str, held: Reservation) -> Media:
        """Return the video at an address, whose bytes `held` counts; raise Refused if it cannot be had."""
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                data = await self._followed(url, held)
        except TimeoutError:
            raise _refused(f"the video's address did not answer within {FETCH_SECONDS:.0f} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError, ValueError) as error:
            raise _refused(f"the video's address cannot be read ({type(error).__name__})") from None
        digest = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
        return Media(digest, "the video at the address", data=data)

    async def _followed(self, url: str, held: Reservation) -> bytes:
        for _ in range(REDIRECTS + 1):
            target, headers, extensions = await self._resolved(url)
            timeout = httpx2.Timeout(CONNECT_SECONDS)
            async with (
                httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout) as client,
                client.stream("GET", target, headers=headers, extensions=extensions) as reply,
            ):
                if reply.has_redirect_location:
                    url = urljoin(url, reply.headers["location"])
                    continue
                if reply.status_code != HTTPStatus.OK:
                    raise _refused(f"the video's address answered with status {reply.status_code}")
                if reply.headers.get("content-encoding", "identity").lower() != "identity":
                    raise _refused("the video's address sends compressed data, which is not read")
                return await self._read(reply, held)
        raise _refused(f"the video's address was redirected more than {REDIRECTS} times")

    async def _resolved(self, url: str) -> tuple[str, dict[str, str], dict[str, str]]:
        """Return an address that names the machine by number, and what the machine needs to know its own name."""
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not parts.hostname or parts.username is not None:
            raise _refused("a video's address must be http://HOST/… or https://HOST/…, without a user name")
        host, port = parts.hostname, parts.port or _SCHEMES[parts.scheme]
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
        if not addresses or not all(map(is_public, addresses)):
            raise _refused("the video's address does not belong to the public Internet; this server fetches no others")
        number = f"[{addresses[0]}]" if addresses[0].version == 6 else str(addresses[0])
        target = parts._replace(netloc=f"{number}:{port}", fragment="").geturl()
        return target, HEADERS | {"Host": parts.netloc}, {"sni_hostname": host}

    async def _read(self, reply: httpx2.Response, held: Reservation) -> bytes:
        body = bytearray()
        async for part in reply.aiter_raw():
            body += part
            if len(body) > self.most_bytes:
                raise _refused(f"the video has more than {self.most_bytes / 1e6:,.0f} MB, the most that is fetched")
            held.grow(len(body))
        if not body:
            raise _refused("the video's address has no data")
        return bytes(body)


def _refused(sentence: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, code="address_not_read", field="messages")
