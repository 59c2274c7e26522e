"""Notes on compressions that save no time follow from the measured parts."""

from aviot.bench.result import MethodResult, explain_slowdowns
from aviot.bench.timing import Measurement, NotMeasured

ADVICE = "Compression pays where the prefill it saves is expensive: measure with "


def row(method, before, prefill, *, factor=1.0, spread=0.0, compress=None, batch=1):
    parts = {"encode": Measurement(1.0, 0.0, 5)}
    for name, value in (("decoder_input", before), ("prefill", prefill), ("compress", compress)):
        if value is not None:
            parts[name] = Measurement(value, spread, 5)
    ratio = None if method == "none" else 4.0
    size = {"frames": 64, "batch": batch, "ratio": ratio, "supports": 16, "tokens": 480, "path": (64, 16)}
    return MethodResult(method=method, parts=parts, factor=factor, **size)


WHOLE = row("none", 10.0, 500.0)


def test_compression_that_costs_more_than_the_whole_prefill():
    slow = row("aviot", 1250.0, 120.5, factor=0.37, compress=1240.0)
    why, advice = explain_slowdowns([WHOLE, slow], size="small", device="cpu")
    assert why == (
        "64 frames, batch 1, AVIOT at ratio 4: the first token comes 0.37 times as fast as without compression, "
        "because it adds 1,240 ms before the decoder (compressing alone takes 1,240 ms) and saves 380 ms of the "
        "prefill's 500 ms. Even the whole prefill takes less than compression adds, so no ratio could pay "
        "off here."
    )
    assert advice == f"{ADVICE}size 7b, a checkpoint or a GPU."


def test_compression_that_a_higher_ratio_might_pay_for():
    slow = row("aviot", 460.0, 120.0, factor=0.86, compress=440.0)
    why, advice = explain_slowdowns([WHOLE, slow], size=None, device="cpu")
    assert why.endswith("it adds 450 ms before the decoder (compressing alone takes 440 ms) and saves 380 ms of the "
                        "prefill's 500 ms.")  # fmt: skip
    assert advice == f"{ADVICE}a GPU."


def test_a_difference_within_the_spread_is_called_one():
    slow = row("uniform", 11.5, 499.0, factor=0.99, spread=1.0, compress=0.5)
    (why, _) = explain_slowdowns([WHOLE, slow], size="7b", device="cuda")
    assert why.endswith("The difference of 0.50 ms is within the spread of the timed runs.")


def test_a_prefill_that_takes_longer_is_not_called_a_saving():
    (why, advice) = explain_slowdowns([WHOLE, row("uniform", 4.0, 520.0, factor=0.9)], size=None, device="cuda")
    assert why.endswith("because it saves 6.00 ms before the decoder and adds 20.00 ms to the prefill's 500 ms.")
    assert advice == "Prefill grows with the square of its tokens: measure more frames."


def test_each_setting_is_compared_with_its_own_uncompressed_row():
    rows = [WHOLE, row("aviot", 20.0, 100.0, factor=4.0), row("none", 10.0, 50.0, batch=2)]
    why, _ = explain_slowdowns([*rows, row("aviot", 90.0, 20.0, factor=0.55, batch=2)], size="small", device="cpu")
    assert why.startswith("64 frames, batch 2, AVIOT at ratio 4: ")
    assert "adds 80.00 ms before the decoder and saves 30.00 ms of the prefill's 50.00 ms" in why


def test_fast_or_unmeasured_rows_need_no_explanation():
    unmeasured = row("aviot", 20.0, None, factor=None)
    unmeasured.parts["prefill"] = NotMeasured("out of memory")
    rows = [WHOLE, row("aviot", 20.0, 100.0, factor=4.0), unmeasured]
    assert explain_slowdowns(rows, size="small", device="cpu") == ()
    assert explain_slowdowns(rows, size="tiny", device="cuda") == ()
    assert explain_slowdowns(rows, size=None, device="cpu") == ()


def test_tiny_weights_on_a_cpu_are_called_that_even_where_compression_pays():
    (note,) = explain_slowdowns([WHOLE, row("aviot", 20.0, 100.0, factor=4.0)], size="tiny", device="cpu")
    assert note == (
        "Tiny random weights on a CPU show that everything runs, not what compression saves in a real model. "
        f"{ADVICE}size small, size 7b, a checkpoint or a GPU."
    )
