// The whole page: sections that follow one choice of answer, support, frame and patch.

const introduction = (report) => {
  if (report.supports === report.times.length && report.tokens.after < report.tokens.before)
    return `The language model read every moment of the video with fewer tokens: ${report.tokens.after} instead of ${report.tokens.before}. This page shows which parts of the picture went into them.`;
  if (report.supports === report.times.length)
    return `The video is short enough as it is: the language model read ${report.supports === 1 ? "its one frame" : `all its ${report.supports} frames`}, and every support is a frame.`;
  const read = report.supports === 1 ? "1 support: a compressed frame, an" : `${report.supports} supports: compressed frames, each an`;
  return `Instead of ${report.times.length} frames, the language model read ${read} exact mixture of the video's. This page shows which moments and which parts of the picture went into it.`;
};

const guide = (report) =>
  el("details", { class: "guide" }, el("summary", {}, "How to read this page"),
    el("ul", {},
      el("li", {}, el("strong", {}, "Frame: "), "a picture of the video that the model encoded, with its time. Frames, supports, rows and columns are counted from 0."),
      el("li", {}, el("strong", {}, "Patch: "), `one of ${report.grid[0]} × ${report.grid[1]} squares that a frame is cut into.`),
      el("li", {}, el("strong", {}, "Support: "), "one compressed frame. It has the same patches, and each is a mixture of that patch in all frames. The language model reads supports instead of frames."),
      el("li", {}, el("strong", {}, "Share: "), "how much of a support is made from a frame. All shares of a support add up to 100 %."),
      el("li", {}, el("strong", {}, "Method: "), "the rule that decides the mixture. AVIOT does it by optimal transport and can use the question, which then moves supports to where it is answered.")));

const chooser = (report, choose) => {
  const options = report.conditions.map(({ question, kind }, number) =>
    el("option", { value: number }, `Question ${question + 1}, ${report.conditioned ? kind : report.compressor}`));
  const answer = el("select", { id: "condition", onchange: () => choose({ condition: Number(answer.value) }) }, options);
  const support = slider("support-number", "Support", report.supports - 1, (value) => choose({ support: value }));
  const frame = slider("frame-number", "Frame", report.times.length - 1, (value) => choose({ frame: value, patch: null }));
  return {
    element: el("nav", { class: "chooser", "aria-label": "What is shown" },
      el("div", { class: "slider" }, el("label", { for: "condition" }, "Answer"), answer), support.element, frame.element),
    update: (state) => {
      answer.value = state.condition;
      support.show(state.support, `${state.support}`);
      frame.show(state.frame, `${state.frame} · ${seconds(report.times[state.frame])}`);
    },
  };
};

const explore = async (root, report) => {
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
    if ("support" in change && !("frame" in change)) {
      state.frame = state.view.strongest(state.support, 1)[0] ?? state.frame;
      state.patch = null;
    }
    await state.view.load();
    for (const part of parts) part.update(state);
    root.dataset.ready = `${state.condition} ${state.support} ${state.frame} ${state.patch ?? ""}`;
  };
  const parts = [chooser(report, choose), answers(report, choose), strip(report, views, pictures, choose), supportMap(report, choose),
    supportPanel(report, pictures, choose), framePanel(report, pictures, choose), pathsPanel(report, views, pictures), comparePanel(report, views)];
  const [bar, said, video, map, support, frame, paths, compare] = parts.map((part) => part.element);
  root.replaceChildren(
    el("header", {}, el("p", { class: "eyebrow" }, "AVIOT provenance explorer"), el("h1", {}, "Where did the answer come from?"),
      el("p", { class: "file", dir: "auto" }, report.name),
      el("p", { class: "model", dir: "auto" }, "Answered by ", el("strong", {}, report.model.name), ` (${report.model.facts})`),
      report.notice && el("p", { class: "notice", role: "note" }, report.notice),
      el("p", { class: "lead" }, introduction(report)),
      guide(report)),
    bar, said, facts(report), video, budgets(report, views), map, support, frame, paths, compare, checksPanel(report, views));
  return choose({});
};
