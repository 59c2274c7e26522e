"""Parsing of items, and the messages for records that are refused."""

import json
import os

import pytest
from evaluation_sets import write_items

from aviot.backbones.llava_video.prompt import question_range
from aviot.evaluation.fields import ItemError
from aviot.evaluation.item import Instructions, item_prompt, parse_item
from aviot.evaluation.reading import read_items

OPEN = {"video": "v.mp4", "question": "Which colour?"}
CHOICE = OPEN | {"options": ["red", "blue", "green"]}


@pytest.mark.parametrize(
    ("answer", "right"),
    [("B", 1), ("b", 1), ("(B)", 1), ("B.", 1), ("Ｂ", 1), (1, 1), (0, 0), ("1", 1), ("blue", 1), ("The Blue.", 1)],
)
def test_an_answer_by_letter_number_or_text(answer, right):
    assert parse_item(CHOICE | {"answer": answer}, "1").right == right


@pytest.mark.parametrize(
    ("options", "answer", "reason"),
    [
        (["red", "blue"], None, "it has no answer"),
        (["red", "blue"], " ", "it has no answer"),
        (["red", "blue"], "C", "none of the 2 options"),
        (["red", "blue"], 2, "no option's number, 0 to 1"),
        (["red", "blue"], "green", "none of the 2 options"),
        (["red", "blue"], True, "letter, number or text"),
        (["B", "A"], "A", "more than one option"),
        (["red", "red"], "red", "more than one option"),
        (None, None, "it has no answer"),
        (None, [], "must be text"),
        (None, {"a": 1}, "must be text"),
    ],
)
def test_an_item_without_usable_answer_is_kept_with_its_reason(options, answer, reason):
    item = parse_item(OPEN | {"options": options, "answer": answer}, "1")
    assert not item.has_answer
    assert reason in item.problem


def test_a_letter_that_no_option_has_is_a_text():
    assert parse_item(OPEN | {"options": ["x", "y"], "answer": "x"}, "1").right == 0


def test_a_video_column_of_a_dataset():
    assert parse_item(OPEN | {"video": {"path": "v.mp4", "bytes": None}}, "1").video == "v.mp4"


def test_options_in_other_forms():
    assert parse_item(OPEN | {"options": {"B": "blue", "A": "red"}}, "1").options == ("red", "blue")
    assert parse_item(OPEN | {"options": ["A. red", "B. blue"]}, "1").options == ("red", "blue")
    assert parse_item(OPEN | {"options": ["A. red", "C. blue"]}, "1").options == ("A. red", "C. blue")
    assert parse_item(OPEN | {"options": [1, 2.5]}, "1").options == ("1", "2.5")
    assert parse_item(OPEN | {"answer": ["grey", "gray"]}, "1").answers == ("grey", "gray")
    assert parse_item(OPEN | {"answer": 3}, "1").answers == ("3",)


TWO = ("x", "y")


@pytest.mark.parametrize(
    "options",
    [
        {"options": ["x", "y"]},
        {"choices": ["x", "y"]},
        {"candidates": ["x", "y"]},
        {"option": ["x", "y"]},
        {"answer_choices": ["x", "y"]},
        {"possible_answers": ["x", "y"]},
        {"options": [], "choices": ["x", "y"]},
        {"options": None, "candidates": ["x", "y"]},
        {"options": ["x", "y"], "choices": ["x", "y"]},
        {"choices": {"A": "x", "B": "y"}},
        {"choices": {"b": "y", "a": "x"}},
        {"choices": {"A": "x", "B": "y", "C": None}},
        {"choices": {"1": "x", "2": "y"}},
        {"choices": {"text": ["x", "y"], "label": ["A", "B"]}},
        {"choices": [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}]},
        {"choices": ["A. x", "B. y"]},
        {"choices": ["A) x", "B) y"]},
        {"choices": ["(A) x", "(B) y"]},
        {"choices": ["[A] x", "[B] y"]},
        {"choices": ["a: x", "b: y"]},
        {"choices": ["A - x", "B - y"]},
        {"choices": ["Ａ、x", "Ｂ、y"]},
        {"choices": ["（Ａ）x", "（Ｂ）y"]},
        {"choices": ["1. x", "2. y"]},
        {"choices": ["(1) x", "(2) y"]},
        {"option_a": "x", "option_b": "y", "option_c": None},
        {"option0": "x", "option1": "y"},
        {"choice_1": "x", "choice_2": "y"},
        {"a0": "x", "a1": "y", "a2": ""},
        {"A": "x", "B": "y", "C": float("nan")},
    ],
)
def test_options_under_every_name_and_in_every_form(options):
    item = parse_item(OPEN | options | {"answer": "B"}, "1")
    assert (item.options, item.right) == (TWO, 1)
    assert not item.columns
    assert parse_item(OPEN | options | {"answer": "B. y"}, "1").right == 1
    assert parse_item(OPEN | options | {"answer": "x"}, "1").right == 0


@pytest.mark.parametrize(
    "answer",
    [
        "B", "b", "(B)", "(b)", "[B]", "B.", "B)", "B:", " B ", "Ｂ", "B. y", "B) y", "(B) y", "b) y", "[B] y", "B: y",
        "B, y", "B - y", "B y", "B.y", "（B）y", "Ｂ．y", "B、y", "y", "Y.", "Option B", "option b", "Option (B)",
        "Option B: y", "Choice B", "Answer: B", "The answer is B", "The correct answer is B. y", "option_b",
        1, 1.0, "1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [["x", "y"], ["A. x", "B. y"], ["(A) x", "(B) y"], {"A": "x", "B": "y"}])
def test_an_answer_by_label_text_or_both(options, answer):
    if isinstance(options, dict) and not (isinstance(answer, str) and answer != "1"):
        return  # an object has no order to count in
    assert parse_item(OPEN | {"options": options, "answer": answer}, "1").right == 1


@pytest.mark.parametrize(
    ("record", "right"),
    [
        ({"options": [0, 1, 2], "answer": 1}, 1),
        ({"options": [10, 20, 30], "answer": 20}, 1),
        ({"options": [10, 20, 30], "answer": 1}, 1),
        ({"options": [10, 20, 30], "answer": 1.0}, 1),
        ({"options": [1, 2, 3, 4], "answer": "2"}, 1),
        ({"options": [1, 2, 3, 4], "answer": "B"}, 1),
        ({"options": [1, 2, 3, 4], "answer": 4}, 3),
        ({"options": ["x", "2"], "answer": "2"}, 1),
        ({"options": [1.5, 2.5], "answer": 2.5}, 1),
        ({"options": ["False", "True"], "answer": True}, 1),
        ({"options": {"1": "x", "2": "y"}, "answer": 2}, 1),
        ({"options": {"0": "x", "1": "y"}, "answer": "1"}, 1),
        ({"options": ["0. x", "1. y"], "answer": 1}, 1),
        ({"options": ["x", "y"], "answer_idx": 1}, 1),
        ({"options": ["x", "y"], "answer_idx": "B"}, 1),
        ({"options": ["x", "y"], "answer_index": "1", "answer": "y"}, 1),
        ({"options": ["x", "y"], "answer_id": 1, "answer": None}, 1),
        ({"options": ["x", "y"], "answer_id": 5813, "answer": "B"}, 1),
        ({"options": ["x", "y"], "correct_choice": 1}, 1),
        ({"options": ["x", "y"], "answerKey": "B"}, 1),
        ({"options": ["x", "y"], "correct_answer": "y"}, 1),
        ({"options": [3, 4, 5], "answer_index": 1}, 1),
        ({"options": ["1. x", "2. y", "3. z"], "answer_index": 3}, 2),
        ({"options": ["1. x", "2. y", "3. z"], "answer_index": 1, "answer": "y"}, 1),
        ({"options": ["1. x", "2. y", "3. z"], "answer_index": 2, "answer": "y"}, 1),
        ({"options": ["0. x", "1. y"], "answer_index": 1}, 1),
        ({"options": ["x", "y"], "answer": ["y"]}, 1),
    ],
)
def test_numbers_and_index_keys_with_one_meaning(record, right):
    assert parse_item(OPEN | record, "1").right == right


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"options": [1, 2, 3, 4], "answer": 2}, "two meanings: '3' .as an index from 0. or '2' .as its value.*'B'"),
        ({"options": ["1", "2", "3"], "answer": 1}, "two meanings: '2' .as an index from 0. or '1'"),
        ({"options": ["two", "three", "four"], "answer": 2}, "two meanings: 'four' .* or 'two'"),
        ({"options": [1, 2, 3, 4], "answer": 2.0}, "two meanings"),
        ({"options": ["1. x", "2. y", "3. z"], "answer": 2}, "two meanings: 'z' .as an index.* or 'y' .as its label"),
        ({"options": ["1. x", "2. y", "3. z"], "answer": "1"}, "two meanings"),
        ({"option1": "x", "option2": "y", "answer": 1}, "two meanings"),
        ({"options": {"1": "2", "2": "1"}, "answer": "1"}, "two meanings"),
        ({"options": [1, 2, 3], "correct_choice": 1}, "two meanings"),
        ({"options": ["x", "y"], "answer": "B. x"}, "contradicts itself: option B is 'y', and 'x' is the text of opt"),
        ({"options": ["A. x", "B. y"], "answer": "(A) y"}, "contradicts itself"),
        ({"options": ["x", "y"], "answer": "B. z"}, "contradicts itself: option B is 'y', and 'z' is no option's text"),
        ({"options": ["1. x", "2. y"], "answer": "1. y"}, "contradicts itself"),
        ({"options": ["x", "y"], "answer": "y", "answer_idx": 0}, "'answer' means 'y', 'answer_idx' means 'x'"),
        ({"options": ["x", "y"], "answer": "A", "correct_answer": "B"}, "answers that differ"),
        ({"answer": "red", "ground_truth": "blue"}, "answers that differ under 'answer' and 'ground_truth'"),
        ({"options": ["x", "y"], "choices": ["x", "z"]}, "different options under 'options' and 'choices'"),
        ({"answer_idx": 2}, "'answer_idx' and no options"),
        ({"options": ["1. x", "2. y"], "answer_idx": 1}, "two meanings: 'y' .as an index from 0. or 'x' .as its label"),
        ({"options": {"1": "x", "2": "y"}, "answer_idx": "1"}, "two meanings"),
        ({"option1": "x", "option2": "y", "answer_idx": 1}, "two meanings"),
        ({"options": {"A": "x", " A": "y"}}, "the same label twice"),
        ({"options": {"text": ["x", "y"], "label": ["A", "A"]}}, "the same label twice"),
        ({"choices": {"text": ["x", "y"], "label": ["A"]}}, "2 texts and 1 labels"),
        ({"choices": [{"x": 1}, {"x": 2}]}, "an object with 'label' and 'text'"),
    ],
)
def test_what_has_two_meanings_is_refused(record, sentence):
    with pytest.raises(ItemError, match=sentence):
        parse_item(OPEN | record, "1")


@pytest.mark.parametrize(
    ("record", "key", "intended"),
    [
        ({"opitons": ["x", "y"], "answer": "x"}, "opitons", "options"),
        ({"optoins": ["x", "y"], "answer": "B"}, "optoins", "options"),
        ({"choises": ["x", "y"], "answer": "B"}, "choises", "choices"),
        ({"canditates": ["x", "y"]}, "canditates", "candidates"),
        ({"Options": ["x", "y"]}, "Options", "options"),
        ({"options": ["x", "y"], "anwser": "B"}, "anwser", "answer"),
        ({"anser": "red"}, "anser", "answer"),
        ({"answers": ["red"]}, "answers", "answer"),
        ({"options": ["x", "y"], "anwser_idx": 1}, "anwser_idx", "answer_idx"),
        ({"question": None, "qestion": "What?"}, "qestion", "question"),
        ({"video": None, "vidoe": "v.mp4"}, "vidoe", "video"),
    ],
)
def test_a_misspelt_key_is_refused(record, key, intended):
    with pytest.raises(ItemError, match=f"unknown key '{key}'; did you mean '{intended}'"):
        parse_item(OPEN | record, "1")


@pytest.mark.parametrize("hidden", [{"distractors": ["red", "blue"]}, {"list": ["x", "red"]}, {"o": {"A": 1, "B": 2}}])
def test_options_under_an_unknown_name_are_not_overlooked(hidden):
    with pytest.raises(ItemError, match="looks like options; rename that key to 'options'"):
        parse_item(OPEN | hidden | {"answer": "red"}, "1")


def test_further_columns_are_kept_and_named(tmp_path):
    extra = {"category": "sport", "duration": 3.5, "hard": True, "question_id": 7, "video_id": "x", "captions": "c"}
    item = parse_item(CHOICE | extra | {"subtitles": ["hello"], "note": None}, "1")
    assert item.columns == extra
    values = [CHOICE | {"category": "sport", "tags": ["a"]}, CHOICE | {"category": None, "level": 2, "tags": None}]
    read = read_items(write_items(tmp_path / "a.jsonl", values))
    assert [dict(item.columns) for item in read.items] == [{"category": "sport"}, {"level": 2}]
    kept, dropped = read.notes
    assert kept.endswith("neither asked nor scored: 'category', 'level'")
    assert dropped.endswith("no simple value: 'tags'")
    assert read_items(write_items(tmp_path / "b.jsonl", [CHOICE])).notes == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"video": None}, "has no video"),
        ({"video": 7}, "video must be text"),
        ({"video": "https://x.org/v.mp4"}, "download it"),
        ({"video": "a\nb"}, "control characters"),
        ({"question": None}, "has no question"),
        ({"question": " "}, "question must be text"),
        ({"question": "\ud800"}, "half a character"),
        ({"options": "red, blue"}, "must be a list"),
        ({"options": ["red"]}, "2 to 26"),
        ({"options": ["red", ""]}, "option 2 must be text"),
        ({"options": {"A": "red", "C": "blue"}}, "must have the keys"),
        ({"id": True}, "id must be"),
    ],
)
def test_what_is_no_item(change, sentence):
    with pytest.raises(ItemError, match=sentence):
        parse_item(CHOICE | change, "1")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ('{"A": "x", "A": "y", "B": "z"}', "the object of options has the key 'A' twice"),
        (
            '[{"label": "A", "text": "x", "text": "w"}, {"label": "B", "text": "z"}]',
            "option 1 has the key 'text' twice",
        ),
    ],
)
def test_a_key_twice_inside_options_is_refused(tmp_path, options, sentence):
    path = tmp_path / "items.jsonl"
    path.write_text(f'{{"video": "v.mp4", "question": "Which?", "options": {options}, "answer": "A"}}\n')
    with pytest.raises(ItemError, match=sentence):
        read_items(path)


def test_equal_options_are_noted(tmp_path):
    equal = CHOICE | {"id": "twice", "options": ["red", "Red.", "blue"], "answer": "C"}
    path = write_items(tmp_path / "items.jsonl", [CHOICE | {"id": "once", "answer": "A"}, equal])
    assert read_items(path).notes == (
        "items that have the same option twice; a reply in its words chooses neither: 'twice'",
    )


def test_json_and_jsonl_give_the_same(tmp_path):
    values = [CHOICE | {"answer": "A"}, OPEN | {"id": "second", "answer": "red"}]
    lines = read_items(write_items(tmp_path / "a.jsonl", values))
    (tmp_path / "a.json").write_text(json.dumps(values, indent=1))
    array = read_items(tmp_path / "a.json")
    assert lines.items == array.items
    assert [item.id for item in lines.items] == ["1", "second"]
    assert lines.video_path(lines.items[0]) == tmp_path / "v.mp4"


def test_mistakes_name_file_and_line(tmp_path):
    path = tmp_path / "bad.jsonl"
    lines = [json.dumps(CHOICE), "", "{nonsense", json.dumps({"video": "v.mp4"}), '{"id": 1, "id": 2}', json.dumps([1])]
    path.write_text("\n".join(lines))
    with pytest.raises(ItemError) as error:
        read_items(path)
    message = str(error.value)
    assert "4 of 5 items cannot be used" in message
    for part in (
        "line 3: it is not JSON",
        "line 4: the item has no question",
        "line 5: the item has the key 'id' twice",
    ):
        assert f"{path}, {part}" in message
    assert "line 6: an item must be an object" in message


def test_ids_must_differ(tmp_path):
    with pytest.raises(ItemError, match=r"line 2: the id 'x' is taken by .*line 1"):
        read_items(write_items(tmp_path / "a.jsonl", [CHOICE | {"id": "x"}, OPEN | {"id": "x"}]))


def test_sources_that_are_none(tmp_path):
    (tmp_path / "empty").mkdir()
    for path, sentence in (
        (tmp_path / "none.json", "no such file"),
        (tmp_path / "empty", "holds no dataset"),
        (write_items(tmp_path / "e.jsonl", []), "holds no items"),
    ):
        with pytest.raises(ItemError, match=sentence):
            read_items(path)
    with pytest.raises(ItemError, match="is not a directory; name the one"):
        read_items(write_items(tmp_path / "a.jsonl", [CHOICE]), videos=tmp_path / "nowhere")
    with pytest.raises(ItemError, match="is a file"):
        read_items(tmp_path / "a.jsonl", split="test")


def test_a_folder_of_splits(tmp_path):
    write_items(tmp_path / "test.jsonl", [CHOICE, OPEN])
    assert len(read_items(tmp_path)) == 2
    write_items(tmp_path / "train.jsonl", [CHOICE])
    with pytest.raises(ItemError, match="splits test, train; choose one of them"):
        read_items(tmp_path)
    found = read_items(tmp_path, split="train")
    assert len(found) == 1
    assert found.video_path(found.items[0]) == tmp_path / "v.mp4"
    with pytest.raises(ItemError, match="'dev' is none of them"):
        read_items(tmp_path, split="dev")


def test_splits_below_a_configurations_folder(tmp_path):
    for name, items in {"hard/test-0": [CHOICE], "hard/train-0": [OPEN], "easy/train-0": [OPEN, CHOICE]}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_items(tmp_path / f"{name}.jsonl", items)
    with pytest.raises(ItemError, match="splits easy/train, hard/test, hard/train; choose one of them"):
        read_items(tmp_path)
    with pytest.raises(ItemError, match="'train' is several of them"):
        read_items(tmp_path, split="train")
    assert [len(read_items(tmp_path, split=name)) for name in ("easy", "test", "hard/train")] == [2, 1, 1]
    with pytest.raises(ItemError, match="splits test, train; choose one of them"):
        read_items(tmp_path / "hard")


def test_tables_without_pyarrow_say_so(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "test-00000-of-00001.parquet").touch()
    with pytest.raises(ItemError, match="needs pyarrow"):
        read_items(tmp_path)


def test_a_dataset_as_saved(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet

    rows = [OPEN | {"choices": CHOICE["options"], "answer": answer, "level": 1, "raw": b"x"} for answer in "BC"]
    table = pyarrow.Table.from_pylist(rows)
    (tmp_path / "data").mkdir()
    parquet.write_table(table, tmp_path / "data" / "test-00000-of-00001.parquet")
    read = read_items(tmp_path)
    assert [item.right for item in read.items] == [1, 2]
    assert [item.columns for item in read.items] == [{"level": 1}] * 2
    saved = tmp_path / "saved"
    (saved / "test").mkdir(parents=True)
    (saved / "dataset_dict.json").write_text('{"splits": ["test"]}')
    (saved / "test" / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    with ipc.new_stream(str(saved / "test" / "data-00000-of-00001.arrow"), table.schema) as out:
        out.write_table(table)
    assert [item.right for item in read_items(saved).items] == [1, 2]


def test_the_span_has_the_options_and_not_the_instruction():
    item = parse_item(CHOICE, "1")
    asked = item_prompt(item, Instructions())
    low, high = asked.span
    assert asked.text[low:high] == "Which colour?\nA. red\nB. blue\nC. green"
    assert asked.span == question_range(asked.text)
    odd = item_prompt(item, Instructions(choice="Say it in Klingon."))
    assert odd.text[slice(*odd.span)] == asked.text[low:high]
    assert item_prompt(parse_item(OPEN, "1"), Instructions(open="")).text == "Which colour?"


def test_labels_order_options_and_numbers_may_have_units():
    labelled = [{"label": "B", "text": "x"}, {"label": "A", "text": "y"}]
    item = parse_item(OPEN | {"options": labelled, "answer": "A"}, "1")
    assert item.options[item.right] == "y"
    with pytest.raises(ItemError, match="two meanings"):
        parse_item(OPEN | {"options": ["1 dog", "2 dogs", "3 dogs"], "answer": 2}, "1")
    assert parse_item(OPEN | {"answer": "A", "frames": [1, 2, 3]}, "1").answers == ("A",)


@pytest.mark.parametrize("name", ["test.parquet", "test.jsonl", "test.json", "dataset_dict.json"])
def test_a_pipe_among_a_datasets_files_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ItemError, match="holds no dataset"):
        read_items(tmp_path)


@pytest.mark.parametrize("name", ["data.arrow", "~", "x.jsonl", "é" * 300])
def test_nor_is_what_its_state_lists_unless_it_is_a_file(tmp_path, name):
    os.mkfifo(tmp_path / "data.arrow")
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises(ItemError, match="is missing or not a regular file"):
        read_items(tmp_path)


@pytest.mark.parametrize("name", ["dataset_dict.json", "state.json"])
def test_a_datasets_own_files_are_small(tmp_path, name):
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 4 * 10**9)
    with pytest.raises(ItemError, match="it has 4,000,000,000 bytes"):
        read_items(tmp_path)


def test_values_of_a_table_that_python_has_no_place_for_are_told(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    days = pyarrow.array([2**30], pyarrow.date32())
    parquet.write_table(pyarrow.table({"video": ["a"], "question": ["b"], "day": days}), tmp_path / "test.parquet")
    with pytest.raises(ItemError, match="cannot be read as a table"):
        read_items(tmp_path)


def test_a_table_that_unpacks_without_end_is_refused(tmp_path):
    """A value that repeats takes next to no room in the file."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    same = pyarrow.DictionaryArray.from_arrays(pyarrow.array(bytes(300_000), pyarrow.int8()), ["x" * 2000])
    parquet.write_table(pyarrow.table({"video": same, "question": same}), tmp_path / "test.parquet")
    assert (tmp_path / "test.parquet").stat().st_size < 200_000
    with pytest.raises(ItemError, match="unpacks to more than 1,048,576 rows or 268,435,456 letters"):
        read_items(tmp_path)


def test_renamed_functions_are_found_under_their_old_names():
    with pytest.warns(DeprecationWarning, match="ask is now called build_prompt"):
        from aviot.evaluation.prompts import ask
    assert ask("What?", ("a dog", "a cat"), "Answer with the letter.").span == (0, 23)
    with pytest.raises(ImportError, match="nothing"):
        from aviot.evaluation.item import nothing  # noqa: F401
