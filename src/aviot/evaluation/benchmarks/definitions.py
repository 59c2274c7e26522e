"""The paper's ten benchmarks, worded as in lmms-eval 0.7.3; the prompts are its protocol, so do not reword them."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from aviot.evaluation.benchmarks.benchmark import Benchmark, Part, Question, Record, Wording

LETTER_DIRECTLY = "Answer with the option's letter from the given choices directly."
WATCH = "You should watch and learn the video content. Then apply what you learned to answer the following {} question."
AT_THE_END = " The image for this question is at the end of the video.\n"
VIDEO_MME = (
    "Select the best answer to the following multiple-choice question based on the video and the subtitles. "
    "Respond with only the letter (A, B, C, or D) of the correct option.\n"
)
MVBENCH_FOLDERS = {
    "action_antonym": "ssv2_video_mp4",
    "action_count": "perception/videos",
    "action_localization": "sta/sta_video_segment",
    "action_prediction": "star/Charades_segment",
    "action_sequence": "star/Charades_segment",
    "character_order": "perception/videos",
    "counterfactual_inference": "clevrer/video_validation",
    "egocentric_navigation": "vlnqa",
    "episodic_reasoning": "tvqa/video_fps3_hq_segment",
    "fine_grained_action": "Moments_in_Time_Raw/videos",
    "fine_grained_pose": "nturgbd_convert",
    "moving_attribute": "clevrer/video_validation",
    "moving_count": "clevrer/video_validation",
    "moving_direction": "clevrer/video_validation",
    "object_existence": "clevrer/video_validation",
    "object_interaction": "star/Charades_segment",
    "object_shuffle": "perception/videos",
    "scene_transition": "scene_qa/video",
    "state_change": "perception/videos",
    "unexpected_action": "FunQA_test/test",
}
_INLINE = re.compile(r"^\s*\(?([A-Z])[.):]\s*(\S.*)$", re.MULTILINE)


def _same(wording: Wording) -> Callable[[Record], Wording]:
    return lambda record: wording


def _inline_options(text: str) -> list[str]:
    """Return the options that a question lists itself, one per line from A on; [] if it lists none."""
    found = _INLINE.findall(text)
    letters = [letter for letter, _ in found]
    return [option for _, option in found] if letters == [chr(ord("A") + i) for i in range(len(found))] else []


def _option_index(answer: Any) -> Any:
    """Return a letter or digits as an option's index, which cannot be mistaken for an option's text."""
    text = answer.strip() if isinstance(answer, str) else ""
    if len(text) == 1 and "A" <= text <= "Z":
        return ord(text) - ord("A")
    return int(text) if text.isdecimal() else answer


def _plain(options: str, answer: str) -> Callable[[Record], Question]:
    """Return a reader of records with a column each for question, list of options, and answer."""
    return lambda record: Question(
        record["question"], list(record[options]), list(record[options]), _option_index(record.get(answer))
    )


def _mvbench(record: Record) -> Question:
    options = list(record["candidates"])
    answer = record.get("answer")
    return Question(record["question"], options, options, options.index(answer) if answer in options else answer)


def _activitynet(record: Record) -> Question:
    return Question(record["question"].capitalize() + "?", (), (), record.get("answer"))


def _next_qa(record: Record) -> Question:
    options = [record[f"a{place}"].strip() for place in range(5)]
    return Question(record["question"].strip(), options, options, record.get("answer"))


def _long_video_bench(record: Record) -> Question:
    columns = [record.get(f"option{place}") for place in range(5)]
    options = [option for option in columns if option not in (None, "N/A")]
    return Question(record["question"], options, options, record.get("correct_choice"))


def _adaptation(record: Record) -> Question:
    """Return the question; open questions list no options."""
    return _video_mmmu(record if _is_choice(record) else {**record, "options": ()})


def _video_mmmu(record: Record) -> Question:
    """Return the question; options that have letters keep them."""
    options = list(record.get("options") or ())
    labelled = all(option.startswith(f"{chr(ord('A') + place)}.") for place, option in enumerate(options))
    listed = options if labelled else [f"{chr(ord('A') + place)}. {option}" for place, option in enumerate(options)]
    answer = record.get("answer")
    return Question(record["question"], listed, options, _option_index(answer) if options else answer)


def _lvbench(record: Record) -> Question:
    listed = list(record.get("options") or ())
    options = listed or _inline_options(record["question"])
    return Question(record["question"], listed, options, _option_index(record.get("answer")))


def _tempcompass(record: Record) -> Question:
    """Return the question, whose text contains the options; a yes-or-no question has these two."""
    answer = record.get("answer")
    options: Sequence[str] = _inline_options(record["question"])
    if not options and str(answer).strip().lower() in ("yes", "no"):
        options = ("yes", "no")
    elif options and isinstance(answer, str):
        answer = _option_index(answer.strip()[:1])
    return Question(record["question"], (), options, answer)


def _is_choice(record: Record) -> bool:
    return record.get("question_type", "multiple-choice") == "multiple-choice"


def _watch(record: Record) -> Wording:
    kind = "multi-choice" if _is_choice(record) else "open-ended"
    return Wording(before=WATCH.format(kind) + AT_THE_END, label="")


def _column(name: str, form: str = "{}.mp4") -> Callable[[Record], str]:
    def video(record: Record) -> str:
        value: Any = record[name]
        return form.format(value)

    return video


def _single(
    task: str, configuration: str, split: str, question: Callable[[Record], Question], wording: Wording
) -> tuple[Part, ...]:
    return (Part(task, task, configuration, split, question, _same(wording)),)


_IGNORE_QUIZ = _same(Wording(label="", after="\nPlease ignore the Quiz question in last frame of the video."))
_BEST_OPTION = _same(Wording(after="\nPlease directly give the best option:"))
_YES_OR_NO = _same(Wording(after="\nPlease answer yes or no:"))
_ONLY_THE_BEST = _same(Wording("Question:", "\nOption:", "(L) ", "\nOnly give the best option.\n"))
_PHRASE = Wording(after=" Answer the question using a single word or phrase.")
_AFTER_A_LINE = Wording(label="", after=f"\n{LETTER_DIRECTLY}")
_VIDEO_MME = Wording(VIDEO_MME, label="", after=f"\n\n{LETTER_DIRECTLY}")
_OPTION_LETTER = Wording(label="(L) ", after="\nAnswer the question with the option letter")

BENCHMARKS = (
    Benchmark(
        "videomme",
        "Video-MME w/o sub.",
        _single("videomme", "videomme", "test", _plain("options", "answer"), _VIDEO_MME),
        _column("videoID"),
        max_new_tokens=16,
    ),
    Benchmark(
        "videommmu",
        "Video-MMMU",
        (
            Part("adaptation", "video_mmmu_adaptation", "Adaptation", "test", _adaptation, _watch),
            Part("comprehension", "video_mmmu_comprehension", "Comprehension", "test", _video_mmmu, _IGNORE_QUIZ),
            Part("perception", "video_mmmu_perception", "Perception", "test", _video_mmmu, _IGNORE_QUIZ),
        ),
        _column("id"),
        max_new_tokens=1024,
    ),
    Benchmark(
        "activitynetqa",
        "ActivityNet-QA",
        _single("activitynetqa", "", "test", _activitynet, _PHRASE),
        _column("video_name", "v_{}.mp4"),
    ),
    Benchmark(
        "nextqa",
        "NExT-QA",
        _single("nextqa_mc_test", "MC", "test", _next_qa, Wording()),
        _column("video"),
    ),
    Benchmark(
        "perceptiontest",
        "Perception Test",
        _single(
            "perceptiontest_val_mc",
            "mc_question_val",
            "validation",
            _plain("options", "answer_id"),
            Wording(after=f"\n{LETTER_DIRECTLY}"),
        ),
        _column("video_name"),
    ),
    Benchmark(
        "tempcompass",
        "TempCompass",
        (
            Part("multi-choice", "tempcompass_multi_choice", "multi-choice", "test", _tempcompass, _BEST_OPTION),
            Part("yes_no", "tempcompass_yes_no", "yes_no", "test", _tempcompass, _YES_OR_NO),
        ),
        _column("video_id"),
        scored_part="multi-choice",
    ),
    Benchmark(
        "longvideobench",
        "LongVideoBench",
        _single("longvideobench_val_v", "", "validation", _long_video_bench, Wording(after=f"\n{LETTER_DIRECTLY}\n")),
        _column("video_path", "{}"),
        max_new_tokens=32,
    ),
    Benchmark(
        "lvbench",
        "LVBench",
        _single("lvbench", "", "train", _lvbench, _OPTION_LETTER),
        _column("video_path", "{}"),
        max_new_tokens=16,
    ),
    Benchmark(
        "egoschema",
        "EgoSchema",
        _single("egoschema", "GENERATION", "test", _plain("option", "answer"), _AFTER_A_LINE),
        _column("video_idx"),
        max_new_tokens=16,
    ),
    Benchmark(
        "mvbench",
        "MVBench",
        tuple(
            Part(name, f"mvbench_{name}", name, "train", _mvbench, _ONLY_THE_BEST, folder)
            for name, folder in MVBENCH_FOLDERS.items()
        ),
        _column("video", "{}"),
        max_new_tokens=16,
    ),
)
BY_NAME = {benchmark.name: benchmark for benchmark in BENCHMARKS}
