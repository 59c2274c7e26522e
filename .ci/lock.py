"""Write requirements-build.txt and requirements-ci.txt: the pins of constraints.txt with their files' hashes.

`make lock` after a change of constraints.txt. Asks the package index that pip uses by default (its simple pages, one
per package) for the files of each pinned version, and writes the hashes of those that CI and developers' machines can
install: source archives, and wheels for CPython 3.11 to 3.13 on Linux and macOS. torch is left out: its build differs
by machine (CPU or CUDA), so no list of hashes fits all of them.
"""

import re
import sys
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from pip._internal.models.index import PyPI  # where pip looks by default

ROOT = Path(__file__).parents[1]
BUILD = ("editables", "hatchling", "packaging", "pathspec", "pluggy", "setuptools", "tomlkit", "trove-classifiers")
APART = ("torch",)
LINUX = ("deepspeed", "triton")  # as pyproject.toml asks for them
WHEEL = re.compile(
    r"-(py3|py2\.py3|py2\.py3\.[\w.]+|cp3[\d.cp]*)-(none|abi3[\w.]*|cp31[123])-"
    r"(any|manylinux[\w.]*_(x86_64|aarch64)|macosx_\d+_\d+_(arm64|x86_64|universal2))(\.\w+)*\.whl$"
)
HEAD = """# Written by `make lock` from constraints.txt; do not edit. {what}
# Installed with `pip install --require-hashes --no-deps`, so that a file that was exchanged on the index is refused.
"""


class Page(HTMLParser):
    """Collects the files of one simple page: name and hash."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link's last part and the hash after it."""
        address = dict(attrs).get("href") or ""
        path, _, sha256 = address.partition("#sha256=")
        if tag == "a" and sha256:
            self.files[unquote(path.rpartition("/")[2])] = sha256


def pins() -> dict[str, str]:
    """Return every pinned package and its version."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def hashes(name: str, version: str) -> Iterator[str]:
    """Yield the hashes of a version's files that can be installed here or in CI."""
    page, plain = Page(), re.sub(r"[-_.]+", "-", name).lower()
    with urllib.request.urlopen(f"{PyPI.simple_url}/{plain}/", timeout=120) as reply:
        page.feed(reply.read().decode())
    stem = re.compile(
        rf"{re.sub(r'[-_.]+', '[-_.]+', plain)}-{re.escape(version)}(?=\.tar\.gz$|\.zip$|-)", re.IGNORECASE
    )
    for file, sha256 in page.files.items():
        if stem.match(file) and (not file.endswith(".whl") or WHEEL.search(file)):
            yield sha256


def main() -> None:
    """Write both files."""
    locked: dict[str, str] = {}
    for name, version in pins().items():
        if name in APART:
            continue
        found = sorted(set(hashes(name, version)))
        if not found:
            sys.exit(f"{name}=={version}: the index lists no file of it; correct constraints.txt")
        where = " ; sys_platform == 'linux'" if name in LINUX else ""
        lines = [f"{name}=={version}{where}", *(f"    --hash=sha256:{each}" for each in found)]
        locked[name] = " \\\n".join(lines) + "\n"
        print(f"{name}=={version}: {len(found)} files")
    for file, what, chosen in (
        ("requirements-build.txt", "What builds this package and source archives.", set(BUILD)),
        ("requirements-ci.txt", "What CI installs, but torch.", set(locked) - set(BUILD)),
    ):
        text = "".join(entry for name, entry in locked.items() if name in chosen)
        (ROOT / file).write_text(HEAD.format(what=what) + text)


if __name__ == "__main__":
    main()
