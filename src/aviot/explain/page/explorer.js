// The whole page: sections that follow one choice of answer, support, frame and patch.

const chooser = (report, choose) => {
  const support = slider("support-number", Unit(report), 0, (value) => choose({ support: value }));
  const frame = slider("frame-number", "Frame", report.times.length - 1, (value) => choose({ frame: value, patch: null }));
  return {
    element: el("nav", { class: "chooser", "aria-label": "What is shown below" }, support.element, frame.element),
    update: (state) => {
      support.limit(state.view.supports - 1);
      support.show(state.support, `${state.support}`);
      frame.show(state.frame, `${state.frame} · ${seconds(report.times[state.frame])}`);
    },
  };
};

const explore = async (root, report, options = {}) => {
  const views = await Promise.all(report.views.map((raw) => View.open(raw, report)));
  const pictures = new Pictures(report);
  // Every answer opens with the support and the frame that hold most of what its question is about, until the reader
  // chooses others: those stay, so that answers can be compared.
  const state = { condition: 0, patch: null };
  let chosen = false;
  const choose = async (change) => {
    Object.assign(state, change);
    chosen ||= "support" in change || "frame" in change || "patch" in change;
    const condition = report.conditions[state.condition];
    state.view = views[condition.view];
    if (!chosen) Object.assign(state, { support: condition.support, frame: condition.frame });
    state.support = Math.min(state.support ?? condition.support, state.view.supports - 1);
    if ("support" in change && !("frame" in change)) {
      state.frame = state.view.strongest(state.support, 1)[0] ?? state.frame;
      state.patch = null;
    }
    state.frame ??= condition.frame;
    await state.view.load();
    for (const part of parts) part.update(state);
    if (Object.keys(change).length && options.linked !== false) writeLink(state);
    root.dataset.ready = `${state.condition} ${state.support} ${state.frame} ${state.patch ?? ""}`;
  };
  const first = firstScreen(report, views, pictures, choose, options);
  const pick = (frame) => choose({ frame, patch: null });
  const parts = [first, supportPanel(report, views, pictures, choose), pathsPanel(report, views, pictures), versusPanel(report, views, { pick }),
    chooser(report, choose), supportMap(report, choose), framePanel(report, pictures, choose), comparePanel(report, views)];
  const [start, support, paths, versus, bar, map, frame, compare] = parts.map((part) => part.element);
  root.replaceChildren(
    el("header", { class: "top" }, el("p", { class: "eyebrow" }, "AVIOT"), el("h1", { class: "file", dir: "auto" }, report.name), el("p", { class: "length" }, clock(report.duration))),
    start, support, ...[paths].filter(Boolean), versus,
    el("section", { id: "numbers", "aria-labelledby": "numbers-title" }, el("h2", { id: "numbers-title" }, "All the numbers"),
      el("p", { class: "lead" }, "For those who want to check: every chart has its table, and every number here is the library's. Frames, rows and columns are counted from 0, as in the paper's figures."),
      facts(report), bar, map, frame, budgets(report, views), compare, checksPanel(report, views)));
  const linked = options.linked !== false;
  if (linked) globalThis.addEventListener("hashchange", () => choose(readLink(report)));
  await choose(linked ? readLink(report) : {});
  return { choose, player: first.player };
};
