"""A byte-level BPE trained on the world's questions, answers and time lines; other text takes more tokens."""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from aviot.backbones.llava_video.prompt import SYSTEM, time_line
from aviot_lab.world import World, WorldConfig, descriptions, frame_descriptions, vocabulary
from aviot_lab.world.description import SIZE_WORDS

END, START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SIZE = 1024
TOKENIZER_FOLDER = "tokenizer"  # directory of the tokenizer inside a run's
LONGEST = 224  # frames of the longest video, whose timestamps become tokens

# A time such as "31.50s," is cut into whole seconds and the rest, so that a frame takes two tokens of the time line.
_PIECES = Regex(r"\.\d\ds,?|\d{1,3}|'\w+| ?[^\s\d\W]+| ?[^\s\w]+|\s+(?!\S)|\s+")


def tokenizer_of(run: Path, special: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a run; if the run has none yet, a new one, with these special tokens besides."""
    folder = run / TOKENIZER_FOLDER
    if not folder.is_dir():
        return with_special(build_tokenizer(), special)
    return PreTrainedTokenizerFast.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def with_special(tokenizer: PreTrainedTokenizerFast, special: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a copy of a tokenizer with more special tokens, numbered after all others."""
    if not special:
        return tokenizer
    more = copy.deepcopy(tokenizer)
    more.add_special_tokens({"additional_special_tokens": list(special)})
    return more


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Train the tokenizer; the result is the same every time."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PIECES, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[END, START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_texts(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=TURN_END, pad_token=END, model_max_length=32768)


def _texts() -> Iterator[str]:
    yield from vocabulary()
    world = World(WorldConfig())
    for number in range(500):
        scene = world.scene("train", number)
        yield from (
            "\n".join(turn) for turn in (*descriptions(scene), *frame_descriptions(scene, [number % scene.frames]))
        )
    for _ in range(200):  # about as often as a word of a question
        yield " ".join(("a", *SIZE_WORDS))
        yield f"system\n{SYSTEM}\nuser\nassistant\n"
        yield time_line(LONGEST / 2, [frame / 2 for frame in range(LONGEST)])
