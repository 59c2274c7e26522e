"""Front-ends and decoders as deployments of Ray Serve: the answers of one process, also after replicas were killed."""

import json
import os
import signal
import socket
import time
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray", reason="Ray is not installed")
pytest.importorskip("grpc_reflection", reason="Ray Serve is not installed: pip install 'aviot[ray]'")
import ray
from asking import asked, frames_url, running
from ray import serve

from aviot import VideoLM
from aviot.engine.decoder_folder import save_decoder
from aviot.serve.ray import Plan, build

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint"
WAIT = 180


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The port of two front-ends and two decoders."""
    lm = VideoLM.from_pretrained(GOLDEN, device="cpu")
    decoder = tmp_path_factory.mktemp("ray") / "decoder"
    save_decoder(lm.backbone.model, lm.backbone.tokenizer, decoder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init(address="local", num_cpus=8, include_dashboard=False, object_store_memory=200_000_000)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        two = {"least": 2, "most": 2}
        plan = Plan(model=str(GOLDEN), decoder=str(decoder), device="cpu", port=port, front_ends=two, decoders=two)
        serve.run(build(plan.model_copy(update={"name": "tiny"})))
        yield port
    finally:
        serve.shutdown()
        ray.shutdown()


@pytest.fixture(scope="module")
def alone():
    """The answers of one process, by the number of frames."""
    with running(VideoLM.from_pretrained(GOLDEN, device="cpu")) as own:
        return {count: own.post(asked(frames_url(count)))[1]["choices"] for count in range(3, 9)}


def post(port, request):
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT)
    connection.request("POST", "/v1/chat/completions", json.dumps(request), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    found = reply.status, json.loads(reply.read())
    connection.close()
    return found


def replicas(name):
    return [one for one in psutil.process_iter() if _is_replica(one, name)]


def _is_replica(process, name):
    try:
        above = [one.pid for one in process.parents()]
        return os.getpid() in above and process.cmdline()[:1] == [f"ray::ServeReplica:default:{name}"]
    except psutil.Error:
        return False


def test_the_answers_of_one_process(deployed, alone):
    for count, expected in alone.items():
        status, said = post(deployed, asked(frames_url(count)))
        assert status == 200, said
        assert said["choices"] == expected


@pytest.mark.parametrize("name", ["FrontEnd", "Decoder"])
def test_a_replica_is_killed(deployed, alone, name):
    victim = replicas(name)[0]
    os.kill(victim.pid, signal.SIGKILL)
    deadline, right = time.monotonic() + WAIT, 0
    while right < 8 and time.monotonic() < deadline:
        status, said = post(deployed, asked(frames_url(4)))
        if status == 200:
            assert said["choices"] == alone[4]
            right += 1
        else:
            assert status in (500, 503), said  # only while the other replica takes over
            right = 0
            time.sleep(0.2)
    assert right == 8


def test_wrong_plans(monkeypatch):
    for given, said in (
        ({}, "name the folder of the decoder"),
        ({"engine": "other"}, "an engine is"),
        ({"engine": "http://engine:8000", "host": "0.0.0.0"}, "needs an API key"),
        ({"model": "/nowhere", "engine": "http://engine:8000"}, "no such folder"),
    ):
        with pytest.raises(ValueError, match=said):
            build(Plan(**given))
    monkeypatch.setenv("AVIOT_API_KEY", "secret")
    Plan(engine="http://engine:8000", host="0.0.0.0").check()
