"""The same answers on a GPU, without the host ever waiting for it."""

from pathlib import Path

import pytest
import torch
from common import CASES, inputs, make, relative
from safetensors.torch import load_file

from aviot import Compressor, CompressorConfig
from aviot.budget import Budget
from aviot.convert import compressor_weights
from aviot.methods.aviot.reference import compress_reference

pytestmark = pytest.mark.gpu


def on_gpu(case):
    case.compressor.cuda()
    case.tensors.update({name: value.cuda() for name, value in case.tensors.items()})
    return case


@pytest.mark.parametrize("name", CASES)
def test_golden_outputs(golden, name):
    case = on_gpu(golden(name))
    out = case.run()
    assert out.path == tuple(case.case["path"])
    assert [list(budgets) for budgets in out.budgets] == case.case["budgets"]
    assert relative(out.features, case.tensors["output"]) < 1e-5
    assert relative(out.loss, case.tensors["loss"][0]) < 1e-4


@pytest.mark.parametrize("name", [name for name in CASES if name in ("t24_r3_warmup_grad", "t21_r3_cap")])
def test_golden_gradients(golden, name):
    case = on_gpu(golden(name))
    x = case.tensors["x"].requires_grad_()
    out = case.run(x=x)
    (out.features.square().mean() + out.loss).backward()
    assert relative(x.grad, case.tensors["grad.x"]) < 1e-3
    published = compressor_weights(case.published("grad.weights."))
    for parameter, value in case.compressor.named_parameters():
        if parameter != "metric.embed.3.bias":  # the true gradient is zero
            limit = 1e-2 if parameter == "region_position.weight" else 1e-3
            assert relative(value.grad, published[parameter]) < limit, parameter


def expected_of(compressor, given, **how):
    """The reference's result on the CPU, and the weights that it was made from."""
    weights = {name: value.detach().cpu().double().requires_grad_() for name, value in compressor.named_parameters()}
    return compress_reference(compressor.config, weights, **given, **how), weights


def moved(given):
    return {name: value.cuda() for name, value in given.items()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=str)
@pytest.mark.parametrize(("frames", "supports"), [(37, 7), (63, 16), (224, 56)])
def test_odd_sizes(frames, supports, dtype, tolerance):
    compressor, given = make().cuda(), inputs(frames, seed=frames, dtype=dtype)
    with torch.no_grad():
        out = compressor(**moved(given), supports=supports)
        expected, _ = expected_of(compressor, given, supports=supports)
    assert out.path == expected.path
    if dtype == torch.float32:  # a later stage's features are rounded to bfloat16
        assert out.budgets == expected.budgets
        assert relative(out.loss.cpu(), expected.loss) < 1e-4
    assert out.budgets[0] == expected.budgets[0]
    assert relative(out.features.cpu(), expected.features) < tolerance


@pytest.mark.parametrize(("frames", "supports"), [(24, 8), (37, 7)])
def test_gradients_at_odd_sizes(frames, supports):
    compressor, given = make().cuda(), inputs(frames, seed=frames)
    x, exact = given["x"].cuda().requires_grad_(), given["x"].double().requires_grad_()
    out = compressor(**(moved(given) | {"x": x}), supports=supports)
    expected, weights = expected_of(compressor, given | {"x": exact}, supports=supports)
    for each in (out, expected):
        (each.features.square().mean() + each.loss).backward()
    assert relative(out.features.cpu(), expected.features) < 1e-5
    assert relative(x.grad.cpu(), exact.grad) < 1e-3
    for name, value in compressor.named_parameters():
        if name != "metric.embed.3.bias":  # the true gradient is zero
            assert relative(value.grad.cpu(), weights[name].grad) < 1e-3, name


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_gradients_of_the_loss_at_large_magnitudes(scale):
    compressor, given = make().cuda(), {"x": scale * inputs(13)["x"]}
    x, exact = given["x"].cuda().requires_grad_(), given["x"].double().requires_grad_()
    compressor(x, supports=7).loss.backward()
    expected_of(compressor, {"x": exact}, supports=7)[0].loss.backward()
    assert relative(x.grad.cpu(), exact.grad) < 1e-3


def test_the_same_gradients_twice():
    compressor, given = make().cuda(), moved(inputs(37, batch=(2,), dtype=torch.bfloat16))
    gradients = []
    for _ in range(2):
        compressor.zero_grad()
        x = given["x"].clone().requires_grad_()
        out = compressor(**(given | {"x": x}), supports=7)
        (out.features.float().square().mean() + out.loss.sum()).backward()
        gradients.append([x.grad, *(value.grad.clone() for value in compressor.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=str)
def test_no_kernel_reads_what_nobody_wrote(poisoned, dtype, tolerance):
    compressor, given = make().cuda(), inputs(37, batch=(2,), dtype=dtype)
    x = given["x"].cuda().requires_grad_()
    out = compressor(**(moved(given) | {"x": x}), supports=7)
    (out.features.float().square().mean() + out.loss.sum()).backward()
    with torch.no_grad():
        plain = compressor(**moved(given), supports=7)
    for video in range(2):
        alone = {name: value[video] for name, value in given.items()}
        with torch.no_grad():
            expected, _ = expected_of(compressor, alone, supports=7)
        for each in (out, plain):
            assert relative(each.features[video].cpu(), expected.features) < tolerance
    assert x.grad.isfinite().all()
    assert all(value.grad.isfinite().all() for value in compressor.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("frames", "supports"), [(128, 40), (128, 127), (128, 1), (70, 33)])
def test_the_largest_segment_and_transport_space(frames, supports, dtype):
    """As much as the kernels take: one segment of 128 sources, 256 coordinates."""
    config = {"segments": 1, "cost_dim": 256, "stage_multiple": 1000}
    compressor, given = make(**config).cuda(), inputs(frames, dtype=dtype)
    x = given["x"].cuda().requires_grad_()
    out = compressor(**(moved(given) | {"x": x}), supports=supports)
    out.features.float().square().mean().backward()
    with torch.no_grad():
        plain = compressor(**moved(given), supports=supports)
        expected, _ = expected_of(compressor, given, supports=supports)
    for each in (out, plain):
        assert relative(each.features.cpu(), expected.features) < (1e-4 if dtype == torch.float32 else 1e-2)
    assert x.grad.isfinite().all()


def test_no_host_synchronisation(golden):
    case = on_gpu(golden("t37_r4_norel"))
    relevance = torch.rand(37, device="cuda")
    case.run(relevance=relevance)  # first calls may set libraries up
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = case.run(relevance=relevance)
        (out.features.square().mean() + out.loss).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert sum(out.budgets[0]) == 24


def test_what_is_not_finite_is_reported_when_the_host_looks(golden):
    case = on_gpu(golden("t9_r10"))
    case.tensors["x"][3, 5, 1] = torch.nan
    out = case.run()
    with pytest.raises(ValueError, match="features x are not finite"):
        out.check()


def test_mixed_devices(golden):
    case = on_gpu(golden("t9_r10"))
    with pytest.raises(ValueError, match=r"features' device cuda:0, got cpu; move it"):
        case.run(question=torch.zeros(8))


def test_same_bits_twice(golden):
    case = on_gpu(golden("t64_r10"))
    assert torch.equal(case.run().features, case.run().features)


def test_tf32_does_not_reach_the_solve(golden, monkeypatch):
    case = on_gpu(golden("t20_r2"))
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    out = case.run()
    assert relative(out.features, case.tensors["output"]) < 1e-5
    assert torch.backends.cuda.matmul.allow_tf32
    rebuilt = torch.einsum("kst,tsd->ksd", out.provenance().coefficients.double(), case.tensors["x"].double())
    assert relative(rebuilt, out.features) < 1e-6


def test_a_batch_trains_at_the_papers_size():
    """Distances between 1,296 problems of 56 x 56 points in 1,152 dimensions, backwards too."""
    torch.manual_seed(0)
    compressor = Compressor(CompressorConfig()).cuda()
    x = torch.randn(4, 224, 729, 1152, device="cuda", dtype=torch.bfloat16).requires_grad_()
    out = compressor(
        x, question=torch.randn(4, 1152, device="cuda"), relevance=torch.rand(4, 224, device="cuda"), ratio=4
    )
    (out.features.float().square().mean() + out.loss.sum()).backward()
    out.check()
    assert torch.isfinite(x.grad).all()
    one = compressor(x[2].detach(), question=None, ratio=4)
    assert torch.isfinite(one.loss)


def test_a_cuda_graph_replays_a_compression(golden):
    case = on_gpu(golden("t37_r4_norel"))
    x, relevance = case.tensors["x"], torch.rand(37, device="cuda")
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(2):
            case.run(relevance=relevance)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            captured = case.run(relevance=relevance).features
        x.copy_(x.flip(0))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.allclose(captured, case.run(relevance=relevance).features, atol=1e-5)


def golden_model():
    from aviot.models import AviotForConditionalGeneration

    folder = Path(__file__).parent / "golden" / "checkpoint"
    expected = {name: value.cuda() for name, value in load_file(folder / "expected.safetensors").items()}
    return AviotForConditionalGeneration.from_pretrained(folder, device_map="cuda").eval(), expected


def test_the_golden_model_answers_the_same():
    model, expected = golden_model()
    encoded = model.encode(expected["pixel_values"], [25])
    for ratio in (2, 4, 10):
        inputs = {"encoded": encoded, "question_span": expected["question_token_ranges"][:, 0], "ratio": float(ratio)}
        with torch.no_grad():
            logits = model(expected["input_ids"], **inputs).logits
        assert relative(logits[0, -16:], expected[f"logits_last16.r{ratio}"]) < 1e-4
        tokens = model.generate(expected["input_ids"], **inputs, max_new_tokens=12, do_sample=False)
        assert torch.equal(tokens[0], expected[f"generated.r{ratio}"])


def test_a_model_replays_shapes_that_come_again():
    """First as ever, then captured, then replayed: the same answer each time, and another video's own."""
    model, expected = golden_model()
    encoded = model.encode(expected["pixel_values"], [25])
    inputs = {"question_span": expected["question_token_ranges"][:, 0], "ratio": 4.0, "max_new_tokens": 12}
    turned = tuple(video.flip(0) for video in encoded)
    answers = [
        model.generate(expected["input_ids"], encoded=video, **inputs, do_sample=False)
        for video in (encoded, encoded, encoded, turned, encoded)
    ]
    for answer in (*answers[:3], answers[4]):
        assert torch.equal(answer[0], expected["generated.r4"])
    fresh, _ = golden_model()
    alone = fresh.generate(expected["input_ids"], encoded=turned, **inputs, do_sample=False)
    assert torch.equal(answers[3], alone)


@pytest.mark.parametrize("compressor", ["aviot", "uniform", "segment-mean", "none"])
def test_tokens_of_the_graph_are_those_without_it(compressor):
    """To the last bit, for another video and another question than it was captured with, without a look of the host."""
    model, expected = golden_model()
    path = model.model
    (u,) = path.encode(expected["pixel_values"], [25])
    u = u.detach()
    questions = torch.randn(2, path.config.text_config.hidden_size, device="cuda")
    how = {"budget": 4.0, "method": compressor}
    for _ in range(2):
        path.video_tokens(u[None], questions, (0, 0), **how)
    other, asked = u.flip(0)[None], questions.flip(0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        replayed = path.video_tokens(other, asked, (0, 0), **how)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    with torch.no_grad():
        eager = path._to_tokens((0, 0), Budget(ratio=4), path.method(compressor), other, asked)
        assert torch.equal(replayed.tokens, eager.tokens)
    assert len(path._replays._graphs) == (compressor != "none")  # without one there is nothing worth a graph


def test_streams_that_share_a_graph_wait_for_each_other():
    model, expected = golden_model()
    path = model.model
    (u,) = path.encode(expected["pixel_values"], [25])
    videos = [u.detach()[None], u.detach().flip(0)[None]]
    question = torch.randn(1, path.config.text_config.hidden_size, device="cuda")
    alone = [path.video_tokens(video, question, (0,), budget=4.0) for video in videos]
    torch.cuda.synchronize()
    streams, found = [torch.cuda.Stream() for _ in videos], []
    for number in range(8):
        with torch.cuda.stream(streams[number % 2]):
            found.append(path.video_tokens(videos[number % 2], question, (0,), budget=4.0))
    torch.cuda.synchronize()
    assert all(torch.equal(made.tokens, alone[number % 2].tokens) for number, made in enumerate(found))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("compressor", ["aviot", "uniform", "segment-mean", "none"])
def test_no_answer_from_features_that_are_not_finite(compressor, bad):
    """Eager, captured and replayed, with sound videos before, between and after."""
    model, expected = golden_model()
    (u,) = model.encode(expected["pixel_values"], [25])
    sound = u.detach()
    spoilt = sound.clone()
    spoilt[11, 300, 5] = bad
    how = {"question_span": expected["question_token_ranges"][:, 0], "ratio": 4.0, "compressor": compressor}

    def answer(video):
        return model.generate(expected["input_ids"], encoded=[video], **how, max_new_tokens=4, do_sample=False)

    with pytest.raises(ValueError, match="not finite"):
        answer(spoilt)
    first = answer(sound)
    for _ in range(3):
        with pytest.raises(ValueError, match="not finite"):
            answer(spoilt)
        assert torch.equal(answer(sound), first)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    "name", ["connector.projector.2.weight", "compressor.gate.3.bias", "compressor.metric.embed.0.bias"]
)
def test_a_replayed_graph_notices_weights_that_turn_bad(name, bad):
    model, expected = golden_model()
    (u,) = model.encode(expected["pixel_values"], [25])
    how = {"question_span": expected["question_token_ranges"][:, 0], "ratio": 4.0, "encoded": [u.detach()]}
    for _ in range(3):
        model.generate(expected["input_ids"], **how, max_new_tokens=2, do_sample=False)
    with torch.no_grad():
        model.model.get_parameter(name).flatten()[0] = bad
    for _ in range(2):
        with pytest.raises(ValueError, match="not finite"):
            model.generate(expected["input_ids"], **how, max_new_tokens=2, do_sample=False)
