// One support: its curve over time, its strongest frames, its map over the patches of one of them.

const LARGE_FRAMES = 4;

const gridRows = (report, values) => Array.from({ length: report.grid[0] }, (_, row) =>
  [String(row), ...Array.from({ length: report.grid[1] }, (_, column) => decimal(values[row * report.grid[1] + column], 5))]);
const gridHead = (report) => ["Row", ...Array.from({ length: report.grid[1] }, (_, column) => `Column ${column}`)];

const tooLittle = (view, support, frame) =>
  `Support ${support} took ${view.weight(support, frame) ? "next to nothing" : "nothing"} from frame ${frame}: there is no map to draw. Choose one of its strongest frames.`;

// What the outlined fifth of the positions holds of a frame's share in a support, in words.
const outlinedShare = (report, view, support, frame) => {
  if (view.even(support, frame)) return "even: all positions gave alike, so none is outlined";
  const share = view.figure("mass_in_top", support, frame);
  return `the outlined fifth of the positions holds ${percent(share)} of that${faintly(report, share)}`;
};
const boldnessOf = (report, view, support, frame) => boldness(report, view.figure("mass_in_top", support, frame));
const outline = (report, stage, view, support, frame) => {
  if (view.place(support, frame) !== undefined && !view.even(support, frame))
    stage.contour(view.top(-1, support, frame), OUTLINE, boldnessOf(report, view, support, frame));
};

const supportPanel = (report, pictures, choose) => {
  const title = el("h3", { class: "now", "aria-live": "polite" });
  const curve = new Chart({ label: "", pick: (frame) => choose({ frame, patch: null }) });
  const gallery = el("div", { class: "gallery" });
  const field = new Stage(report, { width: 540, square: true, label: "" });
  const fieldText = el("figcaption");
  const fieldFigure = el("figure", {}, field.canvas, legend("nothing", "the most"), fieldText);
  const chosen = new Stage(report, { label: "" }), chosenText = el("figcaption");
  let state = null;
  const curveTable = numbers(() => [`Shares of frames in support ${state.support}`, ["Frame", "Time", "Share (ω)", ...(state.view.paths.length > 1 ? state.view.paths.map((name) => `by the ${name} path`) : [])],
    report.times.map((time, frame) => [String(frame), seconds(time), decimal(state.view.weight(state.support, frame), 6),
      ...(state.view.paths.length > 1 ? state.view.paths.map((_, level) => decimal(state.view.path(level, state.support, frame), 6)) : [])])]);
  const fieldTable = numbers(() => {
    const { view, support, frame } = state;
    const known = view.place(support, frame) !== undefined;
    return [`Weight of every patch of frame ${frame} in support ${support}`, gridHead(report), known ? gridRows(report, view.fused(support, frame)) : []];
  });
  const largeFrame = (frame) => {
    const { view, support } = state, known = view.place(support, frame) !== undefined;
    const inside = known ? `; ${outlinedShare(report, view, support, frame)}` : "";
    const caption = `Frame ${frame}, ${seconds(report.times[frame])}: ${percent(view.weight(support, frame))} of the support${inside}`;
    const stage = new Stage(report, { label: caption });
    stage.paint(pictures, frame, () => outline(report, stage, view, support, frame));
    return el("figure", {}, el("button", { type: "button", class: "plain", "aria-label": `Choose frame ${frame}`, "aria-pressed": String(frame === state.frame), onclick: () => choose({ frame, patch: null }) }, stage.canvas),
      el("figcaption", {}, caption));
  };
  let drawn = null;
  return {
    element: section("support", "A closer look at one support",
      "Its curve over the video (the paper's ω), the frames that gave most with the fifth of the positions that gave most of each outlined, and every position of the chosen frame. An answer opens with the support that holds most of what its question is about. Outlines and maps fade where the outlined fifth holds little more than a fifth: they say next to nothing.",
      title, curve.element, curveTable.element, el("h3", {}, "Its strongest frames"), gallery,
      el("h3", {}, "The chosen frame, position by position"),
      el("div", { class: "two" }, el("figure", {}, chosen.canvas, chosenText), fieldFigure), fieldTable.element),
    update: (now) => {
      state = now;
      const { view, support, frame } = state;
      const best = view.strongest(support, LARGE_FRAMES);
      title.textContent = `Support ${support} of ${report.supports} (counted from 0), strongest at ${seconds(report.times[best[0]])}`;
      curve.show([{ values: view.row(support), kind: "series0" }], { ticks: timeTicks(report), bands: segmentBands(report), marker: frame,
        label: `Share of every frame in support ${support}; most from frame ${best[0]}, ${percent(view.weight(support, best[0]))}` });
      const key = `${report.views.indexOf(view.raw)} ${support}`;
      if (key !== drawn) gallery.replaceChildren(...best.map(largeFrame));
      gallery.querySelectorAll("button").forEach((button, n) => button.setAttribute("aria-pressed", String(best[n] === frame)));
      drawn = key;
      const known = view.place(support, frame) !== undefined;
      const values = known ? view.fused(support, frame) : null;
      fieldText.textContent = known
        ? `${report.grid[0]} × ${report.grid[1]} positions of frame ${frame} in support ${support}: up to ${percent(values.reduce((a, b) => Math.max(a, b)))} of a position, ${percent(view.weight(support, frame))} in the mean; ${outlinedShare(report, view, support, frame)}`
        : tooLittle(view, support, frame);
      chosenText.textContent = `Frame ${frame}, ${seconds(report.times[frame])}${known && !view.even(support, frame) ? ", with the fifth of the positions that gave most" : ""}`;
      chosen.label(chosenText.textContent);
      chosen.paint(pictures, frame, () => outline(report, chosen, view, support, frame));
      field.label(fieldText.textContent);
      field.canvas.hidden = !known;
      field.paint(pictures, null, () => known && field.heat(values, boldnessOf(report, view, support, frame)));
      curveTable.update();
      fieldTable.update();
    },
  };
};
