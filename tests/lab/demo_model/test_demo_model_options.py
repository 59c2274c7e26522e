"""Options are found where they end, the right one is the one that the letter names, and what is given is not learnt."""

import torch
from torch.nn import functional as F

from aviot.backbones.llava_video.prompt_batch import IGNORED
from aviot_lab.demo_model.answer_tasks import OptionFinder, OptionHead
from aviot_lab.demo_model.architecture import new_model
from aviot_lab.demo_model.batches import BatchWriter, TrainingBatches
from aviot_lab.demo_model.curriculum import Curriculum, Phase
from aviot_lab.demo_model.masks import answer_spans
from aviot_lab.world import World, WorldConfig


def test_answers_are_stretches():
    assert list(answer_spans([IGNORED, 1, 2, IGNORED, 3])) == [(1, 3), (4, 5)]
    assert list(answer_spans([IGNORED])) == []


def test_every_option_ends_in_its_last_word(tokenizer):
    world = World(WorldConfig(seed=2))
    finder, writer, seen = OptionFinder(tokenizer), BatchWriter(tokenizer), 0
    for number in range(19):
        scene = world.scene("train", number, 16)
        question = world.question(scene)
        turns = [(question.open, question.answer), (question.multiple_choice, question.letter)]
        batch = writer.conversations([(scene, turns)])
        found = finder.find(batch.ids, batch.labels)
        assert found.row.tolist() == [0] * len(question.options)
        ends = [tokenizer.decode(batch.ids[0, place]).strip() for place in found.place]
        assert ends == [option.split()[-1] for option in question.options]
        assert [bool(right) for right in found.right] == [option == question.answer for option in question.options]
        assert finder.find(*(part[:1] for part in _open_alone(writer, scene, question))) is None
        seen += len(question.options)
    assert seen > 40


def _open_alone(writer, scene, question):
    batch = writer.conversations([(scene, [(question.open, question.answer)])])
    return batch.ids, batch.labels


def test_right_and_wrong_options_weigh_the_same():
    torch.manual_seed(0)
    reader, states, right = OptionHead(8), torch.randn(4, 8), torch.tensor([0.0, 1.0, 0.0, 0.0])
    loss, share = reader.loss(states, right)
    guess = reader.read(reader.norm(states)).squeeze(-1)
    each = F.binary_cross_entropy_with_logits(guess, right, reduction="none")
    torch.testing.assert_close(loss, (each[1] + each[[0, 2, 3]].mean()) / 2)
    assert share == ((guess > 0) == (right > 0)).float().mean()


def test_what_is_given_is_not_learnt(tokenizer):
    """In pictures' batches an answer stands before the question that has it among its options."""
    batches = TrainingBatches(Curriculum((Phase("pictures", 1, ((6, 2),), (1e-3, 1e-3)),)), tokenizer)
    batch = batches[0]
    for row in range(6):
        spans = list(answer_spans(batch.labels[row].tolist()))
        letter = tokenizer.decode(batch.ids[row, spans[-1][0]])
        text = tokenizer.decode(batch.ids[row][: spans[-1][0]])
        option = text.rpartition(f"\n{letter}. ")[2].split("\n")[0]
        given = text.rpartition("<|im_start|>assistant\n")[0].rpartition("<|im_start|>assistant\n")[2]
        assert given.startswith(f"{option}<|im_end|>")
        assert (batch.options.row == row).sum() >= 2


def test_a_new_decoder_attends_to_the_same_word(tokenizer):
    """With a space before it or without: further back there is nothing that it likes as much."""
    model = new_model(tokenizer, 0)
    decoder = model.model.language_model
    decoder.set_attn_implementation("eager")
    red, star = (tokenizer(word, add_special_tokens=False)["input_ids"] for word in ("red", " star"))
    others = tokenizer(" moon blue top heart two before", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[*red, *others, *star, *others, *tokenizer(" red", add_special_tokens=False)["input_ids"]]])
    with torch.no_grad():
        attention = decoder(input_ids=ids, output_attentions=True).attentions[0][0, :, -1, :-1].mean(0)
    assert attention.argmax() == 0
