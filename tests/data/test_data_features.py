"""The feature cache: correct, complete, shared by processes, and bounded in size."""

import os
import time
from pathlib import Path

import pytest
import torch
from forked import run_forked
from hypothesis import given
from hypothesis import strategies as st

from aviot.data import CachedVideo, FeatureCache, FeatureKeys, fingerprint
from aviot.data import feature_cache as module
from aviot.data.feature_cache import content_digest

KEYS = [f"{number:064x}" for number in range(40)]


def video(number: int = 0, frames: int = 3, dtype=torch.bfloat16) -> CachedVideo:
    features = torch.full((frames, 4, 8), float(number), dtype=dtype)
    return CachedVideo(features, tuple(0.5 * i for i in range(frames)), frames / 2)


@pytest.fixture
def cache(tmp_path):
    return FeatureCache(tmp_path / "features", 10**6)


@given(st.integers(1, 4), st.sampled_from([torch.bfloat16, torch.float16, torch.float32]), st.integers(0, 99))
def test_stored_features_are_returned(tmp_path_factory, frames, dtype, seed):
    cache = FeatureCache(tmp_path_factory.mktemp("cache"), 10**6)
    kept = CachedVideo(
        torch.randn(frames, 4, 8, generator=torch.Generator().manual_seed(seed)).to(dtype), (0.1,) * frames, 1 / 3
    )
    assert cache.get(KEYS[0]) is None
    assert cache.put(KEYS[0], kept)
    found = cache.get(KEYS[0])
    assert found.features.dtype == dtype
    assert torch.equal(found.features, kept.features)
    assert (found.times, found.duration) == (kept.times, kept.duration)
    assert cache.get(KEYS[1]) is None


def test_a_slice_of_a_larger_tensor_is_stored_alone(cache):
    whole = torch.randn(10, 4, 8)
    other = whole.split([4, 6])[1]
    cache.put(KEYS[0], CachedVideo(other, (0.0,) * 6, 3.0))
    assert torch.equal(cache.get(KEYS[0]).features, other)
    assert sum(path.stat().st_size for path in cache.folder.iterdir()) < other.nbytes + 1000


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "ABC", "a" * 15, "a" * 200, "a" * 32 + "\n"])
def test_keys_are_hashes(cache, key):
    with pytest.raises(ValueError, match="a key must be a hash"):
        cache.get(key)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:7],
        lambda data: data[:-1],
        lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        lambda data: b"\xff" * len(data),
        lambda data: data.replace(b"crc32", b"crc33"),
        lambda data: data.replace(b"features", b"faetures"),
    ],
)
def test_damaged_files_are_removed_and_written_again(cache, damage, caplog):
    cache.put(KEYS[0], video())
    (path,) = cache.folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(KEYS[0]) is None
    assert not path.exists()
    assert "damaged" in caplog.text
    cache.put(KEYS[0], video(5))
    assert cache.get(KEYS[0]).features[0, 0, 0] == 5


def test_the_least_recently_used_are_removed_first(tmp_path):
    cache = FeatureCache(tmp_path, 4000)
    one = video(frames=10)  # 640 bytes of features
    for i in range(3):
        cache.put(KEYS[i], one)
        os.utime(cache._path(KEYS[i]), (i, i))
    cache.get(KEYS[0])
    for i in range(3, 5):
        cache.put(KEYS[i], one)
    assert cache.get(KEYS[1]) is None
    assert cache.get(KEYS[0]) is not None
    assert cache.get(KEYS[4]) is not None
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4000


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30)), max_size=25))
def test_the_folder_never_outgrows_its_limit(tmp_path_factory, puts):
    cache = FeatureCache(tmp_path_factory.mktemp("cache"), 6000)
    for number, frames in puts:
        stored = cache.put(KEYS[number], video(number, frames))
        assert stored == (cache.get(KEYS[number]) is not None)
        assert sum(path.stat().st_size for path in cache.folder.iterdir()) <= 6000


def test_an_open_file_can_be_read_after_its_removal(cache):
    cache.put(KEYS[0], video(7))
    found = cache.get(KEYS[0])
    for path in cache.folder.iterdir():
        path.unlink()
    assert (found.features == 7).all()


def test_a_video_larger_than_the_cache_is_not_stored(tmp_path):
    cache = FeatureCache(tmp_path, 1000)
    assert not cache.put(KEYS[0], video(frames=100))
    assert list(tmp_path.iterdir()) == []


def test_stale_temporary_files_are_removed(cache):
    for name, age in (("old", module.STALE_SECONDS + 60), ("new", 0)):
        path = cache.folder / f"{name}.tmp"
        path.write_bytes(b"x")
        os.utime(path, (time.time() - age,) * 2)
    cache.put(KEYS[0], video())
    assert sorted(path.suffix for path in cache.folder.iterdir()) == [".safetensors", ".tmp"]


def test_a_write_that_fails_does_not_end_the_run(cache, caplog):
    cache.folder.rmdir()
    cache.folder.write_bytes(b"")
    assert not cache.put(KEYS[0], video())
    assert "could not be stored" in caplog.text


def test_a_cache_needs_a_positive_size():
    with pytest.raises(ValueError, match="max_bytes"):
        FeatureCache("x", 0)


def work(folder: str) -> None:
    """Put and get few keys, each twice in a row, in a small cache; every result must be complete."""
    cache, worker = FeatureCache(folder, 20_000), int(os.environ["WORKER"])
    hits = 0
    for turn in range(150):
        number = (turn // 2 * 7 + worker * 3) % 12
        found = cache.get(KEYS[number])
        if found is None:
            cache.put(KEYS[number], video(number, 40))
        else:
            hits += 1
            assert (found.features == number).all()
            assert len(found.times) == 40
    print(hits)


def test_processes_share_a_cache(tmp_path):
    workers = tuple({"WORKER": str(worker)} for worker in range(3))
    ended = run_forked(work, str(tmp_path), environments=workers)
    assert [one.returncode for one in ended] == [0, 0, 0], ended
    assert sum(int(one.stdout) for one in ended) > 0
    assert not list(tmp_path.glob("*.tmp"))


def settings(**changes) -> FeatureKeys:
    values = {"fps": 2.0, "max_frames": 224, "image_size": 384, "encoder": "abc", "dtype": "bfloat16"}
    return FeatureKeys(**(values | changes))


def test_a_key_follows_content_and_settings(tmp_path):
    for name, content in (("a.mp4", b"x" * 1000), ("copy.mp4", b"x" * 1000), ("other.mp4", b"x" * 999 + b"y")):
        (tmp_path / name).write_bytes(content)
    key = settings().key(tmp_path / "a.mp4")
    os.utime(tmp_path / "a.mp4", (1, 1))
    assert settings().key(tmp_path / "a.mp4") == key
    assert settings().key(tmp_path / "copy.mp4") == key
    changes = [{"fps": 1.0}, {"max_frames": 64}, {"image_size": 54}, {"encoder": "abd"}, {"dtype": "float32"}]
    others = [settings(**change).key(tmp_path / "a.mp4") for change in changes]
    others.append(settings().key(tmp_path / "other.mp4"))
    assert len({key, *others}) == 7


def test_paths_that_are_not_videos_have_no_key(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    for name in ("none", "pipe", "loop", "nul\0"):
        assert settings().key(tmp_path / name) is None
    assert settings().key(Path("/dev/zero")) is None


def test_folders_of_images_have_keys_of_their_own(tmp_path):
    (tmp_path / "a.png").write_bytes(b"a")
    first = content_digest(tmp_path)
    (tmp_path / "b.png").write_bytes(b"b")
    assert first != content_digest(tmp_path)
    (tmp_path / "b.png").rename(tmp_path / "c.png")
    assert content_digest(tmp_path) not in (first, None)


def test_weights_have_fingerprints():
    weights = {"b": torch.ones(3, 2, dtype=torch.bfloat16), "a": torch.zeros(())}
    same = fingerprint({name: tensor.clone() for name, tensor in reversed(weights.items())})
    assert fingerprint(weights) == same
    assert fingerprint(weights | {"a": torch.ones(())}) != same
    assert fingerprint(weights | {"a": torch.zeros((), dtype=torch.float64)}) != same
    assert fingerprint(weights | {"b": torch.ones(2, 3, dtype=torch.bfloat16)}) != same
