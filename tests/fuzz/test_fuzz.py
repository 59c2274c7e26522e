"""The fuzzers: that the runner sees every kind of failure, that cases repeat, and a short run of every target."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from fuzz import videos
from fuzz.checkpoints import CHANGES
from fuzz.containers import many_pixels
from fuzz.mutate import change_folder
from fuzz.planted import BUGS, PREFIX

ROOT = Path(__file__).parents[2]
SEED = 20
SHORT, ROUNDS = 2, 12

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cases are watched through /proc")


def fuzz(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tests/fuzz", *words]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def planted():
    """A run over planted bugs, each once."""
    return fuzz(*(f"{PREFIX}{bug}" for bug in BUGS), "--seed", "1", "--rounds", "1", "--jobs", "2")


def test_every_planted_bug_is_seen_as_what_it_is(planted):
    seen = {bug: kind for kind, bug in re.findall(r"^FAILED \S+ case 0, (\w+): bug: (\S+)$", planted.stdout, re.M)}
    assert seen == {bug: kind for bug, (_, kind) in BUGS.items() if kind not in ("accepted", "refused")}
    assert planted.returncode == 1, planted.stderr


def test_what_is_not_a_bug_is_not_reported(planted):
    counts = dict(re.findall(r"^planted-(\S+) +1 +(\d +\d +\d) ", planted.stdout, re.M))
    assert {bug: counts[bug].split() for bug in ("sound", "refuse")} == {
        "sound": ["1", "0", "0"],
        "refuse": ["0", "1", "0"],
    }


def test_a_failure_is_repeated_by_the_command_that_the_summary_prints(planted):
    (command,) = re.findall(r"^  repeat: python tests/fuzz (planted-raise .+)$", planted.stdout, re.M)
    again = fuzz(*command.split())
    assert again.returncode == 1
    assert "RuntimeError: not what the layer documents" in again.stdout


WRITE = """
import hashlib, sys, tempfile
from pathlib import Path
sys.path.insert(0, "tests")
from fuzz.target import generator
from fuzz.targets import load_target
for name in ("videos", "items", "requests", "judges"):
    target, digest = load_target(name), hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "sources")
        sources.mkdir()
        target.prepare(sources)
        for case in range(20):
            written = Path(folder, str(case))
            written.mkdir()
            digest.update(target.write(generator(name, 5, case), sources, written).encode(errors="replace"))
            for path in sorted(written.rglob("*")):
                digest.update(path.read_bytes() if path.is_file() else b"")
    print(name, digest.hexdigest())
"""


def test_cases_depend_on_target_seed_and_number_alone():
    first, second = (
        subprocess.run(
            [sys.executable, "-c", WRITE],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second
    assert len(set(first.split())) == 8


@pytest.mark.parametrize("rounds", [SHORT, pytest.param(ROUNDS, marks=pytest.mark.slow)])
def test_a_short_run_of_every_target(rounds):
    done = fuzz("--seed", str(SEED), "--rounds", str(rounds), "--jobs", "1")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"seed {SEED}: 0 failed" in done.stdout


def test_a_change_of_a_file_that_is_too_short_for_it_is_not_made(tmp_path, monkeypatch):
    """Which a change before it may leave; the run goes on."""
    (tmp_path / "model.safetensors").write_bytes(b"\0\0\0")
    cut = {"body": CHANGES["body"], "header": CHANGES["header"]}
    assert "not possible" in change_folder(Random(0), cut, tmp_path)[1]
    monkeypatch.setattr(videos, "_write_images", lambda *_: "")
    for clip in videos.CLIPS:
        (tmp_path / clip).write_bytes(b"GIF89")
    for case in range(100):
        videos.write(Random(case), tmp_path, tmp_path)


def test_a_gif_that_takes_long_is_given_up_in_process(tmp_path, monkeypatch):
    (tmp_path / "video.gif").write_bytes(many_pixels(1000, 8192, 300))
    videos._describe(tmp_path, "video.gif", {"scaled": True})
    monkeypatch.setattr(videos, "SECONDS", 0.5)
    begin = time.process_time()
    with pytest.raises(videos.errors(), match=r"not read within 0\.5 s"):
        videos.check(tmp_path)
    assert time.process_time() - begin < 5
