"""lmms-eval's own OpenAI-compatible models against a real `aviot serve`, beside the plug-in on the same items."""

import base64
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("lmms_eval", reason="lmms-eval wants an environment of its own: make test-lmms-eval")
from harness import lmms_eval, make_task, write_task
from lmms_eval.models.simple.openai import OpenAICompatible
from own_server import serving

pytestmark = pytest.mark.lmms_eval
SERVED = {
    "ratio=4": ("--ratio", "4"),
    "ratio=4,method=uniform": ("--ratio", "4", "--method", "uniform"),
    "method=none": ("--method", "none"),
}
BY_ADDRESS = "pass_video_url=True"
AS_IMAGES = "--force_simple"


@pytest.fixture(scope="module")
def server(local):
    """A server at ratio 4, for the tests that need no other."""
    with serving(local[0], "--ratio", "4") as arguments:
        yield arguments


@pytest.fixture(scope="module")
def plug_in(local, tmp_path_factory):
    """Return a function that asks the plug-in, once with each of its arguments."""
    folder, found = local[0], {}

    def ask(arguments):
        if arguments not in found:
            out = tmp_path_factory.mktemp("plug-in")
            found[arguments] = lmms_eval(folder, out, f"pretrained={folder / 'model'},{arguments}")
        return found[arguments]

    return ask


def own_model(folder, out, arguments, *words):
    return lmms_eval(folder, out, arguments, *words, model="openai")


def same(found, expected):
    """Check scores and replies; a score and replies that any model would have show nothing."""
    assert found["replies"] == expected["replies"], found["said"][-8000:]
    assert found["score"] == pytest.approx(expected["score"])
    assert 0 < found["score"] < 1
    assert len(set(found["replies"])) > 2


@pytest.fixture(scope="module")
def by_address(local, tmp_path_factory):
    """Return a function that asks a server of its own for each setting, once."""
    folder, found = local[0], {}

    def ask(setting):
        if setting not in found:
            with serving(folder, *SERVED[setting]) as arguments:
                out = tmp_path_factory.mktemp("own")
                found[setting] = own_model(folder, out, f"{arguments},max_frames_num=16,{BY_ADDRESS}")
        return found[setting]

    return ask


@pytest.mark.parametrize("setting", SERVED)
def test_by_address_scores_and_replies_are_those_of_the_plug_in(local, plug_in, by_address, setting):
    found = by_address(setting)
    same(found, plug_in(f"{setting},frames=16"))
    assert len(found["replies"]) == len(local[1])
    assert {counts["output_tokens"] for counts in found["tokens"]} == {1}


def test_settings_differ_in_replies_and_in_the_visual_tokens_that_are_counted(plug_in, by_address):
    assert len({tuple(by_address(setting)["replies"]) for setting in SERVED}) == len(SERVED)
    words = []
    for setting in SERVED:
        pairs = zip(by_address(setting)["tokens"], plug_in(f"{setting},frames=16")["tokens"], strict=True)
        words.append([own["input_tokens"] - counts["tokens_after"] for own, counts in pairs])
    assert words[0] == words[1] == words[2], "a prompt has the visual tokens that were read, and the same words"


@pytest.mark.parametrize(("frames", "sampling"), [(6, "ratio=4,frames=6"), (-1, "ratio=4")])
def test_the_number_of_frames_is_passed_on(local, server, plug_in, tmp_path, frames, sampling):
    """With -1 the checkpoint samples as it does for the plug-in without arguments."""
    found = own_model(local[0], tmp_path, f"{server},max_frames_num={frames},{BY_ADDRESS}")
    same(found, plug_in(sampling))


def test_all_frames_as_images_are_the_video(local, server, plug_in, tmp_path):
    """PNG loses nothing, and these videos have the rate that is assumed for frames without one."""
    same(own_model(local[0], tmp_path, f"{server},max_frames_num=16", AS_IMAGES), plug_in("ratio=4,frames=16"))


def test_frames_that_lmms_eval_chose_are_those_that_are_read(local, server, plug_in, tmp_path):
    """It chooses others than we do; the plug-in gets the same ones as folders of images."""
    folder, items = local
    choosing = SimpleNamespace(video_fps=None)
    for video in {item["video"] for item in items}:
        stem = tmp_path / video.removesuffix(".mp4")
        stem.mkdir()
        for number, data in enumerate(OpenAICompatible.encode_video(choosing, str(folder / video), 6)):
            (stem / f"{number:03}.png").write_bytes(base64.b64decode(data))
    write_task(tmp_path, [item | {"video": item["video"].removesuffix(".mp4")} for item in items])
    expected = lmms_eval(tmp_path, tmp_path / "plug-in", f"pretrained={folder / 'model'},ratio=4")
    found = own_model(folder, tmp_path / "own", f"{server},max_frames_num=6", AS_IMAGES)
    same(found, expected)
    assert found["replies"] != plug_in("ratio=4,frames=6")["replies"], "the frames are others"


def test_a_video_that_cannot_be_read_is_a_failed_request_with_the_reason(local, server, tmp_path):
    folder, _ = local
    items = make_task(tmp_path, scenes=1, questions=2)
    for item, name in zip(items, ("missing", "broken"), strict=True):
        item["video"] = f"{name}.mp4"
    (folder / "broken.mp4").write_bytes(b"no video" * 99)
    for item in items:
        item["path"] = str(folder / item["video"])
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    found = own_model(tmp_path, tmp_path / "own", f"{server},max_frames_num=16,{BY_ADDRESS}")
    assert "there is no such video in the server's media folder" in found["replies"][0]
    assert "broken.mp4 is not a video" in found["replies"][1]
    assert found["score"] == 0
