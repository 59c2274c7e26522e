"""The page in a browser, opened from disk."""

import base64
import zlib

import numpy as np
import pytest
from showing import DESKTOP, PHONE, QUESTIONS, serious_faults

from aviot.bundled import FOREIGN
from aviot.explain.maps import EVEN, deflated, opacity
from aviot.methods.aviot.analysis import agreement, mass_inside, top_cells

OUTLINED = """async (canvas) => {
  await new Promise((done) => setTimeout(done, 100));
  const pixels = (source) => source.getImageData(0, 0, canvas.width, canvas.height).data;
  const bare = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
  const picture = document.querySelector("#support .gallery [aria-pressed='true'] img");
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
    details.locator("tbody tr").first.wait_for()
    cells = "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    return details.locator("tbody tr").evaluate_all(cells)


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_it_opens_quietly(case, opened, size, scheme):
    shown = opened(case.report, size, scheme)
    shown.page.wait_for_timeout(200)
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert not shown.overflows()
    open_all_details(shown)
    assert not shown.overflows()


def open_all_details(shown, *, tables=True):
    which = "details" if tables else "details.part"
    shown.page.evaluate(f"document.querySelectorAll('{which}').forEach((each) => {{ each.open = true; }})")
    if tables:
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
    assert shown.page.locator("#first .question").all_inner_texts() == list(QUESTIONS)
    assert shown.text(".file") == "a \"quoted\" <b>'file'</b>.mp4"
    assert "a \"quoted\" <b>'file'</b>.mp4" in shown.page.title()
    assert shown.complaints == []


def test_nothing_scrolls_inside_the_page(case, opened):
    shown = opened(case.report, PHONE)
    open_all_details(shown)
    inner = """() => [...document.querySelectorAll("#explorer *")].filter((each) =>
      each.clientHeight && /auto|scroll/.test(getComputedStyle(each).overflow)
      && (each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1))
      .map((each) => each.className)"""
    assert shown.page.evaluate(inner) == []
    grow = "holder => (holder.style.minHeight = '280px', holder.clientHeight)"  # as of 35 supports or more
    assert shown.page.locator(".matrix-holder").evaluate(grow) == 280
    assert not shown.overflows()


def test_a_long_question_leaves_room_for_the_rest(case, opened):
    shown = opened(case.report | {"questions": ["Why? " * 1000, "short"]}, PHONE)
    first, second = shown.page.locator("#first .question").all()
    assert first.bounding_box()["height"] < 300
    first.locator(".more").focus()
    shown.page.keyboard.press("Enter")
    assert first.inner_text().count("Why?") == 1000
    assert second.inner_text() == "short"
    assert second.get_attribute("dir") == "auto"


def test_choosing_a_support_a_frame_a_patch_and_the_second_question(case, opened):
    shown = opened(case.report)
    page, view = shown.page, case.views[0]
    open_all_details(shown, tables=False)
    page.locator("#support-number").fill("2")
    best = int(view.frames[2].argmax())
    shown.ready(0, 2, best)
    assert shown.text("#support .now").startswith("Support 2: ")
    assert page.locator('.tile[data-support="2"]').get_attribute("aria-pressed") == "true"
    rows = numbers_of(shown, "support")
    assert [float(row[2]) for row in rows] == pytest.approx(view.frames[2].tolist(), abs=1e-6)
    page.locator("#frame-number").fill("5")
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
    page.locator('#first [data-condition="3"]').click()
    shown.ready(3, 2, 5, 13 * 27 + 4)
    assert page.locator(".matrix").evaluate("canvas => canvas.toDataURL()") != before
    assert page.locator('[data-condition="3"]').get_attribute("aria-pressed") == "true"
    assert page.locator("#condition").input_value() == "3"


def test_the_keyboard_is_enough(case, opened):
    shown = opened(case.report)
    page = shown.page
    page.locator("#first .timeline").focus()
    page.keyboard.press("Home")
    page.wait_for_selector('#first .timeline[data-frame="0"]:focus')
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('#first .timeline[data-frame="1"]:focus')
    page.locator('.tile[aria-pressed="true"]').focus()
    page.keyboard.press("End")
    page.wait_for_selector('.tile[data-support="2"][aria-pressed="true"]:focus')
    page.keyboard.press("Home")
    page.wait_for_selector('.tile[data-support="0"][aria-pressed="true"]:focus')
    open_all_details(shown, tables=False)
    page.locator("#patch-row").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#frame .now:has-text('row 1, column 0')")
    page.locator("#support-number").focus()
    page.keyboard.press("End")
    page.wait_for_selector("#support .now:has-text('Support 2:')")
    page.locator("#condition").select_option("2")
    page.wait_for_selector('#explorer[data-ready^="2 "]')


@pytest.mark.parametrize(("size", "scheme"), [((390, 844), "dark"), ((1440, 900), "light")])
def test_the_first_screen_says_it_all(case, opened, size, scheme):
    shown = opened(case.report | {"notice": FOREIGN}, size, scheme)
    for each in (".screen", ".timeline", ".answer .said", ".model strong", ".notice", ".counter", ".sentence"):
        box = shown.page.locator(f"#first {each}").first.bounding_box()
        assert box["y"] >= 0, each
        assert box["y"] + box["height"] <= size[1], each
    condition = case.report["conditions"][0]
    assert shown.text("#first .answer >> nth=0") == (condition["answer"] or "(an empty answer)")
    shown.page.wait_for_selector(f"#first .after:text-is('{condition['tokens'][1]:,}')")
    assert f"{condition['tokens'][0]:,}" in shown.text("#first .counter")
    assert shown.text("#first .sentence") == f"{condition['sentence']}."


def test_the_video_plays_and_follows_the_timeline(case, opened):
    shown = opened(case.report)
    page, timeline = shown.page, shown.page.locator("#first .timeline")
    page.wait_for_function("() => document.querySelector('video.screen').readyState >= 2")
    timeline.scroll_into_view_if_needed()
    box = timeline.bounding_box()
    x = box["x"] + 8 + (box["width"] - 16) * 7 / 12
    page.mouse.move(x, box["y"] + 40)
    assert "0:03" in shown.text("#first .tip")
    page.mouse.click(x, box["y"] + 40)
    page.wait_for_selector('#first .timeline[data-frame="7"]')
    page.wait_for_function("() => Math.abs(document.querySelector('video.screen').currentTime - 3.5) < 0.02")
    support = int(case.views[0].frames[:, 7].argmax())
    shown.ready(0, support, 7)
    page.get_by_role("button", name="Play the video").click()
    page.wait_for_function("() => document.querySelector('video.screen').currentTime > 3.6")
    assert page.get_by_role("button", name="Pause the video").count() == 1
    assert shown.complaints == []


def test_without_a_copy_the_pictures_play(case, opened):
    shown = opened(case.report | {"clip": None})
    first = shown.page.locator("img.screen").get_attribute("src")
    shown.page.locator("#first .timeline").focus()
    shown.page.keyboard.press("End")
    shown.page.wait_for_function("first => document.querySelector('img.screen').src !== first", arg=first)
    assert "12 frames" in shown.text("#first .clip-note")


def test_a_link_opens_what_was_chosen(case, opened, tmp_path):
    shown = opened(case.report)
    page = shown.page
    page.locator('#first [data-condition="3"]').click()
    page.locator('.tile[data-support="1"]').click()
    page.wait_for_selector('#explorer[data-ready^="3 1 "]')
    frame = int(case.views[1].frames[1].argmax())
    assert page.url.endswith(f"#answer=3&support=1&frame={frame}")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    shown.ready(3, 1, frame)
    page.goto(address.partition("#")[0] + "#answer=99&support=x&frame=2")
    page.wait_for_selector('#explorer[data-ready$=" 2 "]')
    assert shown.complaints == []


def test_words_are_explained_where_they_stand(case, opened):
    page = opened(case.report).page
    button = page.get_by_role("button", name="3 supports")
    button.click()
    assert "One compressed frame" in page.locator("#support .definition").first.inner_text()
    assert button.get_attribute("aria-expanded") == "true"
    button.click()
    assert not page.locator("#support .definition").first.is_visible()


def test_two_compressions_are_compared(explained, opened):
    case = explained(12, QUESTIONS, also=("uniform", "vidcom2-exact"))
    shown = opened(case.report)
    page = shown.page
    names = page.locator("#versus-1 option").all_inner_texts()
    assert len(names) == len(case.report["conditions"]) + 4
    page.locator("#versus-1").select_option(str(len(case.report["conditions"]) + 2))  # vidcom2-exact, question 1
    other = case.study.alternatives[2]
    assert other.method == "vidcom2-exact"
    assert f"{other.tokens[1]:,} tokens" in shown.text("#versus .side1 .totals")
    moved = np.abs(case.views[0].spent.numpy() - np.array(other.spent)).sum() / 2
    assert f"{100 * moved:.1f} % of the tokens" in shown.text("#versus > .sentence")
    assert page.locator("#versus .mark").count() > 0


def with_share_in_top(report, share):
    """Return a report that gives the outlined fifth of every fused map this share of its mass."""
    views = []
    for view in report["views"]:
        figures = np.frombuffer(zlib.decompress(base64.b64decode(view["figures"])), "<u2").reshape(-1, 4).copy()
        figures[:, 0] = round(share * report["figure_steps"])
        views.append(view | {"figures": deflated(figures)})
    return report | {"views": views}


@pytest.mark.parametrize("share", [0.25, 0.27])
def test_nearly_uniform_maps_are_named_and_not_outlined(case, opened, share):
    shown = opened(with_share_in_top(case.report, share))
    even = share < EVEN
    assert ("so none is outlined" in shown.text("#support .words")) == even
    count, _ = shown.page.locator("#support .large canvas").evaluate(OUTLINED)
    assert (count > 500) != even
    assert shown.page.locator("#opacity").is_disabled() == even


def test_outlines_fade_where_the_outlined_fifth_holds_about_a_fifth(case, opened):
    changes = {}
    for share in (0.27, 0.3, 0.9):
        shown = opened(with_share_in_top(case.report, share))
        _, changes[share] = shown.page.locator("#support .large canvas").evaluate(OUTLINED)
        said = shown.text("#support .words")
        assert f"the outlined fifth of the picture holds {100 * share:.1f} %" in said
        assert ("drawn faintly" in said) == (opacity(share) < 0.6)
    assert changes[0.27] < changes[0.3] < changes[0.9]


def test_the_heat_map_has_a_slider(case, opened):
    page = opened(with_share_in_top(case.report, 0.9)).page
    canvas = page.locator("#support .large canvas")
    page.locator("#opacity").fill("0")
    bare = canvas.evaluate(OUTLINED)[1]
    page.locator("#opacity").fill("100")
    assert canvas.evaluate(OUTLINED)[1] > 2 * bare


def test_maps_of_the_paths_say_what_their_outlines_hold(case, opened):
    shown, condition = opened(case.report), case.study.conditions[0]
    maps = case.views[0].mass[:, condition.support, :, condition.frame].double()
    for level, each in enumerate(maps):
        share = float(mass_inside(each, top_cells(each)))
        said = shown.text(f"#paths .gallery figure >> nth={level}")
        assert f"fifth holds {100 * share:.0f}"[:-1] in said
        assert ("nearly uniform" in said) == (share < EVEN)
        assert ("drawn faintly" in said) == (share >= EVEN and opacity(share) < 0.6)


def test_who_answered_is_said_with_a_notice_where_there_is_one(case, opened):
    name = "<b>mine</b> & 'yours' " + "long" * 40
    for size, scheme in ((DESKTOP, "light"), (PHONE, "dark")):
        report = case.report | {"model": {"name": name, "facts": "7 B parameters"}, "notice": FOREIGN}
        shown = opened(report, size, scheme)
        assert shown.text("#first .model strong >> nth=0") == name
        assert ("7 B parameters" in shown.text(".model")) == (size == DESKTOP)
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
    shown.page.locator('#first [data-condition="3"]').click()
    shown.ready(3, 0, 1)
    shown.page.locator("#support-number").fill("1")
    frame = int(case.views[1].frames[1].argmax())
    shown.ready(3, 1, frame)
    shown.page.locator('#first [data-condition="0"]').click()
    shown.ready(0, 1, frame)


def test_touch_chooses_on_the_map(case, opened):
    shown = opened(case.report, PHONE)
    open_all_details(shown, tables=False)
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
    open_all_details(shown)
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
    open_all_details(shown, tables=False)
    assert int(shown.page.get_attribute("#first .timeline", "aria-valuemax")) == frames - 1
    assert len(shown.page.locator(".tile").all()) == supports
    rows = numbers_of(shown, "map")
    assert len(rows) == supports
    assert all(sum(map(float, row[1:])) == pytest.approx(1, abs=1e-4) for row in rows)
    box = shown.page.locator("#frame canvas").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(case.report["size"][0] / case.report["size"][1], rel=0.02)
    shown.page.locator("#patch-column").focus()
    shown.page.keyboard.press("ArrowRight")
    shown.page.wait_for_selector("#frame .now:has-text('row 0, column 1')")
    assert shown.complaints == []
