"""Command line of the fuzzers: all targets for some minutes or rounds, or one case again."""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[0] = str(TESTS)  # in the place of this folder, whose modules are called fuzz.…

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # a process with threads cannot be forked safely
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DS_ACCELERATOR": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    from fuzz.targets import SHARES, is_target

    parser = argparse.ArgumentParser(prog="python tests/fuzz", description="Fuzz what reads strangers' input.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(SHARES)}. Default: all.")
    parser.add_argument("--seed", type=int, default=None, help="Seed of all cases. Default: the time, printed.")
    parser.add_argument("--minutes", type=float, default=None, help="How long to run. Default: 10, without --rounds.")
    parser.add_argument("--rounds", type=int, default=None, help="How often to go through the targets' shares.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="Cases at a time. Default: one per core.")
    parser.add_argument("--case", type=int, default=None, help="Run this case of the one target, and tell all of it.")
    parser.add_argument("--keep", type=Path, default=None, metavar="FOLDER", help="With --case: copy its input here.")
    given = parser.parse_args()
    unknown = [name for name in given.targets if not is_target(name)]
    if unknown:
        parser.error(f"TARGET must be among {', '.join(SHARES)}, got {', '.join(unknown)}")
    if given.case is not None and (len(given.targets) != 1 or given.seed is None):
        parser.error("--case needs one TARGET and --seed")
    return given


def main() -> int:
    """Run what the command line asks for."""
    os.environ.update(ENVIRONMENT)
    given = arguments()
    from fuzz.runner import Plan, run_plan
    from fuzz.targets import SHARES, load_target

    names = given.targets or list(SHARES)
    targets = [(load_target(name), SHARES.get(name, 1)) for name in names]
    if given.case is not None:
        return repeat(targets[0][0], given.seed, given.case, given.keep)
    seed = int(time.time()) if given.seed is None else given.seed
    minutes = 10.0 if given.minutes is None and given.rounds is None else given.minutes
    return run_plan(Plan(targets, seed, given.jobs, given.rounds, None if minutes is None else 60 * minutes))


def repeat(target: object, seed: int, case: int, keep: Path | None) -> int:
    """Run one case again and print everything about it."""
    from fuzz.isolation import Places
    from fuzz.runner import plain, prepared, run_one

    with prepared([target]) as root:
        places = Places(root / "lane")
        what, seen = run_one(target, seed, case, root, places)
        if keep is not None:
            shutil.copytree(places.input, keep, symlinks=True)
    print(plain(f"{what}\n{seen.kind}: {seen.detail}\n{seen.log and f'printed: {seen.log}'}"))
    print(f"{seen.cpu_seconds:.2f} s of CPU, {seen.wall_seconds:.2f} s in all, {seen.bytes / 1e6:,.0f} MB at most")
    return 1 if seen.failed else 0


if __name__ == "__main__":
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 2
        print(ended.code if isinstance(ended.code, str) else "", file=sys.stderr)
    sys.stdout.flush()
    os._exit(code)  # without the libraries' words of farewell
