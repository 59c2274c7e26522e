"""The server's caches: bounded in bytes, computed once, and kept on disk through a restart."""

import asyncio

import pytest
from asking import asked, data_url, running, write_clip

from aviot.serve.cache import ByteCache, SharedWork
from aviot.serve.text import AnswerStream

ENCODED = 'aviot_stage_seconds_count{stage="encode"}'
COMPRESSED = 'aviot_token_lookups_total{result="hit"}'


def test_a_byte_cache_keeps_the_latest():
    sizes = {"a": 4, "b": 4, "c": 4, "huge": 11}
    cache = ByteCache(10, lambda value: sizes[value])
    for key in "abc":
        cache.put(key, key)
    assert [key for key in "abc" if cache.get(key)] == ["b", "c"]
    cache.get("b")
    cache.put("a", "a")
    assert (cache.peek("b"), cache.peek("c"), cache.used) == ("b", None, 8)
    cache.put("huge", "huge")
    assert cache.peek("huge") is None
    sizes["a"] = 7
    cache.refresh("a")
    assert (cache.peek("a"), cache.peek("b"), cache.used) == ("a", None, 7)


def test_work_is_shared_and_ends_with_its_last_user():
    async def check():
        shared, begun, ended = SharedWork(1), [], []

        async def make(key):
            begun.append(key)
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                ended.append(key)
                raise
            return key

        async def use(key, seconds=0.0):
            async with shared.shared(key, lambda: make(key)) as value:
                await asyncio.sleep(seconds)
                return value

        assert await asyncio.gather(*(use("a") for _ in range(5)), use("b")) == [*"aaaaa", "b"]
        assert begun == ["a", "b"]
        left, stays = asyncio.create_task(use("c")), asyncio.create_task(use("c"))
        await asyncio.sleep(0.01)
        left.cancel()
        assert await stays == "c"
        only = asyncio.create_task(use("d"))
        await asyncio.sleep(0.01)
        only.cancel()
        await asyncio.sleep(0.01)
        assert ended == ["d"]
        assert await asyncio.wait_for(use("e"), 1) == "e"  # the place came back
        assert len(shared) == 0

    asyncio.run(check())


def test_work_that_fails_fails_for_all_and_gives_its_place_back():
    async def check():
        shared = SharedWork(1)

        async def fail():
            await asyncio.sleep(0.01)
            raise ValueError("no")

        async def use(make):
            async with shared.shared("a", make) as value:
                return value

        found = await asyncio.gather(*(use(fail) for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in found] == ["no"] * 3
        assert await asyncio.wait_for(use(lambda: asyncio.sleep(0, "yes")), 1) == "yes"

    asyncio.run(check())


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_streamed_text_is_trimmed_and_cut(size):
    for whole, stops, expected in (
        ("  a  b \n c \n\n", (), "a  b \n c"),
        ("one two three", ("two",), "one"),
        ("one twin two", ("two", "zzz"), "one twin"),
        ("ends with tw", ("two",), "ends with tw"),
        ("   ", (), ""),
        ("stop", ("stop",), ""),
    ):
        stream = AnswerStream(stops)
        sent = [stream.add(whole[at : at + size]) for at in range(0, len(whole), size)]
        assert "".join(sent) + stream.end() == expected


def test_a_video_is_encoded_once_and_its_tokens_are_kept(lm, tmp_path):
    clip = data_url(write_clip(tmp_path / "a.mp4", seed=11))
    with running(lm) as server:
        first = server.post(asked(clip))[1]["choices"][0]["message"]["content"]
        assert server.post(asked(clip))[1]["choices"][0]["message"]["content"] == first
        assert server.metric(COMPRESSED) == 1
        server.post(asked(clip, "Why?"))
        server.post(asked(clip, aviot={"budget": 2}))
        assert (server.metric(ENCODED), server.metric(COMPRESSED)) == (1, 1)
        server.post(asked(clip, aviot={"frames": 4}))
        assert server.metric(ENCODED) == 2
    with running(lm, feature_bytes=1, token_bytes=1) as server:  # nothing fits
        assert [server.post(asked(clip))[0] for _ in range(2)] == [200, 200]
        assert server.metric(ENCODED) == 2


def test_features_on_disk_outlive_the_server(lm, tmp_path):
    clip, folder = data_url(write_clip(tmp_path / "a.mp4", seed=12)), tmp_path / "features"
    how = {"feature_folder": folder, "disk_bytes": 100_000_000}
    with running(lm, **how) as server:
        first = server.post(asked(clip))[1]
        assert server.metric(ENCODED) == 1
        assert server.idle()
    (file,) = folder.iterdir()
    with running(lm, **how) as server:
        again = server.post(asked(clip, aviot={"provenance": True}))[1]
        assert again["choices"][0]["message"]["content"] == first["choices"][0]["message"]["content"]
        assert again["usage"] == first["usage"]
        assert server.metric(ENCODED) == 0
        assert server.request("GET", again["aviot"]["explain"])[0] == 200
    file.write_bytes(file.read_bytes()[:-50])
    with running(lm, **how) as server:
        assert server.post(asked(clip))[0] == 200  # damaged: computed again
        assert server.metric(ENCODED) == 1


def test_a_full_disk_does_no_harm(lm, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aviot.data.feature_cache.save_file", full)
    clip = data_url(write_clip(tmp_path / "a.mp4", seed=13))
    with running(lm, feature_folder=tmp_path / "features", disk_bytes=100_000_000) as server:
        assert [server.post(asked(clip))[0] for _ in range(2)] == [200, 200]
    assert list((tmp_path / "features").iterdir()) == []
