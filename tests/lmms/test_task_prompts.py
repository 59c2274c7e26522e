"""The tasks of the installed lmms-eval: their prompts are the recorded ones, and the plug-in answers all of them."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("lmms_eval", reason="lmms-eval wants an environment of its own: make test-lmms-eval")
from harness_home import HOME
from harness_tasks import Given, prompt_of

from aviot.backbones.llava_video.backbone import LlavaVideo
from aviot.evaluation.lmms.model import NO_ANSWER, Aviot
from aviot.evaluation.lmms.requests import read_request

pytestmark = pytest.mark.lmms_eval
RECORDED = json.loads((Path(__file__).parents[1] / "evaluation" / "task_prompts.json").read_text())["prompts"]
TASKS = sorted({entry["task"] for entry in RECORDED})
# Where each task looks for a record's video.
PLACES = {
    "videomme": "videomme/data/{videoID}.mp4",
    "egoschema": "egoschema/videos/{video_idx}.mp4",
    "egoschema_subset": "egoschema/videos/{video_idx}.mp4",
    "mvbench_action_antonym": "mvbench_video/ssv2_video_mp4/{video}",
    "mvbench_moving_count": "mvbench_video/clevrer/video_validation/{video}",
    "mvbench_episodic_reasoning": "mvbench_video/tvqa/video_fps3_hq_segment/{video}",
    "activitynetqa": "activitynetqa/all_test/v_{video_name}.mp4",
    "perceptiontest_val_mc": "perceptiontest_val/videos/{video_name}.mp4",
    "nextqa_mc_test": "nextqa/NExTVideo/{video}.mp4",
    "longvideobench_val_v": "datasets/longvideobench/videos/{video_path}",
    "lvbench": "lvbench/{video_path}",
}
SUBJECTS = {"Art": "Art", "Math": "Science"}


def place_of(task: str, record: dict) -> Path:
    if task.startswith("tempcompass"):
        return HOME / "tempcompass" / "videos" / f"{record['video_id']}.mp4"
    if task.startswith("video_mmmu"):
        return HOME / "video_mmmu" / SUBJECTS[record["id"].split("_")[1]] / f"{record['id']}.mp4"
    return HOME / PLACES[task].format(**record)


@pytest.fixture(scope="module")
def model(local):
    folder, _ = local
    for entry in RECORDED:
        place = place_of(entry["task"], entry["record"])
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "0.mp4", place)
    yield Aviot(pretrained=str(folder / "model"), ratio=4, device="cpu")
    shutil.rmtree(HOME)


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: entry["task"])
def test_the_harness_says_what_was_recorded(entry):
    assert prompt_of(entry["task"], entry["record"]) == entry["prompt"]


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: entry["task"])
def test_what_the_plug_in_asks_is_the_question_with_its_options(model, entry):
    messages = Given(entry["task"], [entry["record"]]).doc_to_messages(entry["record"])
    item = read_request(messages, entry["record"], "1")
    assert item.prompt.text == entry["prompt"]
    assert item.prompt.text[slice(*item.prompt.span)] == entry["asks"]
    assert Path(item.video) == place_of(entry["task"], entry["record"])


def requests_of(model, name, records):
    """Requests as the harness makes them, of one token."""
    task = Given(name, records)
    model.task_dict[name] = task.dataset
    task.build_all_requests(limit=None, rank=0, world_size=1)
    for request in task.instances:
        request.args[2]["max_new_tokens"] = 1
    return task.instances


def test_a_video_is_encoded_once_for_all_its_questions(model, monkeypatch):
    names = ["fFjv93ACGo8", "x", "fFjv93ACGo8", "x", "fFjv93ACGo8"]
    records = [
        {"videoID": name, "question": f"Which, of {n}?", "options": ["A. red", "B. blue"], "answer": "A"}
        for n, name in enumerate(names)
    ]
    requests = requests_of(model, "videomme", records)
    alone = [model.generate_until([request])[0] for request in requests]
    encoded, before = [], LlavaVideo.encode
    monkeypatch.setattr(LlavaVideo, "encode", lambda self, videos: encoded.append(videos) or before(self, videos))
    assert model.generate_until(requests) == alone
    assert len(encoded) == 2


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_answered(model, name):
    requests = requests_of(model, name, [entry["record"] for entry in RECORDED if entry["task"] == name])
    replies = [result.text for result in model.generate_until(requests)]
    assert len(replies) == sum(entry["task"] == name for entry in RECORDED)
    assert set(replies) <= set("ABCD")
    assert NO_ANSWER not in replies
