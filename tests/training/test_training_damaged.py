"""Damaged run folders: none is resumed silently, and each can be resumed from its newest intact checkpoint."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import config, settings
from typer.testing import CliRunner

from aviot.cli import app
from aviot.training import saving
from aviot.training.distributed import weights_only_loading
from aviot.training.identity import ResumeError
from aviot.training.manifest import read_manifest
from aviot.training.resuming import UnfitCheckpoint, find_start_point
from aviot.training.run import train

NEWEST, BEFORE = "checkpoint-4", "checkpoint-3"


@pytest.fixture
def folder(run, tmp_path):
    """Return a copy of a finished run with the checkpoints of steps 3 and 4."""
    return shutil.copytree(run[1].parent, tmp_path / "run")


@pytest.fixture(scope="session")
def other(made):
    """Return the last checkpoint of a run with the same settings and data in another folder."""
    return train(config(made, output=str(made / "other"), saving={"keep": 1, "every": 4}))


def flip(path, place=0.7):
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def edit(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def swap(first, second):
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)


def link(path, target):
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def forge(checkpoint, name):
    """Remove a file, and write a consistent manifest without it."""
    (checkpoint / name).unlink()
    manifest = read_manifest(checkpoint)
    files = {listed: digest for listed, digest in manifest.files.items() if listed != name}
    (checkpoint / "manifest.json").write_bytes(replace(manifest, files=files).to_bytes())


def empty(path):
    shutil.rmtree(path)
    path.mkdir()


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def half_written(run):
    (run / "checkpoint-5").mkdir()
    shutil.copy(run / NEWEST / "model.safetensors", run / "checkpoint-5")


DAMAGE = {
    # name: (damage to the run folder and its newest checkpoint, expected message)
    "optimizer gone": (lambda run, c: (c / "optimizer.pt").unlink(), "optimizer.pt is missing"),
    "schedule gone": (lambda run, c: (c / "scheduler.pt").unlink(), "scheduler.pt is missing"),
    "random state gone": (lambda run, c: (c / "rng_state.pth").unlink(), "rng_state.pth is missing"),
    "weights gone": (lambda run, c: (c / "model.safetensors").unlink(), "model.safetensors is missing"),
    "state gone": (lambda run, c: (c / "trainer_state.json").unlink(), "trainer_state.json is missing"),
    "settings gone": (lambda run, c: (c / "training.json").unlink(), "training.json is missing"),
    "tokenizer gone": (lambda run, c: (c / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "weights flipped": (lambda run, c: flip(c / "model.safetensors"), "model.safetensors was changed"),
    "last weight flipped": (lambda run, c: flip(c / "model.safetensors", 0.999999), "model.safetensors was changed"),
    "optimizer flipped": (lambda run, c: flip(c / "optimizer.pt"), "optimizer.pt was changed"),
    "schedule flipped": (lambda run, c: flip(c / "scheduler.pt"), "scheduler.pt was changed"),
    "random state flipped": (lambda run, c: flip(c / "rng_state.pth"), "rng_state.pth was changed"),
    "optimizer cut": (lambda run, c: cut(c / "optimizer.pt"), "optimizer.pt has 241,701 bytes and was written with"),
    "state cut": (lambda run, c: cut(c / "trainer_state.json"), "trainer_state.json has"),
    "schedule empty": (lambda run, c: (c / "scheduler.pt").write_bytes(b""), "scheduler.pt has 0 bytes"),
    "optimizer longer": (lambda run, c: (c / "optimizer.pt").open("ab").write(b"0"), "optimizer.pt has"),
    "another's optimizer": (lambda run, c: shutil.copy(run / BEFORE / "optimizer.pt", c), "optimizer.pt was changed"),
    "another's schedule": (lambda run, c: shutil.copy(run / BEFORE / "scheduler.pt", c), "scheduler.pt was changed"),
    "another's state": (lambda run, c: shutil.copy(run / BEFORE / "trainer_state.json", c), "trainer_state.json"),
    "files swapped": (lambda run, c: swap(c / "scheduler.pt", c / "rng_state.pth"), "rng_state.pth has"),
    "step edited": (lambda run, c: edit(c / "trainer_state.json", lambda v: v.update(global_step=2)), "trainer_state"),
    "settings edited": (lambda run, c: edit(c / "training.json", lambda v: v.update(seed=3)), "training.json has"),
    "config edited": (lambda run, c: edit(c / "config.json", lambda v: v.update(new=1)), "config.json has"),
    "manifest gone": (lambda run, c: (c / "manifest.json").unlink(), "has no manifest.json"),
    "manifest cut": (lambda run, c: cut(c / "manifest.json"), "manifest.json: it was truncated or changed"),
    "manifest nested": (
        lambda run, c: (c / "manifest.json").write_text("[" * 10**6),
        "manifest.json: it was truncated or changed",
    ),
    "manifest of another kind": (
        lambda run, c: (c / "manifest.json").write_text("[1]"),
        "manifest.json: it was truncated or changed",
    ),
    "manifest edited": (lambda run, c: edit(c / "manifest.json", lambda v: v["files"].popitem()), "it was changed"),
    "manifest forged": (lambda run, c: forge(c, "tokenizer.json"), "manifest.json is not the one that the run wrote"),
    "manifest forged, optimizer": (lambda run, c: forge(c, "optimizer.pt"), "optimizer.pt is missing"),
    "manifest of another step": (lambda run, c: shutil.copy(run / BEFORE / "manifest.json", c), "written at step 3"),
    "weights linked": (
        lambda run, c: link(c / "model.safetensors", run / BEFORE / "model.safetensors"),
        "model.safetensors is a link",
    ),
    "adapter beside": (lambda run, c: (c / "adapter_config.json").write_text("{}"), "adapter_config.json was not"),
    "optimizer beside": (lambda run, c: shutil.copy(c / "optimizer.pt", c / "optimizer.bin"), "optimizer.bin was not"),
    "index beside": (lambda run, c: (c / "model.safetensors.index.json").write_text("{}"), "index.json was not"),
    "random state beside": (lambda run, c: shutil.copy(c / "rng_state.pth", c / "rng_state_1.pth"), "rng_state_1.pth"),
    "code beside": (lambda run, c: (c / "tokenizer.py").write_text("1 / 0"), "tokenizer.py was not written by the run"),
    "shards beside": (lambda run, c: (c / "global_step9").mkdir(), "global_step9 was not written by the run"),
    "link beside": (lambda run, c: link(c / "notes", run), "notes is a link that the run did not create"),
    "escape codes beside": (lambda run, c: (c / "\x1b[31m.json").touch(), r"'\x1b[31m.json' was not written"),
    "folder for a file": (
        lambda run, c: ((c / "optimizer.pt").unlink(), (c / "optimizer.pt").mkdir()),
        "not a regular",
    ),
    "pipe for a file": (lambda run, c: pipe(c / "training.json"), "training.json is not a regular file"),
    "pipe for the manifest": (lambda run, c: pipe(c / "manifest.json"), "manifest.json: it is not a regular file"),
    "emptied": (lambda run, c: empty(c), f"{NEWEST} is damaged: config.json is missing"),
    "newest gone": (lambda run, c: shutil.rmtree(c), f"{NEWEST} was written and no longer exists"),
    "renamed": (lambda run, c: c.rename(run / "checkpoint-9"), "checkpoint-9 is damaged: it was written at step 4"),
    "copied to a later step": (
        lambda run, c: shutil.copytree(c, run / "checkpoint-5"),
        "checkpoint-5 is damaged: it was written at step 4",
    ),
    "empty folder": (lambda run, c: (run / "checkpoint-9").mkdir(), "checkpoint-9 is damaged"),
    "file by its name": (
        lambda run, c: (run / "checkpoint-9").touch(),
        "checkpoint-9 is damaged: it is not a directory",
    ),
    "link by its name": (lambda run, c: (run / "checkpoint-9").symlink_to(c), "checkpoint-9 is damaged: it is not a"),
    "half written": (lambda run, c: half_written(run), "checkpoint-5 is damaged: config.json is missing"),
    "run.json edited": (
        lambda run, c: edit(run / "run.json", lambda v: v[0].update(examples=1)),
        "run.json was changed",
    ),
    "run.json with another id": (lambda run, c: edit(run / "run.json", lambda v: v[0].update(run="x")), "run.json was"),
    "run.json cut": (lambda run, c: cut(run / "run.json"), "run.json cannot be read: it was truncated or changed"),
    "run.json of another kind": (
        lambda run, c: (run / "run.json").write_text("{}"),
        "is not the list of a run's",
    ),
    "run.json gone": (lambda run, c: (run / "run.json").unlink(), "run.json is missing"),
    "run.json of 4 GB": (lambda run, c: os.truncate(run / "run.json", 4 * 10**9), "run.json cannot be read"),
    "ledger of 4 GB": (lambda run, c: os.truncate(run / "checkpoints.json", 4 * 10**9), "checkpoints.json cannot be"),
    "ledger cut": (lambda run, c: cut(run / "checkpoints.json"), "checkpoints.json cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_none_is_resumed_silently(run, folder, name):
    """The check loads nothing, and its message names the newest intact checkpoint."""
    damage, message = DAMAGE[name]
    damage(folder, folder / NEWEST)
    with pytest.raises(ResumeError) as refusal:
        find_start_point(folder, resume=True)
    assert message in str(refusal.value)
    start = find_start_point(folder, resume="last-good")
    assert start.checkpoint == folder / (NEWEST if same_files(folder / NEWEST, run[1]) else BEFORE)
    assert str(refusal.value).endswith(f"the newest intact checkpoint is {start.checkpoint}")


def same_files(one, two):
    found = [{path.name: path.read_bytes() for path in place.glob("*") if path.is_file()} for place in (one, two)]
    return found[0] == found[1] and len(list(one.glob("*"))) == len(list(two.glob("*")))


@pytest.mark.parametrize("name", ["optimizer gone", "weights flipped", "run.json cut"])
def test_the_command_refuses_and_resumes_from_the_newest_intact_checkpoint(run, made, folder, name):
    DAMAGE[name][0](folder, folder / NEWEST)
    flip(folder / NEWEST / "config.json")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    refused = train_command(made, folder, "--resume")
    assert refused.exit_code == 2
    assert DAMAGE[name][1] in refused.stderr.replace("\n", "")
    assert "--resume=last-good or --resume-from" in refused.stderr.replace("\n", "")
    assert "Traceback" not in refused.stderr
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert {path for path, when in after.items() if before.get(path) != when} <= {folder, folder / "run.lock"}
    done = train_command(made, folder, "--resume=last-good")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.strip() == str(folder / NEWEST)
    assert same_weights(folder / NEWEST, run[1])
    again = train_command(made, folder, "--resume")
    assert again.exit_code == 0, again.stderr


@pytest.mark.parametrize("name", ["README.md", "notes.txt", ".DS_Store", ".cache/hub/x.json", "config.json.bak"])
def test_other_files_in_a_checkpoint_are_ignored(folder, name):
    (folder / NEWEST / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / NEWEST / name).write_text("mine")
    assert find_start_point(folder, resume=True).step == 4


def test_a_kill_before_the_ledger_is_written_is_not_damage(folder):
    edit(folder / "checkpoints.json", lambda known: known.pop("4"))
    assert find_start_point(folder, resume=True).step == 4
    (folder / "checkpoints.json").unlink()
    assert find_start_point(folder, resume=True).step == 4


def test_a_folder_put_back_to_an_earlier_state_resumes_there_and_says_so(run, made, folder):
    """Without the newest checkpoint and its entry it is the folder of a run that was killed before it wrote them."""
    shutil.rmtree(folder / NEWEST)
    edit(folder / "checkpoints.json", lambda known: known.pop("4"))
    done = train_command(made, folder, "--resume")
    assert done.exit_code == 0, done.stderr
    assert "resuming after step 3 of 4" in done.stderr
    assert same_weights(folder / NEWEST, run[1])


def test_adapters_are_resumed_with_their_base_model_only(made, tmp_path):
    shutil.copytree(made / "start", tmp_path / "start")
    adapted = {"lora": {"rank": 2}, "optimization": {"steps": 1, "global_batch": 1}}
    chosen = config(made, model=str(tmp_path / "start"), output=str(tmp_path / "run"), **adapted)
    last = train(chosen)
    assert train(chosen, resume=True) == last
    flip(tmp_path / "start" / "model.safetensors")
    with pytest.raises(ResumeError, match="cannot be resumed with other settings: model sha256 was"):
        train(chosen, resume=True)


def test_a_checkpoint_of_another_run_is_refused(folder, other):
    """Also if it is intact and has the same settings, data and step, with or without the run's ledger."""
    shutil.rmtree(folder / NEWEST)
    shutil.copytree(other, folder / NEWEST)
    with pytest.raises(UnfitCheckpoint, match=r"manifest\.json is not the one that the run wrote"):
        find_start_point(folder, resume=True)
    (folder / "checkpoints.json").unlink()
    message = r"is damaged: it belongs to another run; the newest intact checkpoint is .*checkpoint-3"
    with pytest.raises(UnfitCheckpoint, match=message):
        find_start_point(folder, resume=True)
    with pytest.raises(ResumeError, match=r"belongs to another run than .*; choose another output to continue from it"):
        find_start_point(folder, resume=other)
    assert find_start_point(folder, resume="last-good").checkpoint == folder / BEFORE


def test_a_checkpoint_of_another_folder_is_resumed_in_a_new_one(run, made, folder, tmp_path):
    chosen = config(made, output=str(tmp_path / "moved"), saving={"every": 1, "keep": 1})
    assert same_weights(train(chosen, resume=folder / BEFORE), run[1])
    assert list(saving.checkpoints(tmp_path / "moved")) == [4]
    assert sorted(saving.checkpoints(folder)) == [3, 4]
    shutil.rmtree(tmp_path / "moved" / NEWEST)
    (tmp_path / "moved" / "checkpoints.json").unlink()
    with pytest.raises(ResumeError, match=r"holds no checkpoint, and its run was resumed from .*checkpoint-3"):
        find_start_point(tmp_path / "moved", resume=True)


def make_old(folder):
    """Change a run to the format of earlier versions: no manifests, no ledger, no ids."""
    for path in (*folder.glob("*/manifest.json"), folder / "checkpoints.json"):
        path.unlink()
    edit(folder / "run.json", lambda starts: [start.pop("run") for start in starts])


def test_a_checkpoint_of_an_earlier_version_is_resumed_by_its_path(run, made, folder, caplog):
    make_old(folder)
    shutil.rmtree(folder / NEWEST)
    refused = train_command(made, folder, "--resume")
    assert refused.exit_code == 2
    printed = refused.stderr.replace("\n", "")
    assert "has no manifest.json: an earlier version wrote it, or it is incomplete; it cannot be verified" in printed
    assert f"--resume-from {folder / BEFORE} uses it without verification" in printed
    with pytest.raises(ResumeError, match="holds no intact checkpoint"):
        find_start_point(folder, resume="last-good")
    done = train_command(made, folder, "--resume-from", str(folder / BEFORE))
    assert done.exit_code == 0, done.stderr
    assert "it is used without verification" in caplog.text
    assert same_weights(folder / NEWEST, run[1])
    assert find_start_point(folder, resume=True).checkpoint == folder / NEWEST


@pytest.mark.parametrize(
    "name",
    ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "training.json", "model.safetensors"],
)
@pytest.mark.parametrize("damage", [cut, Path.unlink])
def test_a_damaged_checkpoint_of_an_earlier_version_is_refused(folder, name, damage):
    make_old(folder)
    damage(folder / BEFORE / name)
    with pytest.raises(UnfitCheckpoint, match=f"checkpoint-3 is damaged: .*{name}"):
        find_start_point(folder, resume=folder / BEFORE)


class Malicious:
    """An object whose pickle makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_malicious_checkpoint_runs_no_code(made, folder, tmp_path, name):
    make_old(folder)
    torch.save(Malicious(tmp_path / "ran"), folder / BEFORE / name)
    shutil.rmtree(folder / NEWEST)
    refused = train_command(made, folder, "--resume-from", "checkpoint-3")
    assert refused.exit_code == 2
    assert "checkpoint-3 could not be loaded (UnpicklingError: Weights only load failed" in refused.stderr
    assert not (tmp_path / "ran").exists()


def test_a_malicious_shard_index_runs_no_code(tmp_path, monkeypatch):
    """Torch unpickles the index itself; a real index is still loaded."""
    import pickle

    from torch.distributed.checkpoint import FileSystemReader, load, save

    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    state = {"weight": torch.arange(3), "number": 7}
    save(state, checkpoint_id=tmp_path / "shards", no_dist=True)
    with weights_only_loading():
        found = {"weight": torch.zeros(3, dtype=torch.int64), "number": 0}
        load(found, checkpoint_id=tmp_path / "shards", no_dist=True)
        assert found["number"] == 7
        assert torch.equal(found["weight"], state["weight"])
        (tmp_path / "shards" / ".metadata").write_bytes(pickle.dumps(Malicious(tmp_path / "ran")))
        with pytest.raises(pickle.UnpicklingError, match=r"the shard index contains posix\.mkdir"):
            FileSystemReader(tmp_path / "shards").read_metadata()
    assert not (tmp_path / "ran").exists()
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_wrong_values_of_the_options_are_rejected(made, folder):
    for words, message in (
        (["--resume=first"], "--resume=first: expected --resume, --resume=last-good or --resume-from CHECKPOINT"),
        (["--resume=last-good", "--resume-from", "x"], "selects a checkpoint and --resume-from names one"),
        (["--resume-from", "nowhere"], "nowhere is not a directory; name a checkpoint, such as"),
    ):
        refused = train_command(made, folder, *words)
        assert refused.exit_code == 2
        assert message in refused.stderr.replace("\n", "")


def test_the_command_says_when_to_resume(made, folder, tmp_path):
    (tmp_path / "new").mkdir()
    for output, words, message in (
        (folder, [], f"{folder} holds {NEWEST}; add --resume to continue from it, or choose another output"),
        (tmp_path / "new" / "run", ["--resume"], "holds no run to resume; remove --resume to start one"),
    ):
        refused = train_command(made, output, *words)
        assert refused.exit_code == 2
        assert message in refused.stderr.replace("\n", "")


def train_command(made, folder, *words):
    path = folder.parent / "config.yaml"
    path.write_text(json.dumps(settings(made, output=str(folder), saving={"keep": 2, "every": 1})))
    return CliRunner().invoke(app, ["train", "--config", str(path), *words])


def same_weights(one, two):
    return (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
