"""Rules of the house that no type checker knows: where method names, flags and the pipeline's steps may appear."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer

from aviot.cli import app
from aviot.methods import registry

SRC = Path(__file__).parents[1] / "src" / "aviot"
FILES = sorted(SRC.rglob("*.py"))
MAX_ARGUMENTS = 8
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]+")


OTHER_MEANINGS = {
    "layout",  # of a checkpoint: aviot, published, llava-video
    "checkpoint.layout",
    "self.part",  # of choosing training records: first, end, random
    "bound",  # of a number in a reply: none, lower, upper
    "own",
    "_own_bound(each)",
    "name",  # of a Trainer's trackers: none
}
"""Subjects that are compared with a word that is a method's name too, and mean something else."""


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def compared_names(code: ast.AST) -> Iterator[int]:
    """Yield the lines on which something is compared with a method's name."""
    names = set(registry.names())
    for node in ast.walk(code):
        if isinstance(node, ast.Compare):
            values = [node.left, *node.comparators]
            groups = [value for value in values if isinstance(value, ast.Tuple | ast.List | ast.Set)]
            constants = [*values, *(each for group in groups for each in group.elts)]
            subjects = {ast.unparse(value) for value in values if not isinstance(value, ast.Constant)}
            is_name = any(isinstance(value, ast.Constant) and value.value in names for value in constants)
            if is_name and not subjects <= OTHER_MEANINGS:
                yield node.lineno
        if isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant) and node.value.value in names:
            yield node.lineno


def test_no_comparison_with_a_methods_name():
    outside = [path for path in FILES if SRC / "methods" not in path.parents]
    assert [(str(path.relative_to(SRC)), line) for path in outside for line in compared_names(tree(path))] == []


def test_planted_comparisons_are_seen():
    code = 'def f(method):\n    a = method == "aviot"\n    return method in ("none", "x")\n'
    assert list(compared_names(ast.parse(code))) == [2, 3]


def passed_on(code: ast.AST) -> Iterator[tuple[int, str, int]]:
    """Yield calls of functions that hand on more than eight of the caller's own arguments; groups are classes."""
    for function in ast.walk(code):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = function.args
        own = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)} - {"self", "cls"}
        for call in ast.walk(function):
            if not isinstance(call, ast.Call):
                continue
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
            handed = {value.id for value in values if isinstance(value, ast.Name)} & own
            if len(handed) > MAX_ARGUMENTS and not called[:1].isupper() and called != "cls":
                yield call.lineno, called, len(handed)


def test_no_function_passes_more_than_eight_arguments_on():
    """Launches of kernels are exempt: Triton takes no groups."""
    kernels = SRC / "methods" / "aviot" / "kernels"
    files = [path for path in FILES if kernels not in path.parents and path.name not in ("sinkhorn.py", "kernels.py")]
    assert [(str(path.relative_to(SRC)), *call) for path in files for call in passed_on(tree(path))] == []


def test_planted_calls_of_many_arguments_are_seen():
    names = ", ".join("abcdefghi")
    assert list(passed_on(ast.parse(f"def f({names}):\n    g({names})\n    Group({names})\n"))) == [(2, "g", 9)]


@cache
def own_flags() -> frozenset[str]:
    """Return every flag of our commands; git, pip and lmms-eval have others."""
    commands = typer.main.get_command(app).commands.values()
    return frozenset(flag for command in commands for option in command.params for flag in option.opts)


def named_flags(code: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield strings that name a flag of the command line."""
    for node in ast.walk(code):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((node.lineno, flag) for flag in FLAG.findall(node.value) if flag in own_flags())


def test_flags_are_named_in_commands_only():
    outside = [path for path in FILES if SRC / "commands" not in path.parents]
    assert [(str(path.relative_to(SRC)), *flag) for path in outside for flag in named_flags(tree(path))] == []


def test_planted_flags_are_seen():
    assert list(named_flags(ast.parse('x = "say --resume to go on"\ny = "a -- b, x--y"\n'))) == [(1, "--resume")]


STEPS = {"encode", "compress", "place"}
STEP_USERS = {"session.py", "bench/pipeline.py"}  # the benchmark times each step by itself


def test_the_pipelines_steps_are_called_in_one_place():
    """Of a backbone: all else asks a session."""
    found = {
        str(path.relative_to(SRC))
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in STEPS
        and ast.unparse(node.func.value).endswith("backbone")
    }
    assert found == STEP_USERS


@pytest.mark.parametrize("package", ["methods", "ot", "video", "utils", "budget.py", "config.py"])
def test_lower_layers_know_no_transformers(package):
    place = SRC / package
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    for path in files:
        for node in ast.walk(tree(path)):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.split(".")[0] == "transformers" for name in modules), (path, node.lineno)
