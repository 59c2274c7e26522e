"""Writes tests/evaluation/task_prompts.json: records in the ten tasks' formats, and what lmms-eval makes of each.

Run in lmms-eval's environment, where tasks do not import without a HF_HOME:
HF_HOME=/tmp HF_HUB_OFFLINE=1 .venv-lmms-eval/bin/python tests/lmms/record_prompts.py
"""

import json
from importlib.metadata import version
from pathlib import Path

from harness_tasks import prompt_of

OUT = Path(__file__).parents[1] / "evaluation" / "task_prompts.json"
AB = ["A. red", "B. blue"]
FOUR = ["A. The best answer", "B. the video", "C. A letter", "D. (D)"]
PLAIN = ["the option", "A", "the option's letter"]


def lettered(options, form="{}. {}"):
    return "".join("\n" + form.format("ABCDEFGH"[place], option) for place, option in enumerate(options))


def next_qa(question, *options):
    return {"video": 4010069381, "question": question, "answer": 2, "qid": "6", "type": "CH"} | {
        f"a{place}": option for place, option in enumerate(options)
    }


def long_video(question, *options):
    filled = [*options, *["N/A"] * (5 - len(options))]
    columns = {f"option{place}": option for place, option in enumerate(filled)}
    return {"video_path": "86CxyhFV9MI.mp4", "question": question, "correct_choice": 1, "duration": 10.0} | columns


def mvbench(question, *options):
    return {"video": "166583.webm", "question": question, "candidates": list(options), "answer": options[1]}


def temporal(question, answer):
    return {"video_id": "1002809029", "question": question, "answer": answer, "dim": "action"}


# task, record, and by hand: the part of the prompt that asks
RECORDS = [
    ("videomme", {"videoID": "fFjv93ACGo8", "question": "What colour is it?", "options": AB, "answer": "B"},
     "What colour is it?\nA. red\nB. blue"),
    ("videomme", {"videoID": "x", "question": "Select the best answer", "options": FOUR, "answer": "A"},
     "Select the best answer\n" + "\n".join(FOUR)),
    ("videomme", {"videoID": "x", "question": "Based on the video,\nwhich letter?", "options": FOUR, "answer": "A"},
     "Based on the video,\nwhich letter?\n" + "\n".join(FOUR)),
    ("egoschema", {"video_idx": "001934bb", "question": "What was C's aim?", "option": [*AB, "C. given choices"],
     "answer": "1"}, "What was C's aim?\nA. red\nB. blue\nC. given choices"),
    ("egoschema_subset", {"video_idx": "x", "question": "Why?", "option": AB, "answer": "0"}, "Why?\nA. red\nB. blue"),
    ("mvbench_action_antonym", mvbench("Which one is it?", "Opening it", "Closing it", "Not sure"),
     "Which one is it?\nOption:\n(A) Opening it\n(B) Closing it\n(C) Not sure"),
    ("mvbench_moving_count", mvbench("How many cubes are there?", "0", "1", "2", "Only"),
     "How many cubes are there?\nOption:\n(A) 0\n(B) 1\n(C) 2\n(D) Only"),
    ("mvbench_episodic_reasoning", mvbench("Option: what Question: who?", "the best option", "A", "Only give"),
     "Option: what Question: who?\nOption:\n(A) the best option\n(B) A\n(C) Only give"),
    ("activitynetqa", {"video_name": "1QIUV7WYKXg", "question": "is the athlete wearing trousers", "answer": "yes"},
     "Is the athlete wearing trousers?"),
    ("activitynetqa", {"video_name": "x", "question": "what does the Answer on the USA sign say", "answer": "go"},
     "What does the answer on the usa sign say?"),
    ("activitynetqa", {"video_name": "x", "question": "word", "answer": "go"}, "Word?"),
    ("perceptiontest_val_mc", {"video_name": "video_10993", "question": "Is it moving?", "options": PLAIN,
     "answer_id": 0, "question_id": "1"}, "Is it moving?" + lettered(PLAIN)),
    ("perceptiontest_val_mc", {"video_name": "x", "question": "Which letter?", "options": ["a", "b", "c"],
     "answer_id": 2, "question_id": "2"}, "Which letter?\nA. a\nB. b\nC. c"),
    ("nextqa_mc_test", next_qa("why did he bend down ", "pick up", " dance", "fall", "the boy", "E"),
     "why did he bend down\nA. pick up\nB. dance\nC. fall\nD. the boy\nE. E"),
    ("longvideobench_val_v", long_video("At 0:31, what is on the table?", "a cup", "a pot"),
     "At 0:31, what is on the table?\nA. a cup\nB. a pot"),
    ("longvideobench_val_v", long_video("Which of the given choices?", "A", "B", "the option's", "letter", "directly."),
     "Which of the given choices?\nA. A\nB. B\nC. the option's\nD. letter\nE. directly."),
    ("video_mmmu_adaptation", {"id": "validation_Math_18", "question": "Find x <image 1>.", "options": ["1", "2", "3"],
     "question_type": "multiple-choice", "answer": "C"}, "Find x <image 1>.\nA. 1\nB. 2\nC. 3"),
    ("video_mmmu_adaptation", {"id": "test_Art_1", "question": "You should watch what?", "options": FOUR,
     "question_type": "multiple-choice", "answer": "C"}, "You should watch what?\n" + "\n".join(FOUR)),
    ("video_mmmu_adaptation", {"id": "test_Math_2", "question": "How many metres?", "options": [],
     "question_type": "open", "answer": "12.5"}, "How many metres?"),
    ("video_mmmu_comprehension", {"id": "dev_Art_3", "question": "Which statements hold?", "options": PLAIN,
     "question_type": "multiple-choice", "answer": "B"}, "Which statements hold?" + lettered(PLAIN)),
    ("video_mmmu_perception", {"id": "dev_Art_4", "question": "What is in the last frame?", "options": [*PLAIN, "Quiz"],
     "question_type": "multiple-choice", "answer": "B"}, "What is in the last frame?" + lettered([*PLAIN, "Quiz"])),
    ("lvbench", {"video_path": "Cm73ma6Ibcs.mp4", "question": "What year is it?\n(A) 1636\n(B) 1366", "answer": "A",
     "uid": "1"}, "What year is it?\n(A) 1636\n(B) 1366"),
    ("lvbench", {"video_path": "x.mp4", "question": "Who?", "options": ["the option letter", "A"], "answer": "A"},
     "Who?\n(A) the option letter\n(B) A"),
    ("tempcompass_multi_choice", temporal("What is he doing?\nA. cooking\nB. best option\nC. reading", "A. cooking"),
     "What is he doing?\nA. cooking\nB. best option\nC. reading"),
    ("tempcompass_yes_no", temporal("Is he cooking?", "yes"), "Is he cooking?"),
    ("tempcompass_caption_matching", temporal("Which caption fits?\nOption 1: He cooks.\nOption 2: He reads.",
     "Option 2: He reads."), "Which caption fits?\nOption 1: He cooks.\nOption 2: He reads."),
    ("tempcompass_captioning", temporal("Which of these is it?\nA. cooking\nB. reading", "A. cooking"),
     "Which of these is it?\nA. cooking\nB. reading"),
]  # fmt: skip


if __name__ == "__main__":
    prompts = [
        {"task": task, "record": record, "prompt": prompt_of(task, record), "asks": asks}
        for task, record, asks in RECORDS
    ]
    made = {"lmms-eval": version("lmms-eval"), "command": "python tests/lmms/record_prompts.py"}
    OUT.write_text(json.dumps({"made_by": made, "prompts": prompts}, indent=1, ensure_ascii=False) + "\n")
