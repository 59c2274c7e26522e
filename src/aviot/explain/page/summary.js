// The answers, the key figures, and the budgets of the segments.

const CONDITIONS = {
  matched: "The video was compressed for this question (matched)",
  rotated: "The video was compressed for another question (rotated)",
  none: "The video was compressed for no question (none)",
};

const LONG_QUESTION = 300; // letters: longer ones scroll, with the keyboard too

const viewName = (report, view) => (view.heard == null ? "no question" : `question ${view.heard + 1}`);

const answers = (report, choose) => {
  const buttons = report.conditions.map((condition, number) =>
    el("button", { type: "button", "aria-pressed": "false", "data-condition": number, onclick: () => choose({ condition: number }) },
      el("span", { class: "conditioning" }, !report.conditioned ? report.compressor : condition.kind === "rotated" ? CONDITIONS.rotated.replace("another question", `question ${report.views[condition.view].heard + 1}`) : CONDITIONS[condition.kind]),
      el("span", { class: "said", dir: "auto" }, condition.answer || "(an empty answer)")));
  const cards = report.questions.map((question, number) =>
    el("article", { class: "card" },
      el("h3", {}, report.questions.length > 1 ? `Question ${number + 1}` : "Question"),
      el("p", { class: "question", dir: "auto", ...(question.length > LONG_QUESTION && { tabindex: 0, role: "region", "aria-label": `Question ${number + 1}` }) }, question),
      el("div", { class: "choices", role: "group", "aria-label": `Answers to question ${number + 1}` },
        buttons.filter((_, n) => report.conditions[n].question === number))));
  const lead = report.conditioned
    ? "Choose an answer to see what it was made from. The language model always reads the question itself; only the question that the video was compressed for differs."
    : `The method "${report.compressor}" compresses the video without using the question.`;
  return {
    element: section("answers", "The answer", lead, el("div", { class: "cards" }, cards)),
    update: ({ condition }) => buttons.forEach((button, n) => button.setAttribute("aria-pressed", String(n === condition))),
  };
};

const facts = (report) => {
  const frames = report.times.length, supports = report.supports;
  const fact = (value, name, more) => el("div", { class: "fact" }, el("dt", {}, name), el("dd", {}, el("strong", {}, value), el("span", {}, more)));
  return el("dl", { class: "facts" },
    fact(whole.format(frames), frames === 1 ? "frame" : "frames", `sampled from ${seconds(report.duration)} of video`),
    fact(whole.format(supports), supports === 1 ? "support" : "supports", report.views[0].path.length > 1 ? `made of them: ${report.views[0].path.join(" → ")}` : "the frames as they are: nothing to compress"),
    fact(whole.format(report.tokens.after), "visual tokens", `read by the language model, instead of ${whole.format(report.tokens.before)}`),
    fact(percent(report.prefill.saved), "prefill saved", `of the ${operations(report.prefill.before)} that reading all frames would take`));
};

const budgets = (report, views) => {
  const staged = report.views[0].budgets.length > 0;
  const tables = report.views[0].budgets.map((_, stage) => {
    const path = report.views[0].path, sizes = report.views[0].segments[stage];
    const starts = sizes.map((_, n) => sizes.slice(0, n).reduce((sum, size) => sum + size, 0));
    const rows = sizes.map((size, segment) => [
      el("span", {}, `Segment ${segment + 1}`, el("small", {}, stage === 0
        ? `${seconds(report.times[starts[segment]])} to ${seconds(report.times[starts[segment] + size - 1])}`
        : `${counted(size, "source")}`)),
      ...views.map((view) => {
        const given = view.raw.budgets[stage][segment], share = given / path[stage + 1];
        const most = Math.max(...views.map((each) => Math.max(...each.raw.budgets[stage]))) / path[stage + 1];
        return bar(share / most, `${given} (${percent(share)})`, `series${views.indexOf(view)}`);
      })]);
    return tableOf(`Stage ${stage + 1}: ${counted(path[stage], "source")} become ${path[stage + 1]}`,
      ["Segment", ...views.map((view) => (report.conditioned ? `For ${viewName(report, view)}` : report.compressor))], rows);
  });
  const lead = staged
    ? "Compression goes in stages. Each stage cuts time into equal segments and decides how many supports each segment may have. A question can move supports to where it is answered; the total stays the same."
    : report.tokens.after < report.tokens.before
      ? "The method has no stages and shares no budget among segments."
      : "The video is short enough as it is: no stage was needed, and every frame is its own support.";
  return section("budgets", "How the budget was shared", lead, el("div", { class: "stages" }, tables));
};
