"""The one runner: forks lanes, gives each its cases, and sums up what they saw."""

import gc
import importlib
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.inside import end_with_parent, remember_exits
from fuzz.isolation import Observed, Places, adopt_orphans, observe
from fuzz.target import Target, generator

PROGRESS_SECONDS = 15.0
SHOWN = 40
"""Kinds of failures that a summary lists."""


@dataclass(frozen=True)
class Plan:
    """What is run: targets with their shares of the cases, a seed, and when to stop (rounds, or seconds)."""

    targets: Sequence[tuple[Target, int]]
    seed: int
    jobs: int = 1
    rounds: int | None = None
    seconds: float | None = None

    def cases(self, lane: int) -> Iterator[tuple[Target, int]]:
        """Yield the cases of one lane: every `jobs`-th of a sequence that depends on the targets alone."""
        wheel = [(target, place, share) for target, share in self.targets for place in range(share)]
        begin, number = time.monotonic(), lane
        while self.seconds is None or time.monotonic() - begin < self.seconds:
            turn, place = divmod(number, len(wheel))
            if self.rounds is not None and turn >= self.rounds:
                return
            target, offset, share = wheel[place]
            yield target, turn * share + offset
            number += self.jobs


@dataclass
class Tally:
    """What was seen of one target."""

    kinds: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, 0)
    largest: tuple[int, int] = (0, 0)

    def add(self, case: int, seen: Observed) -> None:
        """Count a case."""
        self.kinds[seen.kind] += 1
        self.slowest = max(self.slowest, (seen.cpu_seconds, case))
        self.largest = max(self.largest, (seen.bytes, case))


@dataclass(frozen=True)
class Failure:
    """A case that went wrong."""

    target: str
    case: int
    what: str
    seen: Observed

    @property
    def signature(self) -> str:
        """Return a text that is the same for cases that probably fail for the same reason."""
        return f"{self.target}, {self.seen.kind}: {_gist(self.seen.kind, self.seen.detail, self.what)}"


def _gist(kind: str, detail: str, what: str) -> str:
    if kind == "traceback":
        frames = re.findall(r'File "[^"]*/(aviot/[^"]+)", line (\d+), in (\S+)', detail)
        where = " at {}:{} in {}".format(*frames[-1]) if frames else ""
        last = next((line for line in reversed(detail.strip().splitlines()) if re.match(r"[\w.]+(:|$)", line)), "")
        return f"{last.partition(':')[0]}{where}"
    text = detail if kind in ("property", "leftover", "signal") else what.partition(": ")[2]
    return re.sub(r"/\S*/fuzz-\w+/lane-\d+/|[0-9a-f]{6,}|\d[\d.e+-]*", "#", text)[:70]


@contextmanager
def prepared(targets: Sequence[Target]) -> Iterator[Path]:
    """Import what the targets need, write their sources, and check that each accepts a valid input."""
    root = Path(tempfile.mkdtemp(prefix="fuzz-"))  # a TemporaryDirectory would be removed by every fork that ends
    try:
        adopt_orphans()
        remember_exits()
        os.environ["HF_HOME"] = str(root / "hub")  # before anything that reads it is imported
        for target in targets:
            for module in ("aviot.commands.terminal", *target.modules):
                importlib.import_module(module)
        for target in targets:
            (root / "sources" / target.name).mkdir(parents=True)
            _in_child(lambda target=target: target.prepare(root / "sources" / target.name), f"prepare {target.name}")
            _check_control(target, root)
        gc.collect()
        gc.freeze()
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _check_control(target: Target, root: Path) -> None:
    places = Places(root / "control")
    places.renew()
    target.control(root / "sources" / target.name, places.input)
    seen = observe(target, places)
    if seen.kind != "accepted":
        raise SystemExit(f"{target.name}: a valid input must be accepted, and was not ({seen.kind}): {seen.detail}")
    shutil.rmtree(places.root)


def _in_child(work: object, what: str) -> None:
    """Call a function in a forked process: threads that it starts must not be in the one that is forked again."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()  # type: ignore[operator]
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(f"cannot {what}; its own error is above")


def run_one(target: Target, seed: int, case: int, root: Path, places: Places) -> tuple[str, Observed]:
    """Write one case and run it; return what was mutated and what was seen."""
    places.renew()
    rng = generator(target.name, seed, case)
    what = target.write(rng, root / "sources" / target.name, places.input)
    return what, observe(target, places)


def run_plan(plan: Plan) -> int:
    """Run a plan and print what was seen; return the exit code: 1 if any case failed."""
    begin = time.monotonic()
    with prepared([target for target, _ in plan.targets]) as root:
        print(f"seed {plan.seed}, {plan.jobs} at a time, ready after {time.monotonic() - begin:.0f} s", flush=True)
        tallies = {target.name: Tally() for target, _ in plan.targets}
        failures: list[Failure] = []
        for name, case, what, seen in _lanes(plan, root, tallies, failures):
            tallies[name].add(case, seen)
            if seen.failed:
                failure = Failure(name, case, what, seen)
                if failure.signature not in {each.signature for each in failures}:
                    print(f"FAILED {name} case {case}, {seen.kind}: {plain(what)[:200]}", flush=True)
                failures.append(failure)
    print_summary(plan, tallies, failures, time.monotonic() - begin)
    return 1 if failures else 0


def _lanes(
    plan: Plan, root: Path, tallies: dict[str, Tally], failures: list[Failure]
) -> Iterator[tuple[str, int, str, Observed]]:
    """Fork the lanes and yield what they report, with a line of progress now and then."""
    pipes: dict[int, bytes] = {}
    children = []
    for lane in range(plan.jobs):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            _run_lane(plan, lane, root, writer)
        os.close(writer)
        pipes[reader] = b""
        children.append(pid)
    begin = shown = time.monotonic()
    is_ended = False
    while pipes and not is_ended:
        try:
            ready = select.select(list(pipes), [], [], 1.0)[0]
        except KeyboardInterrupt:
            is_ended, ready = True, []
        for reader in ready:
            data = os.read(reader, 2**16)
            *lines, rest = (pipes.pop(reader) + data).split(b"\n")
            if data:
                pipes[reader] = rest
            for line in lines:
                name, case, what, seen = json.loads(line)
                yield name, case, what, Observed(**seen)
        if time.monotonic() - shown > PROGRESS_SECONDS:
            shown = time.monotonic()
            count = sum(tally.kinds.total() for tally in tallies.values())
            print(f"{shown - begin:5.0f} s, {count:,} cases, {len(failures)} failed", flush=True)
    if is_ended:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    if any(codes) and not is_ended:
        raise SystemExit("the runner itself failed; its error is above")


def _run_lane(plan: Plan, lane: int, root: Path, pipe: int) -> None:
    """Run the cases of a lane in this forked process, one line about each, and end it."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that sums up
        end_with_parent()
        adopt_orphans()
        places = Places(root / f"lane-{lane}")
        with os.fdopen(pipe, "w") as told:
            for target, case in plan.cases(lane):
                what, seen = run_one(target, plan.seed, case, root, places)
                told.write(json.dumps((target.name, case, what, vars(seen))) + "\n")
                told.flush()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def print_summary(plan: Plan, tallies: dict[str, Tally], failures: list[Failure], seconds: float) -> None:
    """Print a table of the targets, and for each kind of failure the command that repeats it."""
    print(f"\n{'target':<12} {'cases':>7} {'accepted':>9} {'refused':>8} {'failed':>7} {'slowest':>9} {'memory':>8}")
    for name, tally in tallies.items():
        cases, accepted, refused = tally.kinds.total(), tally.kinds["accepted"], tally.kinds["refused"]
        print(
            f"{name:<12} {cases:>7,} {accepted:>9,} {refused:>8,} {cases - accepted - refused:>7,} "
            f"{tally.slowest[0]:>7.1f} s {tally.largest[0] / 1e6:>5,.0f} MB"
        )
    by_signature: dict[str, list[Failure]] = {}
    for failure in failures:
        by_signature.setdefault(failure.signature, []).append(failure)
    total = sum(tally.kinds.total() for tally in tallies.values())
    print(f"\n{total:,} cases in {seconds:.0f} s, seed {plan.seed}: {len(failures)} failed, {len(by_signature)} kinds")
    for signature, alike in sorted(by_signature.items(), key=lambda pair: -len(pair[1]))[:SHOWN]:
        first = min(alike, key=lambda failure: failure.case)
        print(f"\n{len(alike)} of {plain(signature)}\n  {plain(first.what)[:300]}")
        print("\n".join(f"  {plain(line)[:200]}" for line in first.seen.detail.strip().splitlines()[-3:]))
        print(f"  repeat: {repeat_command(first.target, plan.seed, first.case)}")
    if len(by_signature) > SHOWN:
        print(f"\nand {len(by_signature) - SHOWN} kinds more")


def plain(text: str) -> str:
    """Return text without what could steer a terminal: the inputs are hostile."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def repeat_command(target: str, seed: int, case: int) -> str:
    """Return the command line that runs one case again."""
    return f"python tests/fuzz {target} --seed {seed} --case {case}"
