"""Text made comparable: one form for every way of writing the same answer."""

import re
import unicodedata

ARTICLES = ("a", "an", "the")

# Scripts that are written without spaces, where the edge of a word cannot be seen.
UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
LETTER = rf"[^\W_{UNSPACED}]"
"""A letter or digit of a script with spaces between words."""

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
"""The numbers up to twelve in letters, with their digits."""

# An article stands before a word, and not before one that takes none: "vitamin A" and "A He runs" keep their A.
NO_ARTICLE = rf"(?:the|he|she|it|they|we|you|i|his|her|its|their|there|this|that|these|those)(?!{LETTER})"
_ARTICLE = re.compile(rf"(?<!{LETTER})(?<!')(?:{'|'.join(ARTICLES)})(?=\s+(?!{NO_ARTICLE})[^\W_])")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SIGNED = re.compile(r"(?<![\w.])-(?=\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_TURNING_BACK = re.compile(r"\b(?:counter|anti|contra)[\s-]*(?=clockwise)", re.IGNORECASE)


def fold(text: str) -> str:
    """Full-width and other compatibility forms as ASCII has them, no invisible characters, plain quotes and dashes."""
    text = unicodedata.normalize("NFKC", text.translate(_MARKS)).translate(_MARKS)
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


def one_spelling(text: str) -> str:
    """Return a text with one spelling of counterclockwise, which would else contain its opposite."""
    return _TURNING_BACK.sub("counter", text)


def words(text: str) -> list[str]:
    """Lower-case words without articles and punctuation; a number keeps its sign and decimal point."""
    text = _ARTICLE.sub("", _GROUPED.sub("", fold(text).casefold()))
    text = _POINT.sub("\ue001", _SIGNED.sub("\ue002", text))
    found = re.findall(r"[^\W_]+(?:['\ue001][^\W_]+)*|\ue002[^\W_]+(?:\ue001[^\W_]+)*", text)
    return [word.replace("\ue001", ".").replace("\ue002", "-") for word in found]


def spellings(word: str) -> tuple[str, ...]:
    """Return a word as it may stand in a sentence: a number up to twelve in digits or letters."""
    digits = NUMBERS.get(word, word)
    return tuple(dict.fromkeys([word, digits, *(spelt for spelt, number in NUMBERS.items() if number == digits)]))


def normal(text: str) -> str:
    """What exact match compares: `words` with the numbers up to twelve as digits, single spaces between them.

    A text of nothing but articles and punctuation is compared as it is, in lower case.
    """
    found = words(text)
    return " ".join(NUMBERS.get(word, word) for word in found) or fold(text).casefold().strip()
