"""Addresses of engines, checked before anything heavy is imported."""

from urllib.parse import urlsplit


def check_address(address: str) -> str:
    """Return a server's base address without a path; raise ValueError for anything but http and https."""
    parts = urlsplit(address)
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or parts.path.rstrip("/") not in ("", "/v1"):
        raise ValueError(f"an engine's address must look like http://host:8000, got {address!r:.100}")
    if parts.username or parts.password:
        raise ValueError("an engine's address must not have a password; give the server's API key instead")
    return f"{parts.scheme}://{parts.netloc}"
