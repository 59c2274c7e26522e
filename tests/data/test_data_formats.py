"""Records in the formats of other training tools: accepted ones, and messages for unsupported ones."""

from pathlib import Path

import pytest
from training_sets import GOLDEN, record, turns, write_json, write_lines, write_video

from aviot.backbones.llava_video.prompt import SYSTEM
from aviot.data import Corpus, DataConfig, DataError, VideoDataset
from aviot.data.checks import RecordError, VideoFolder
from aviot.data.record import parse_record
from aviot.models import AviotProcessor

TURNS = (("What happens?", "A dog runs."),)


def chat(*texts, roles=("user", "assistant")):
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


def parts(*content):
    return [{"role": "user", "content": list(content)}, {"role": "assistant", "content": "A dog runs."}]


TEXT = {"type": "text", "text": "What happens?"}


@pytest.mark.parametrize(
    "value",
    [
        {"messages": chat("<video>What happens?", "A dog runs."), "videos": ["a.mp4"]},
        {"messages": chat("What happens?", "A dog runs."), "videos": ["a.mp4"]},
        {"messages": chat("What happens?<video>", "A dog runs."), "videos": "a.mp4", "images": [], "tools": None},
        {"messages": chat("<video>\nWhat happens?", "A dog runs.", roles=("human", "gpt")), "videos": ["a.mp4"]},
        {"conversations": turns("<video>What happens?", "A dog runs."), "videos": ["a.mp4"], "system": ""},
        {"conversations": chat("What happens?", "A dog runs."), "messages": None, "video": "a.mp4", "id": None},
        {"messages": [{"from": "User", "value": "What happens?"}, {"role": "model", "value": "A dog runs."}]}
        | {"videos": ["a.mp4"]},
        {"messages": parts({"type": "video", "video": "a.mp4", "fps": 2.0}, TEXT)},
        {"messages": parts(TEXT, {"type": "video", "video": "a.mp4"}), "videos": ["a.mp4"]},
        {"messages": parts({"type": "video"}, TEXT), "videos": ["a.mp4"]},
        {"messages": parts({"video": "a.mp4"}, {"text": "What happens?"})},
        {"messages": parts({"type": "video_url", "video_url": {"url": "a.mp4"}}, TEXT)},
        {"messages": parts({"type": "video", "video": "a.mp4", "text": None}, "What ", "happens?")},
        {"query": "<video>What happens?", "response": "A dog runs.", "videos": ["a.mp4"]},
        {"instruction": "What happens?", "input": "", "output": "A dog runs.", "videos": ["a.mp4"], "history": []},
        {"conversation": [{"human": "<video>What happens?", "assistant": "A dog runs."}], "videos": ["a.mp4"]},
        {"query": "<video>a.mp4</video>What happens?", "response": "A dog runs."},
        {"messages": chat("<video> a.mp4 </video>\nWhat happens?", "A dog runs.")},
        {"messages": parts("<video>a.mp4</video>", TEXT)},
        {"messages": chat("<video></video>What happens?", "A dog runs."), "videos": ["a.mp4"]},
        {"messages": chat("What happens?", "A dog runs."), "videos": ["a.mp4"], "tools": "[]", "objects": " {} "},
        {"messages": chat("What happens?", "A dog runs."), "videos": ["a.mp4"], "label": True},
        *(
            {"messages": chat(f"{mark}What happens?", "A dog runs."), "videos": ["a.mp4"]}
            for mark in (
                "<|vision_start|><|video_pad|><|vision_end|>",
                "<|video_pad|><|video_pad|>\n",
                "<|vision_bos|><|VIDEO|><|vision_eos|>",
                "<|image|>",
                "<VIDEO>",
                "<video/>",
                "<ImageHere>",
            )
        ),
        {"messages": [*chat("What happens?"), {"role": "assistant", "content": "A dog runs.", "weight": 1}]}
        | {"videos": ["a.mp4"]},
        {"messages": [{"role": "user", "content": "What happens?", "loss": False}, chat("", "A dog runs.")[1]]}
        | {"videos": ["a.mp4"]},
    ],
)
def test_formats_mean_the_same(value):
    found = parse_record(value, "7")
    assert (found.id, found.video, found.turns, found.system) == ("7", "a.mp4", TURNS, None)


def test_conversations_of_several_turns():
    expected = (("First?", "One."), ("Second?\nIn short.", "Two."))
    history = {"history": [["<video>First?", "One."]], "videos": ["a.mp4"]}
    values = [
        {"messages": chat("<video>First?", "One.", "Second?\nIn short.", "Two."), "videos": ["a.mp4"]},
        {"query": "Second?\nIn short.", "response": "Two."} | history,
        {"videos": ["a.mp4"], "conversation": [{"human": q, "assistant": a} for q, a in expected]},
        {"instruction": "Second?", "input": "In short.", "output": "Two."} | history,
    ]
    assert [parse_record(value, "1").turns for value in values] == [expected] * 4


@pytest.mark.parametrize(
    "value",
    [
        {"system": "Be brief."},
        {"messages": [{"role": "system", "content": " Be brief.\n"}, *chat("<video>What happens?", "A dog runs.")]},
        {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}]}
        | {"conversations": None, "system": "Be brief."},
        {"messages": [{"from": "system", "value": "Be brief."}], "system": None},
    ],
)
def test_system_texts_are_read(value):
    base = {"messages": chat("<video>What happens?", "A dog runs."), "videos": ["a.mp4"]}
    value = base | value
    if len(value["messages"]) == 1:
        value["messages"] += base["messages"]
    found = parse_record(value, "1")
    assert (found.system, found.turns) == ("Be brief.", TURNS)
    assert found.characters == len("Be brief.What happens?A dog runs.")


def change(**keys):
    return {"messages": chat("<video>What happens?", "A dog runs."), "videos": ["a.mp4"]} | keys


def answer(**keys):
    return change(messages=[*chat("What happens?"), {"role": "assistant", "content": "A dog runs."} | keys])


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (change(videos=["a.mp4", "b.mp4"]), "names 2 videos.*a record has one: join them into one file, or make a"),
        (change(video="b.mp4"), "names 2 videos"),
        (change(messages=parts({"type": "video", "video": "b.mp4"}, TEXT)), "names 2 videos"),
        (change(videos=["a.mp4", "a.mp4"]), "names 2 videos"),
        (change(videos=[["1.png", "2.png"]]), "path of one video as text, got list"),
        (change(videos=[]), 'names no video; expected "video": path, "videos": \\[path\\]'),
        (change(videos=None, images=["a.png"]), "an image record has nothing to compress"),
        (change(images=["a.png"]), r'has images \("images"\); expected one video.*remove the key'),
        (change(tools='[{"name": "f"}]'), r'has tools \("tools"\)'),
        (change(label=False), '"label": false, so its answer is one to avoid'),
        (change(kto_tag=False), '"kto_tag": false, so its answer is one to avoid'),
        (change(videos='["a.mp4"]'), '"videos" must be a list of one path, got text that holds a list'),
        (change(messages=chat("<image>a.png</image>A?", "a")), "turn 1 names an image .'a.png'"),
        (change(messages=chat("<video>b.mp4</video>A?", "a")), "names 2 videos"),
        (change(messages=chat("<video><|video_pad|>A?", "a")), "2 placeholders"),
        (change(messages=chat("A?", "a <|video_pad|>")), "turn 2 has the placeholder"),
        ({"conversation": [{"human": "A?"}], "videos": ["a.mp4"]}, "turn 1 must be from"),
        (change(rejected_response="No."), r'a rejected answer \("rejected_response"\)'),
        (change(conversations=turns("A?", "a")), 'both "conversations" and "messages"; keep the one'),
        (change(system=["x"]), '"system" must be text, got an array'),
        (change(system="<video> Be brief."), '"system" has the placeholder'),
        (change(messages=chat("A?", "a", roles=("assistant", "user"))), "begins with an answer; its first turn must"),
        (change(messages=[*chat("A?", "a"), {"role": "system", "content": "x"}]), "turn 3 must.*system turn comes"),
        (change(messages=[{"role": "system", "content": "x"}]), "turn 1 must be from \"human\" .* got 'system' alone"),
        (
            change(messages=[{"role": "system", "content": "x"}, *chat("A?", "a")], system="y"),
            'both "system" and a system turn, and they differ',
        ),
        (
            change(messages=chat("A?", "a", roles=("user", "narrator"))),
            "turn 2 must be from \"user\".*got 'narrator'",
        ),
        (change(messages=chat("A?", "a", roles=("user", "tool"))), "turn 2 is a tool call \\(\"role\": 'tool'\\)"),
        (change(messages=chat("A?", "a", roles=("observation", "gpt"))), "turn 1 is a tool call"),
        (answer(tool_calls=[{"name": "f"}]), 'turn 2 is a tool call \\("tool_calls"\\).*remove the tool turns'),
        (answer(weight=0), 'turn 2 has "weight": 0; weights of turns are not supported.*Remove the key'),
        (answer(loss=False), 'turn 2 has "loss": False'),
        (answer(loss_scale=0.5), 'turn 2 has "loss_scale": 0.5'),
        (answer(content=None), 'turn 2 must have text as its "content", got NoneType'),
        (
            change(messages=parts({"type": "image", "image": "a.png"}, TEXT)),
            'part 1 of turn 1 must be of "type" "text"',
        ),
        (change(messages=parts({"type": "audio"}, TEXT)), "got 'audio'; images, audio and tool results are not"),
        (change(messages=parts({"type": "text"})), 'part 1 of turn 1 must have text as its "text", got null'),
        (change(messages=parts(5)), "part 1 of turn 1 must be a JSON object, got a number"),
        (
            change(messages=parts({"type": "video", "video_start": 1.0}, TEXT)),
            '"video_start"; a video is trained on whole',
        ),
        (change(messages=parts({"type": "video"}, {"type": "video"}, TEXT)), "2 placeholders"),
        (change(messages=chat("A?", "a", "<video>B?", "b")), "turn 3 has the placeholder"),
        (change(messages=None), "no conversation; expected"),
        (change(messages="hello"), 'no conversation; expected.*got text as "messages"'),
        ({"query": "A?", "videos": ["a.mp4"]}, '"response" must be text, got null'),
        ({"query": "A?", "response": "a", "history": ["x"], "videos": ["a.mp4"]}, '"history" must be a list of'),
        ({"instruction": "A?", "input": 3, "output": "a", "videos": ["a.mp4"]}, '"input" must be text'),
        (change(videos=["data:video/mp4;base64,AAAA"]), "local file, got the address"),
        (change(videos=["file://host/a.mp4"]), "local file, got the address"),
    ],
)
def test_unsupported_content_is_refused_by_name(value, sentence):
    with pytest.raises(RecordError, match=sentence):
        parse_record(value, "1")


@pytest.mark.parametrize(
    ("name", "absolute", "accepted"),
    [
        ("/videos/set/a.mp4", False, True),
        ("/videos/set/frames", False, True),
        ("file:///videos/set/a%20b.mp4", False, True),
        ("/elsewhere/a.mp4", True, True),
        ("/elsewhere/A.MKV", True, True),
        ("/elsewhere/a.mp4", False, False),
        ("/elsewhere/frames", True, False),
        ("/etc/passwd", True, False),
        ("/elsewhere/frames", ("/elsewhere",), True),
        ("/elsewheres/a.mp4", ("/elsewhere",), False),
        ("/videos/set/../../etc/a.mp4", True, False),
        ("../a.mp4", True, False),
    ],
)
def test_absolute_paths(name, absolute, accepted):
    folder = VideoFolder(Path("/videos"), absolute)
    if accepted:
        assert folder.check(name) == name.removeprefix("file://").replace("%20", " ")
        return
    with pytest.raises(RecordError, match=r"set data\.(video_root|absolute_paths)"):
        folder.check(name)


def test_a_link_to_the_video_folder_and_its_real_path_are_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert VideoFolder(tmp_path / "link", False).check(f"{tmp_path}/real/a.mp4") == f"{tmp_path}/real/a.mp4"


def test_the_setting_decides_which_records_are_used(tmp_path):
    """A file has one index per setting: records refused under one are not refused under another."""
    (tmp_path / "set").mkdir()
    write_video(tmp_path / "far" / "a.mp4")
    path = write_json(tmp_path / "set" / "a.json", [change(videos=[str(tmp_path / "far" / "a.mp4")])])

    def open_with(absolute):
        return Corpus.open(DataConfig(str(path), absolute_paths=absolute, index_folder=str(tmp_path / "index")))

    assert open_with(True)[0].video == open_with([str(tmp_path)])[0].video == tmp_path / "far" / "a.mp4"
    with pytest.raises(DataError, match=r"absolute_paths is false.*set data\.video_root to a folder above it, or data"):
        open_with(False)
    with pytest.raises(DataError, match=r"a folder of data\.absolute_paths"):
        open_with([str(tmp_path / "set")])
    assert len(Corpus.open(DataConfig(str(path), str(tmp_path), absolute_paths=False, index_folder=str(tmp_path)))) == 1


@pytest.mark.parametrize("value", [3, ["relative"], [3]])
def test_invalid_settings_are_refused(value):
    with pytest.raises(ValueError, match="absolute_paths must"):
        DataConfig("a.json", absolute_paths=value)


def test_a_system_text_replaces_the_default_of_the_prompt(tmp_path):
    processor = AviotProcessor.from_pretrained(GOLDEN)
    write_video(tmp_path / "a.mp4")
    path = write_lines(tmp_path / "a.jsonl", [change(id="1", system="You speak of dogs."), change(id="2")])
    config = DataConfig(str(path), index_folder=str(tmp_path / "index"))
    data = VideoDataset(Corpus.open(config), processor, config)
    found = {data[position].id: data[position].tokens for position in range(2)}
    own, default = (processor.tokenizer.decode([token for token in found[id].ids if token >= 0]) for id in "12")
    assert own.startswith("<|im_start|>system\nYou speak of dogs.<|im_end|>\n<|im_start|>user\n")
    assert default == own.replace("You speak of dogs.", SYSTEM)
    supervised = [[label for label in found[id].labels if label >= 0] for id in "12"]
    assert supervised[0] == supervised[1]
    with pytest.raises(ValueError, match=r"the system text holds <\|im_end\|>"):
        processor.encode_conversation(TURNS, 1.0, (0.0,), "x<|im_end|>")


def test_a_set_may_mix_formats(tmp_path):
    records = [record(0), change(), {"query": "A?", "response": "a", "videos": ["b.mp4"]}]
    path = write_json(tmp_path / "a.json", records)
    corpus = Corpus.open(DataConfig(str(path), index_folder=str(tmp_path / "index")))
    assert [corpus[i].record.video for i in range(3)] == ["academic_source/0.mp4", "a.mp4", "b.mp4"]
