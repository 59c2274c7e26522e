"""The examples of serving name options, paths and arguments that exist."""

import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from aviot.cli import app
from aviot.engine.choice import check_engine

EXAMPLES = Path(__file__).parents[2] / "examples" / "serve"
ROOT = EXAMPLES.parents[1]
OPTIONS = {name for option in get_command(app).commands["serve"].params for name in option.opts}


def of_front_ends():
    compose = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
    yield compose["services"]["front-end"]["command"]
    documents = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))
    for one in documents:
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "front-end":
            yield one["spec"]["template"]["spec"]["containers"][0]["args"]
    (line,) = re.findall(r"^CMD (\[.*\])$", (EXAMPLES / "Dockerfile").read_text(), re.M)
    yield yaml.safe_load(line)


def test_front_ends_are_started_with_options_that_exist():
    commands = list(of_front_ends())
    assert len(commands) == 3
    for verb, *words in commands:
        assert verb == "serve"
        given = dict(word.split("=", 1) for word in words if "=" in word)
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= OPTIONS
        if "--engine" in given:
            check_engine(given["--engine"])


def test_engines_take_prompt_embeddings_and_are_not_published():
    compose = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
    engine = compose["services"]["engine"]
    assert "--enable-prompt-embeds" in engine["command"]
    assert "ports" not in engine
    assert compose["networks"]["inside"]["internal"]
    assert compose["services"]["front-end"]["ports"] == ["127.0.0.1:8000:8000"]
    documents = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))
    names = {(one["kind"], one["metadata"]["name"]) for one in documents}
    assert ("NetworkPolicy", "engine") in names
    selectors = {one["spec"]["selector"]["app"] for one in documents if one["kind"] == "Service"}
    assert selectors == {"engine", "front-end"}


def test_the_image_copies_what_is_there():
    for sources in re.findall(r"^COPY (.*) \S+$", (EXAMPLES / "Dockerfile").read_text(), re.M):
        for source in sources.split():
            assert (ROOT / source).exists(), source


def test_rays_arguments_are_those_of_the_plan():
    pytest.importorskip("grpc_reflection", reason="Ray Serve is not installed: pip install 'aviot[ray]'")
    from aviot.serve.ray import Plan

    config = yaml.safe_load((EXAMPLES / "ray.yaml").read_text())
    (application,) = config["applications"]
    assert application["import_path"] == "aviot.serve.ray:build"
    plan = Plan.model_validate(application["args"])
    assert set(application["args"]) <= set(Plan.model_fields)
    assert (plan.decoders.gpus, plan.host, plan.port) == (1, *config["http_options"].values())
