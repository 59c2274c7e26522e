"""Lists of files of records and the selections of each."""

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_sets import record, write_json, write_lines

from aviot.data import Corpus, DataConfig, DataError
from aviot.data.shuffle import Selection


def open_corpus(path, **changes) -> Corpus:
    return Corpus.open(DataConfig(str(path), index_folder=str(path.parent / "index"), **changes))


def ids(corpus: Corpus) -> list[str]:
    return [corpus[i].record.id for i in range(len(corpus))]


@pytest.fixture
def folder(tmp_path):
    write_json(tmp_path / "a.json", [record(i) for i in range(8)])
    (tmp_path / "sub").mkdir()
    write_lines(tmp_path / "sub" / "b.jsonl", [record(100 + i) for i in range(5)])
    return tmp_path


def listing(folder, *entries: str):
    path = folder / "mix.yaml"
    path.write_text("datasets:\n" + "".join(f"  - {entry}\n" for entry in entries))
    return path


def test_sources_follow_each_other(folder):
    path = listing(
        folder,
        "{json_path: a.json, sampling_strategy: 'first:2'}",
        "{json_path: sub/b.jsonl, sampling_strategy: end:40%}",
    )
    corpus = open_corpus(path)
    assert ids(corpus) == ["r0", "r1", "r103", "r104"]
    assert corpus[3].video == folder / "sub" / "academic_source" / "104.mp4"
    assert open_corpus(path, video_root="/videos")[3].video.as_posix() == "/videos/academic_source/104.mp4"


def test_a_source_may_have_its_own_videos(folder):
    path = listing(folder, "{json_path: a.json, video_root: here}")
    assert open_corpus(path, video_root="/videos")[0].video == folder / "here" / "academic_source" / "0.mp4"


def test_random_selections_are_determined_by_the_seed(folder):
    path = listing(folder, "{json_path: a.json, sampling_strategy: 'random:4'}", "{json_path: sub/b.jsonl}")
    chosen = ids(open_corpus(path, seed=1))
    assert chosen == ids(open_corpus(path, seed=1))
    assert len(set(chosen)) == 9
    assert {tuple(ids(open_corpus(path, seed=seed))[:4]) for seed in range(5)} > {tuple(chosen[:4])}


def test_the_fingerprint_is_that_of_content_and_parts(folder, tmp_path_factory):
    first = open_corpus(listing(folder, "{json_path: a.json, sampling_strategy: 'first:2'}")).fingerprint
    assert first != open_corpus(listing(folder, "{json_path: a.json, sampling_strategy: 'end:2'}")).fingerprint
    other = tmp_path_factory.mktemp("other")
    write_json(other / "renamed.json", [record(i) for i in range(8)])
    again = open_corpus(listing(other, "{json_path: renamed.json, sampling_strategy: 'first:2'}"))
    assert again.fingerprint == first


@pytest.mark.parametrize(
    ("strategy", "count"),
    [("all", 10), ("first:3", 3), ("end:25%", 3), ("random:10%", 1), ("random:0.5%", 1), ("first:100%", 10)],
)
def test_amounts(strategy, count):
    assert Selection.parse(strategy, "here").count(10, "a.json") == count


def test_asking_for_more_records_than_there_are_takes_all_with_a_warning(caplog):
    assert Selection.parse("first:99", "here").count(10, "a.json") == 10
    assert "a.json has 10 records, fewer than the 99" in caplog.text


@pytest.mark.parametrize(
    "strategy",
    ["", "some", "first", "first:", "first:-1", "first:0", "end:0%", "end:101%", "random:ten", 7, None, "all:3"],
)
def test_invalid_strategies(strategy):
    with pytest.raises(DataError, match=r"m\.yaml, dataset 1: sampling_strategy"):
        Selection.parse(strategy, "m.yaml, dataset 1")


@given(st.text())
def test_any_text_is_a_strategy_or_refused(text):
    with suppress(DataError):
        assert 1 <= Selection.parse(text, "here").count(1000, "a.json") <= 1000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must hold `datasets:"),
        ("- a\n", "must hold `datasets:"),
        ("datasets: []\n", "lists no datasets"),
        ("datasets: [a.json]\n", "dataset 1 must be a mapping"),
        ("datasets: [{json_path: 3}]\n", "json_path must be a path"),
        ("datasets: [{sampling_strategy: all}]\n", "json_path must be a path"),
        ("datasets: [{json_path: a.json, weight: 3}]\n", "unknown key 'weight'"),
        ("datasets: [{json_path: a.json, json_path: b.json}]\n", "twice"),
        ("datasets: [{json_path: none.json}]\n", "no records file .*none.json"),
        ("datasets: &a [*a]\n", "line 1: aliases"),
        ("a: &a [x, x]\nb: &b [*a, *a]\ndatasets: [*b, *b]\n", "line 2: aliases"),
        ("datasets: !!python/object/apply:os.system [echo]\n", "not YAML of plain values"),
        ("datasets: [", "not YAML of plain values"),
        ("datasets: " + "[" * 500_000, "nested more than 8 deep"),
        ("datasets: \x00", "not YAML of plain values"),
        ("datasets: [{json_path: a.json, video_root: 2020-02-30}]", "not YAML of plain values"),
        ("{[]: 1}", "not YAML of plain values"),
        ("x" * 2**21, "larger than 1,048,576 bytes"),
    ],
)
def test_invalid_manifests(folder, content, message):
    path = folder / "bad.yaml"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        open_corpus(path)


def test_a_manifest_must_be_readable(folder):
    with pytest.raises(DataError, match="cannot be read"):
        open_corpus(folder / "none.yaml")
    os.symlink(folder / "loop.yml", folder / "loop.yml")
    with pytest.raises(DataError, match="cannot be read"):
        open_corpus(folder / "loop.yml")
    (folder / "bytes.yml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(DataError, match="not YAML of plain values"):
        open_corpus(folder / "bytes.yml")
