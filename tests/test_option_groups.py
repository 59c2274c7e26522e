"""Groups of options: a command's options, in order, and the values that reach it."""

import json
import sys
from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from aviot.budget import AutoBudget, Budget
from aviot.cli import VERBS, app
from aviot.commands.expand import expand_groups
from aviot.commands.groups import AnswerBudget, FixedBudget, ModelOptions, ReadingOptions, SamplingOptions
from aviot.request import Request

sys.path.insert(0, str(Path(__file__).parent / "video"))
from clips import encode

CHECKPOINT = Path(__file__).parent / "golden" / "checkpoint"
Size = Annotated[int, typer.Option("--size", "-s", min=1, help="Size of the thing.")]


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A thing that a command takes."""

    size: Size
    long_name: Annotated[str | None, typer.Option(help="Name of the thing.")] = None
    heavy: Annotated[bool, typer.Option("--heavy", help="Whether it is heavy.")] = False


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place of which there is none below 0."""

    x: Annotated[float, typer.Option(help="Where it is.")] = 0.5

    def __post_init__(self):
        if self.x < 0:
            raise ValueError(f"x must be at least 0, got {self.x:g}")


@pytest.fixture
def put():
    """A command with two groups and options of its own, and what it was called with."""
    calls, command = [], typer.Typer()

    @command.command()
    @expand_groups
    def put(
        what: Annotated[str, typer.Argument(help="What to put.")],
        *,
        thing: Thing,
        times: Annotated[list[int], typer.Option(help="How often.")] = [],  # noqa: B006
        x: Place,
    ) -> None:
        """Put a thing in its place."""
        calls.append((what, thing, times, x))

    def invoke(*words):
        return CliRunner().invoke(command, words, env={"COLUMNS": "120"}), calls

    return invoke


def test_values_arrive_in_their_groups(put):
    done, calls = put("cup", "-s", "3", "--long-name", "mug", "--times", "1", "--heavy", "--x", "2", "--times", "2")
    assert done.exit_code == 0, done.output
    assert calls == [("cup", Thing(size=3, long_name="mug", heavy=True), [1, 2], Place(x=2.0))]


def test_what_is_not_given_has_its_fields_default(put):
    done, calls = put("cup", "--size", "1")
    assert done.exit_code == 0, done.output
    assert calls == [("cup", Thing(size=1), [], Place())]


def test_help_shows_every_option_where_its_group_stands(put):
    done, calls = put("--help")
    shown = ["Put a thing", "What to put.", "--size", "Size of the thing.", "--long-name", "--heavy", "--times", "--x"]
    places = [done.output.index(text) for text in shown]
    assert places == sorted(places)
    assert "[default: 0.5]" in done.output
    assert "[required]" in done.output[done.output.index("--size") : done.output.index("--long-name")]
    assert calls == []


def flat():
    """Return the command of `put` with its options written out."""
    command = typer.Typer()

    @command.command()
    def put(
        what: Annotated[str, typer.Argument(help="What to put.")],
        size: Size,
        long_name: Annotated[str | None, typer.Option(help="Name of the thing.")] = None,
        heavy: Annotated[bool, typer.Option("--heavy", help="Whether it is heavy.")] = False,
        times: Annotated[list[int], typer.Option(help="How often.")] = [],  # noqa: B006
        x: Annotated[float, typer.Option(help="Where it is.")] = 0.5,
    ) -> None:
        """Put a thing in its place."""

    return command


@pytest.mark.parametrize(
    "words",
    [
        ["cup", "--size", "0"],
        ["cup", "--size", "big"],
        ["cup", "--size"],
        ["cup"],
        ["--size", "1"],
        ["cup", "--size", "1", "--thing", "x"],
    ],
    ids=" ".join,
)
def test_a_mistake_is_refused_as_without_groups(put, words):
    done, calls = put(*words)
    assert done.exit_code == 2
    assert done.output == CliRunner().invoke(flat(), words, env={"COLUMNS": "120"}).output
    assert calls == []


def test_help_is_that_of_a_command_without_groups(put):
    assert put("--help")[0].output == CliRunner().invoke(flat(), ["--help"], env={"COLUMNS": "120"}).output


def test_a_group_checks_its_values(put):
    done, calls = put("cup", "--size", "1", "--x", "-1")
    assert isinstance(done.exception, ValueError)
    assert "x must be at least 0, got -1" in str(done.exception)
    assert calls == []


def test_two_options_of_one_name_are_refused():
    def put(*, size: Size = 1, thing: Thing) -> None:
        """Take a size twice."""

    with pytest.raises(ValueError, match="duplicate parameter name: 'size'"):
        expand_groups(put)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_option_of_a_commands_groups_is_in_its_help(verb):
    groups = [each.annotation for each in signature(getattr(verb, "__wrapped__", verb)).parameters.values()]
    names = [field.name for group in groups if hasattr(group, "__dataclass_fields__") for field in fields(group)]
    command = get_command(app).commands[verb.__name__]
    options = {option.name: option.opts[0] for option in command.params}
    help_text = CliRunner().invoke(app, [verb.__name__, "--help"], env={"COLUMNS": "300"}).output
    assert all(options[name] in help_text for name in names)
    assert bool(names) == hasattr(verb, "__wrapped__")


def test_commands_that_answer_share_the_options_of_the_model():
    takers = {verb.__name__ for verb in VERBS if "model: aviot" in str(signature(getattr(verb, "__wrapped__", verb)))}
    assert takers == {"answer", "batch", "compare", "compress", "evaluate", "explain", "serve", "watch"}


def test_the_options_of_the_model_make_a_choice(tmp_path):
    given = ModelOptions(model="some/name", download=True, revision="v1", device="cpu", dtype="float32", base=tmp_path)
    chosen = given.choice()
    assert (chosen.name, chosen.download, chosen.revision, chosen.device) == ("some/name", True, "v1", "cpu")
    assert (chosen.options.dtype, chosen.base) == ("float32", tmp_path)
    assert given.served_name == "name"
    assert ModelOptions().served_name == "aviot"
    with pytest.raises(ValueError, match="--download and --revision are for a model of the hub"):
        ModelOptions(revision="v1").choice()


def test_budgets_are_chosen_by_one_option():
    assert FixedBudget().chosen is AnswerBudget().chosen is None
    assert FixedBudget(ratio=4.0).chosen == AnswerBudget(ratio=4.0).chosen == Budget(ratio=4)
    assert FixedBudget(keep=0.5).chosen == AnswerBudget(budget="keep=0.5").chosen == Budget(keep=0.5)
    assert isinstance(AnswerBudget(budget="auto").chosen, AutoBudget)
    for both in (FixedBudget(ratio=4.0, keep=0.5), AnswerBudget(ratio=4.0, keep=0.5)):
        with pytest.raises(ValueError, match="give --ratio or --keep, not both"):
            _ = both.chosen
    with pytest.raises(ValueError, match="give one of --ratio, --keep and --budget"):
        _ = AnswerBudget(keep=0.5, budget="4").chosen


def test_the_options_of_reading_are_those_of_a_request(tmp_path):
    (tmp_path / "frame.png").write_bytes(b"")
    given = ReadingOptions(
        fps=2.0, frames=3, source_fps=5.0, sampling_mode="keyframes", decoder="cpu", read_timeout=9.0
    )
    request = Request(video=tmp_path, questions=["Why?"], **given.arguments)
    assert request.sampling == {"fps": 2.0, "frames": 3, "source_fps": 5.0, "sampling": "keyframes"}
    assert request.reading["reader"].keywords == {"limits": given.limits, "decoder": "cpu"}
    assert SamplingOptions(max_frames=7).given == {"max_frames": 7}
    assert SamplingOptions().given == {}


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A file of 12 seconds with a keyframe every 4."""
    options = {"g": "100", "bf": "3", "sc_threshold": "0"}
    return encode(tmp_path_factory.mktemp("clip") / "clip.mp4", "libx264", pictures=300, options=options)


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("answer", ["--max-new-tokens", "2"]),
        ("compare", ["--max-new-tokens", "2", "--method", "uniform", "-o", "pages"]),
        ("compress", ["-o", "out.safetensors"]),
        ("explain", ["--max-new-tokens", "2", "-o", "page.html"]),
    ],
)
def test_a_file_is_read_at_its_keyframes_by_the_decoder_that_was_named(clip, tmp_path, monkeypatch, verb, more):
    monkeypatch.chdir(tmp_path)
    words = [verb, str(clip), "-q", "Why?", "-m", str(CHECKPOINT), "-r", "2", "--frames", "4", "--json", *more]
    read = [CliRunner().invoke(app, [*words, *how]) for how in ([], ["--sampling", "keyframes", "--decoder", "cpu"])]
    assert [done.exit_code for done in read] == [0, 0], read[1].output
    times, keyframes = (json.loads(done.stdout)["times"] for done in read)
    assert times == pytest.approx([0, 4, 8, 12], abs=0.1)
    assert times != keyframes == [0, 4, 8]
    for how, said in ((["--sampling", "all"], "keyframes, got 'all'"), (["--decoder", "gpu"], "cuda, got 'gpu'")):
        done = CliRunner().invoke(app, [*words, *how])
        assert done.exit_code == 2
        assert said in done.stderr.replace("\n", " ")
