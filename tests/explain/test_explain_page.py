"""The page in a browser, opened from disk."""

import base64
import zlib

import numpy as np
import pytest
from showing import DESKTOP, PHONE, QUESTIONS, serious_faults

from aviot.bundled import FOREIGN
from aviot.explain.maps import deflated, opacity
from aviot.methods.aviot.analysis import agreement, mass_inside, top_cells

OUTLINED = """async (canvas) => {
  await new Promise((done) => setTimeout(done, 100));
  const pixels = (source) => source.getImageData(0, 0, canvas.width, canvas.height).data;
  const bare = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
  const picture = document.querySelector(".thumb[aria-pressed='true'] img");
  await picture.decode();
  bare.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const [drawn, plain] = [pixels(canvas.getContext("2d")), pixels(bare)];
  let count = 0, change = 0;
  for (let n = 0; n < drawn.length; n += 4) {
    const here = [0, 1, 2].reduce((sum, colour) => sum + Math.abs(drawn[n + colour] - plain[n + colour]), 0);
    count += here > 6;
    change += here;
  }
  return [count, change];
}"""  # pixels of a frame that an outline changed, and by how much in all


def numbers_of(shown, section):
    """Open a section's first table of numbers and return its cells."""
    details = shown.page.locator(f"#{section} details.numbers").first
    details.locator("summary").click()
    return [row.split("\t") for row in details.locator("tbody").inner_text().splitlines()]


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_it_opens_quietly(case, opened, size, scheme):
    shown = opened(case.report, size, scheme)
    shown.page.wait_for_timeout(200)
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith(("file:", "data:"))] == []
    assert not shown.overflows()
    open_all_details(shown)
    assert not shown.overflows()


def open_all_details(shown):
    shown.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    shown.page.wait_for_selector("#compare details table")


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_axe_finds_no_serious_fault(case, opened, size, scheme):
    shown = opened(case.report, size, scheme)
    open_all_details(shown)
    repeated = "document.querySelectorAll('tr:nth-child(n+4)')"  # rows like those above them
    shown.page.evaluate(f"{repeated}.forEach((row) => row.remove())")
    assert serious_faults(shown.page) == []


def test_questions_are_shown_as_they_were_typed(case, opened):
    shown = opened(case.report | {"name": "a \"quoted\" <b>'file'</b>.mp4"}, name="a \"quoted\" 'file'.html")
    assert shown.page.evaluate("window.broken") is None
    assert shown.page.locator(".question").all_inner_texts() == list(QUESTIONS)
    assert shown.text(".file") == "a \"quoted\" <b>'file'</b>.mp4"
    assert "a \"quoted\" <b>'file'</b>.mp4" in shown.page.title()
    assert shown.complaints == []


def test_a_phone_shows_whole_tables_and_rows_that_can_be_hit(case, opened):
    shown = opened(case.report, PHONE)
    for box in shown.page.locator("#budgets .scroll, #paths .worded, #compare .worded").all():
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth + 1"), box
    grow = "holder => (holder.style.minHeight = '280px', holder.clientHeight)"  # as of 35 supports or more
    assert shown.page.locator(".matrix-holder").evaluate(grow) == 280
    assert not shown.overflows()


def test_a_long_question_leaves_room_for_the_rest(case, opened):
    shown = opened(case.report | {"questions": ["Why? " * 1000, "short"]}, PHONE)
    first, second = shown.page.locator(".question").all()
    assert first.bounding_box()["height"] < 300
    first.focus()
    shown.page.keyboard.press("End")
    shown.page.wait_for_function("document.querySelector('.question').scrollTop > 100")
    assert second.get_attribute("tabindex") is None
    assert second.get_attribute("dir") == "auto"


def test_choosing_a_support_a_frame_a_patch_and_the_second_question(case, opened):
    shown = opened(case.report)
    page, view = shown.page, case.views[0]
    page.locator("#support-number").fill("2")
    best = int(view.frames[2].argmax())
    shown.ready(0, 2, best)
    assert shown.text("#support .now").startswith("Support 2 of 3")
    rows = numbers_of(shown, "support")
    assert [float(row[2]) for row in rows] == pytest.approx(view.frames[2].tolist(), abs=1e-6)
    page.locator('.thumb[data-frame="5"]').click()
    shown.ready(0, 2, 5)
    assert "Frame 5, at 2.5 s" in shown.text("#frame .now")
    assert "From frame 5" in shown.text("#paths .now")
    canvas = page.locator("#frame canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * (4.5 / 27), "y": box["height"] * (13.5 / 27)})
    shown.ready(0, 2, 5, 13 * 27 + 4)
    assert "row 13, column 4 of frame 5" in shown.text("#frame .now")
    traced = [float(row[1]) for row in numbers_of(shown, "frame")]
    assert traced == pytest.approx(view.coefficients[:, 13 * 27 + 4, 5].tolist(), abs=0.005)
    before = page.locator(".matrix").evaluate("canvas => canvas.toDataURL()")
    page.locator('[data-condition="3"]').click()
    shown.ready(3, 2, 5, 13 * 27 + 4)
    assert page.locator(".matrix").evaluate("canvas => canvas.toDataURL()") != before
    assert page.locator('[data-condition="3"]').get_attribute("aria-pressed") == "true"
    assert page.locator("#condition").input_value() == "3"


def test_the_keyboard_is_enough(case, opened):
    shown = opened(case.report)
    page = shown.page
    page.locator('.thumb[aria-pressed="true"]').focus()
    page.keyboard.press("Home")
    page.wait_for_selector('.thumb[data-frame="0"][aria-pressed="true"]')
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('.thumb[data-frame="1"][aria-pressed="true"]:focus')
    page.locator("#patch-row").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('#frame .now').textContent.includes('row 1, column 0')")
    page.locator("#support-number").focus()
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelector('#support .now').textContent.startsWith('Support 0 ')")
    page.locator("#condition").select_option("2")
    page.wait_for_selector('[data-condition="2"][aria-pressed="true"]')


def test_frames_that_came_through_as_they_were_have_no_outline(explained, opened):
    case = explained(12, ratio=1.5)
    shown, view, kinds = opened(case.report), case.views[0], set()
    for support in range(case.report["supports"]):
        frame = int(view.frames[support].argmax())
        fused = view.mass[:, support, :, frame].sum(0).double()
        even = float(mass_inside(fused, top_cells(fused))) < 146 / 729 + 1e-4
        shown.page.locator("#support-number").fill(str(support))
        shown.ready(0, support, frame)
        assert ("so none is outlined" in shown.text("#support .gallery figure >> nth=0")) == even
        assert ("with the fifth of the positions" in shown.text("#support .two figure >> nth=0")) != even
        count, _ = shown.page.locator("#support .two canvas >> nth=0").evaluate(OUTLINED)
        assert (count > 500) != even
        kinds.add(even)
    assert kinds == {True, False}


def with_share_in_top(report, share):
    """Return a report that gives the outlined fifth of every fused map this share of its mass."""
    views = []
    for view in report["views"]:
        figures = np.frombuffer(zlib.decompress(base64.b64decode(view["figures"])), "<u2").reshape(-1, 4).copy()
        figures[:, 0] = round(share * report["figure_steps"])
        views.append(view | {"figures": deflated(figures)})
    return report | {"views": views}


def test_outlines_fade_where_the_outlined_fifth_holds_about_a_fifth(case, opened):
    changes = {}
    for share in (0.21, 0.3, 0.9):
        shown = opened(with_share_in_top(case.report, share))
        _, changes[share] = shown.page.locator("#support .two canvas >> nth=0").evaluate(OUTLINED)
        said = shown.text("#support .gallery figure >> nth=0")
        assert f"the outlined fifth of the positions holds {100 * share:.1f} %" in said
        assert ("drawn faintly" in said) == (opacity(share) < 0.6)
    for share in (0.21, 0.3):
        assert changes[share] / changes[0.9] == pytest.approx(opacity(share), abs=0.05)


def test_maps_of_the_paths_say_what_their_outlines_hold(case, opened):
    shown, condition = opened(case.report), case.study.conditions[0]
    maps = case.views[0].mass[:, condition.support, :, condition.frame].double()
    for level, each in enumerate(maps):
        share = float(mass_inside(each, top_cells(each)))
        said = shown.text(f"#paths .gallery figure >> nth={level}")
        assert f"its outlined fifth holds {100 * share:.0f}"[:-1] in said
        assert ("drawn faintly" in said) == (opacity(share) < 0.6)


def test_who_answered_is_said_with_a_notice_where_there_is_one(case, opened):
    name = "<b>mine</b> & 'yours' " + "long" * 40
    for size, scheme in ((DESKTOP, "light"), (PHONE, "dark")):
        report = case.report | {"model": {"name": name, "facts": "7 B parameters"}, "notice": FOREIGN}
        shown = opened(report, size, scheme)
        assert shown.text(".model strong") == name
        assert "7 B parameters" in shown.text(".model")
        assert shown.text(".notice") == FOREIGN
        assert shown.page.locator(".notice").bounding_box()["y"] < size[1]  # without scrolling
        assert not shown.overflows()
        assert shown.complaints == []
    assert opened(case.report).page.locator(".notice").count() == 0


def test_every_answer_opens_with_its_own_support_until_one_is_chosen(case, opened):
    conditions = [dict(each) for each in case.report["conditions"]]
    conditions[0] |= {"support": 2, "frame": 7}
    conditions[3] |= {"support": 0, "frame": 1}
    shown = opened(case.report | {"conditions": conditions})
    shown.ready(0, 2, 7)
    shown.page.locator('[data-condition="3"]').click()
    shown.ready(3, 0, 1)
    shown.page.locator("#support-number").fill("1")
    frame = int(case.views[1].frames[1].argmax())
    shown.ready(3, 1, frame)
    shown.page.locator('[data-condition="0"]').click()
    shown.ready(0, 1, frame)


def test_touch_chooses_on_the_map(case, opened):
    shown = opened(case.report, PHONE)
    holder = shown.page.locator(".matrix-holder")
    holder.scroll_into_view_if_needed()
    box = holder.bounding_box()
    shown.page.touchscreen.tap(box["x"] + box["width"] * (7.5 / 12), box["y"] + box["height"] * (1.5 / 3))
    shown.ready(0, 1, 7)


def test_the_paths_figures_are_the_librarys(case, opened):
    shown = opened(case.report)
    shown.page.locator("#support-number").fill("1")
    frame = int(case.views[0].frames[1].argmax())
    shown.ready(0, 1, frame)
    exact = agreement(case.views[0].mass[:, 1, :, frame].double(), (27, 27))
    said = shown.text("#paths table >> nth=0")
    assert f"{float(exact.overlap):.3f}" in said
    assert f"{float(exact.centroid_mean):.3f}" in said
    assert f"{float(exact.divergence):.3f} bits" in said
    for name, share in zip(case.views[0].names, exact.shares, strict=True):
        assert f"Share of the {name} path" in said
        assert f"{100 * float(share):.1f} %" in said


@pytest.mark.parametrize(
    ("frames", "ratio", "shape", "compressor", "supports"),
    [
        (1, 4.0, {}, "aviot", 1),  # one frame
        (12, 1.01, {}, "aviot", 12),  # nothing to compress
        (6, 20.0, {"height": 96, "width": 40}, "aviot", 1),  # K = 1, portrait
        (6, 2.0, {}, "uniform", 3),  # a baseline
    ],
)
def test_awkward_videos(explained, opened, frames, ratio, shape, compressor, supports):
    case = explained(frames, ratio=ratio, compressor=compressor, **shape)
    shown = opened(case.report, PHONE)
    assert shown.complaints == []
    assert not shown.overflows()
    assert len(shown.page.locator(".thumb").all()) == frames
    rows = numbers_of(shown, "map")
    assert len(rows) == supports
    assert all(sum(map(float, row[1:])) == pytest.approx(1, abs=1e-4) for row in rows)
    box = shown.page.locator("#frame canvas").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(case.report["size"][0] / case.report["size"][1], rel=0.02)
    shown.page.locator("#patch-column").focus()
    shown.page.keyboard.press("ArrowRight")
    shown.page.wait_for_function("document.querySelector('#frame .now').textContent.includes('row 0, column 1')")
    assert shown.complaints == []
