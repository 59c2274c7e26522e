"""Every method of the registry on every family: tokens within the budget, exact provenance, and a short generation."""

import pytest
import torch
from loaded import FAMILIES, LLAVA_VIDEO, session_of

from aviot import Budget
from aviot.methods import Compressed, DecoderMethod, FrameMethod, TokenMethod, TokenMixture, get, names

FRAMES = 8
BUDGETS = (Budget(keep=0.5), Budget(tokens=9))
QUESTION = "What is it?"
ADVICE = "choose|give|use|ask|raise|compress less"  # a refusal says what to do instead


class ReadsExtras(TokenMethod):
    """Keep the tokens that have the most of everything that a backbone supplies beside them."""

    name = "reads-extras"
    uses_question = True
    needs = frozenset({"attention", "attention_keys", "question_tokens"})

    def compress(self, video, *, question, budget):
        score = torch.zeros(video.frames, video.patches)
        if question is not None:
            asked = video.extras["question_tokens"]
            torch.testing.assert_close(asked.mean(0), question)  # the question has no options
            keys = video.extras["attention_keys"]
            assert keys.shape[:2] == score.shape
            score += video.extras["attention"] * keys.norm(dim=-1) + (video.features @ asked.mT).mean(-1)
        return Compressed.kept(video, score.flatten().topk(video.limit(budget)).indices.sort().values)


class ReadsBeforePooling(TokenMethod):
    """Pool the cells whose patches are attended to the most."""

    name = "reads-before-pooling"
    before_pooling = True
    needs = frozenset({"attention_shallow", "attention_deep"})

    def compress(self, video, *, question, budget):
        pooling = video.extras["pooling"].flatten(0, 1)  # [S,P]
        received = video.extras["attention_shallow"] + video.extras["attention_deep"]
        assert received.shape == (video.frames, video.patches)
        cells = (received @ pooling.T).flatten().topk(video.limit(budget)).indices.sort().values
        frame, cell = cells // len(pooling), cells % len(pooling)
        sources = frame[:, None] * video.patches + torch.arange(video.patches)
        return Compressed.mixed(video, TokenMixture(sources, pooling[cell], video.frames, video.patches))


METHODS = (*names(), ReadsExtras(), ReadsBeforePooling())


def label(method):
    return method if isinstance(method, str) else method.name


def most(session, method, budget):
    """Return the largest number of decoder tokens that a method may leave, structure tokens included."""
    encoded, frames = session.encoded, len(session.encoded.times)
    if not method.compresses:
        return encoded.tokens_before
    if isinstance(method, FrameMethod):
        return budget.frames(frames, encoded.tokens_per_frame) * encoded.tokens_per_frame + encoded.structure.per_video
    return budget.count(frames, encoded.tokens_per_frame)


def check_provenance(session, method, read):
    """The recorded mixtures of the sources are the method's tokens, and these are what the decoder reads."""
    made, backbone = read.made, session.backbone
    sources = backbone.sources(session.encoded, method).float()
    torch.testing.assert_close(made.mixture.rebuild(sources.flatten(0, 1)), made.tokens, atol=1e-4, rtol=1e-4)
    order = read.video.order
    if order is not None:
        assert torch.equal(read.tokens[order >= 0], made.tokens[order[order >= 0]])
        assert order[order >= 0].sort().values.tolist() == list(range(len(made)))
    else:  # whole frames of features are projected after they are mixed
        whole = made.tokens.unflatten(0, (-1, sources.shape[1]))
        torch.testing.assert_close(read.tokens, backbone.model.model.connector(whole), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS, ids=label)
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_a_method_on_a_family(family, method):
    session = session_of(family, FRAMES)
    found = session.backbone.method(method)
    answered, refusals = False, []
    for budget in BUDGETS:
        try:
            if isinstance(found, DecoderMethod):
                answer = session.ask(QUESTION, budget=budget, method=method, max_new_tokens=2)
                assert answer.tokens_after <= most(session, found, budget)
                continue
            read = session.compress(QUESTION if found.uses_question else None, budget=budget, method=method)
        except ValueError as refused:
            refusals.append(str(refused))
            continue
        assert 1 <= len(read.tokens) <= most(session, found, budget)
        check_provenance(session, found, read)
        if found.uses_question:
            assert len(session.compress(None, budget=budget, method=method).tokens) >= 1
        if not answered:
            answer = session.answer(QUESTION, read, max_new_tokens=2)
            answered = answer.tokens_after == len(read.tokens)
            assert answered
    assert all(any(word in refusal for word in ADVICE.split("|")) for refusal in refusals)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_these_need_no_refusal(family):
    """Baselines and both methods above work on every family, so that the test above tests something."""
    session = session_of(family, FRAMES)
    for method in (*(name for name in names() if get(name).__module__.endswith("baselines")), *METHODS[-2:]):
        assert len(session.compress(QUESTION, budget=BUDGETS[0], method=method).tokens) > 0


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_pooled_tokens_are_those_that_methods_read_after_pooling(family):
    session = session_of(family, FRAMES)
    before = session.backbone.features(session.encoded, ReadsBeforePooling(), conditioned=False)
    after = session.backbone.features(session.encoded, get("low-resolution"), conditioned=False)
    pooled = torch.einsum("rcp,tpd->trcd", before.extras["pooling"], before.features).flatten(1, 2)
    torch.testing.assert_close(pooled, after.features, atol=1e-5, rtol=1e-4)
    assert before.cells == after.patches
    assert before.patches > after.patches or family not in ("llava-onevision", LLAVA_VIDEO)
    assert before.limit(BUDGETS[0]) == after.limit(BUDGETS[0])
    everything = session.compress(None, budget=Budget(keep=1.0), method=ReadsBeforePooling())
    if family != "video-llama3":  # it drops unchanged tokens of uncompressed videos
        whole = session.compress(None, budget=Budget(keep=1.0), method="none")
        torch.testing.assert_close(everything.tokens, whole.tokens, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_deepstack_features_are_mixed_with_the_tokens():
    session = session_of("qwen3-vl", FRAMES)
    extras = session.backbone.features(session.encoded, get("low-resolution"), conditioned=False).extras
    assert list(extras) == ["deepstack_0", "deepstack_1"]
    read = session.compress(None, budget=BUDGETS[0], method="low-resolution")
    again = session.backbone.project(read.made, get("low-resolution"), session.encoded)
    for name, values in extras.items():
        assert values.shape == session.encoded.features.shape
        expected = read.made.mixture.rebuild(values.flatten(0, 1))[read.video.order]
        torch.testing.assert_close(read.video.layout.extras[name], expected)
        torch.testing.assert_close(again.layout.extras[name], expected)
    without = session.backbone.project(read.made, get("low-resolution"))
    with pytest.raises(ValueError, match="features of 2 encoder layers to the tokens, got those of 0; give"):
        session.backbone.place([session.prompt(QUESTION)], [without])


@pytest.mark.parametrize("family", ["qwen2-vl", LLAVA_VIDEO])
@torch.inference_mode()
def test_question_tokens_leave_out_options_and_instructions(family):
    backbone, video = session_of(family, FRAMES).backbone, session_of(family, FRAMES).video
    alone = backbone.prompt(QUESTION, video).question_tokens
    text = f"Watch.\n{QUESTION}\nA. A cat.\nB. A dog.\nAnswer with a letter."
    start = text.index(QUESTION)
    prompt = backbone.prompt(text, video, span=(start, text.index("\nAnswer")))
    assert torch.equal(prompt.question_tokens, alone)
    assert not torch.allclose(prompt.question, alone.mean(0))  # the mean has the options, as it always had


@torch.inference_mode()
def test_a_compressed_llava_video_frame_has_one_separator_and_stands_where_its_cells_are():
    session = session_of(LLAVA_VIDEO, FRAMES)
    separator = session.backbone.model.model.connector.row_separator
    for method in (ReadsExtras(), ReadsBeforePooling()):
        read = session.compress(None, budget=BUDGETS[0], method=method)
        frames = read.made.nearest_frame
        order = read.video.order.tolist()
        assert torch.equal(read.tokens[read.video.order < 0], separator.expand(order.count(-1), -1))
        assert order.count(-1) == len(frames.unique())
        parts = [[]]
        for index in order:
            parts.append([]) if index < 0 else parts[-1].append(index)
        assert parts.pop() == []  # a separator is last
        assert all(len(frames[part].unique()) == 1 for part in parts)
        placed = read.made.on_grid(session.backbone.model.model.connector.pooled).positions
        cells = [[(round(row), round(column)) for row, column in placed[part, 1:].tolist()] for part in parts]
        assert all(one == sorted(one) and len(set(one)) == len(one) for one in cells)
