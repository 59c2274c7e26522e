"""The range of the question in a prompt: with its options, without instructions."""

import pytest

from aviot.backbones.llava_video.prompt import chat_prompt, question_range, time_line

OPTIONS = "Where does the cat sit?\nA. On the mat.\nB. Under it.\nC. Beside the answer.\nD. Nowhere."
LETTER = "Answer with the option's letter from the given choices directly."


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("", f"\n{LETTER}"),
        ("", "\nAnswer with the option\u2019s letter from the given choices directly and only give the best option."),
        (
            "Select the best answer to the following multiple-choice question based on the video. "
            "Respond with only the letter (A, B, C, or D) of the correct option.\n",
            "\nThe best answer is:",
        ),
        ("", "\nOnly give the best option."),
        ("", "\nOnly answer yes or no."),
        ("", "\nOnly give the best option.\nBest option: ("),
        ("", "\nPlease directly give the best option:"),
        ("", "\nPlease provide your answer by stating the letter followed by the full option."),
        ("", "\nPlease answer yes or no:"),
        ("", "\nAnswer the question using a single word or phrase."),
        ("", " Answer the question using a single word or phrase."),
        ("", "\nAnswer the question with the option letter"),
        ("", "\nAnswer the question with A, B, C, or D."),
        ("", "\nAnswer with the option letter only."),
        ("Please answer the question about the video:\n", f"\n{LETTER}"),
        ("", f"\n{LETTER}\n"),
        ("", "\nAnswer a question using a short phrase or sentence."),
        ("Please ignore the Quiz question in last frame of the video.\n", "\nAnswer:"),
        (
            "You should watch and learn the video content. Then apply what you learned to answer the following "
            "multi-choice question. The image for this question is at the end of the video.\n",
            "\nPlease ignore the Quiz question in last frame of the video.",
        ),
        (
            "You should watch and learn the video content. Then apply what you learned to answer the following "
            "multi-choice question with the option number (1, 2, 3, etc.).\n",
            "",
        ),
        (
            "Carefully watch the video and pay attention to the cause and sequence of events, the detail and movement "
            "of objects. Based on your observations, select the best option that accurately addresses the question.\n",
            "\nOnly give the best option.",
        ),
    ],
)
def test_instructions_are_left_out(before, after):
    text = before + OPTIONS + after
    low, high = question_range(text)
    assert text[low:high] == OPTIONS


@pytest.mark.parametrize(
    "question",
    [
        "What does the best answer on the blackboard say?",
        "Is the answer: yes written there?",
        "Why?",
        "Answer me, who is it?",
        "What is the final answer:",
    ],
)
def test_questions_that_look_like_instructions_stay(question):
    low, high = question_range(question)
    assert question[low:high] == question


def test_nothing_but_instructions_is_the_question():
    assert question_range(LETTER) == (0, len(LETTER))


def test_surrounding_space_is_no_question():
    assert question_range("  why?\n ") == (2, 6)


def test_time_line():
    assert time_line(1.5, (0, 0.5, 1)) == (
        "The video lasts for 1.50 seconds, and 3 frames are uniformly sampled from it. These frames are located at "
        "0.00s,0.50s,1.00s.Please answer the following questions related to this video."
    )


def test_range_points_into_the_prompt():
    prompt = chat_prompt(f"{OPTIONS}\n{LETTER}", 3.0, (0.0, 1.0))
    assert prompt.after[slice(*prompt.question)] == OPTIONS
    assert prompt.text == prompt.before + "<image>" + prompt.after
