"""Text normalisation for comparing answers, and exact match."""

import re
import unicodedata
from collections.abc import Iterable

ARTICLES = ("a", "an", "the")

# Scripts written without spaces, in which word boundaries cannot be detected.
UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
LETTER = rf"[^\W_{UNSPACED}]"
"""Pattern of a letter or digit in a script that separates words by spaces."""

_MARKS = str.maketrans(
    {
        "。": ".",
        "、": ",",
        "「": '"',
        "」": '"',
        "『": '"',
        "』": '"',
        "《": '"',
        "》": '"',
        "【": "[",
        "】": "]",
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2010": "-",
        "\u2011": "-",
        "\u2012": "-",
        "\u2013": "-",
        "\u2014": " - ",
        "\u2212": "-",
    }
)
NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
    )
}
"""Number words from zero to twelve and their digits."""

# An article precedes a word that can take one: "vitamin A" and "A He runs" keep their A.
NO_ARTICLE = rf"(?:the|he|she|it|they|we|you|i|his|her|its|their|there|this|that|these|those)(?!{LETTER})"
_ARTICLE = re.compile(rf"(?<!{LETTER})(?<!')(?:{'|'.join(ARTICLES)})(?=\s+(?!{NO_ARTICLE})[^\W_])")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SIGNED = re.compile(r"(?<![\w.])-(?=\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_TURNING_BACK = re.compile(r"\b(?:counter|anti|contra)[\s-]*(?=clockwise)", re.IGNORECASE)


def fold(text: str) -> str:
    """Return text in NFKC form with ASCII quotes and dashes and without invisible characters."""
    text = unicodedata.normalize("NFKC", text.translate(_MARKS)).translate(_MARKS)
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


def one_spelling(text: str) -> str:
    """Return a text with one spelling of counterclockwise, which would else contain its opposite."""
    return _TURNING_BACK.sub("counter", text)


def words(text: str) -> list[str]:
    """Return lower-case words without articles and punctuation; numbers keep their sign and decimal point."""
    text = _ARTICLE.sub("", _GROUPED.sub("", fold(text).casefold()))
    text = _POINT.sub("\ue001", _SIGNED.sub("\ue002", text))
    found = re.findall(r"[^\W_]+(?:['\ue001][^\W_]+)*|\ue002[^\W_]+(?:\ue001[^\W_]+)*", text)
    return [word.replace("\ue001", ".").replace("\ue002", "-") for word in found]


def spellings(word: str) -> tuple[str, ...]:
    """Return every spelling of a word: a number up to twelve in digits and in letters."""
    digits = NUMBERS.get(word, word)
    return tuple(dict.fromkeys([word, digits, *(spelt for spelt, number in NUMBERS.items() if number == digits)]))


def normal(text: str) -> str:
    """Return the form that exact match compares: `words` joined by single spaces, numbers up to twelve as digits.

    A text of articles and punctuation alone is only converted to lower case.
    """
    found = words(text)
    return " ".join(NUMBERS.get(word, word) for word in found) or fold(text).casefold().strip()


def is_exact(reply: str, answers: Iterable[str]) -> bool:
    """Return whether a reply equals one of the answers in normal form."""
    given = normal(reply)
    return bool(given) and any(given == normal(answer) for answer in answers)
