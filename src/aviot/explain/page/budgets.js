// The key figures, and the budgets of the segments.

const facts = (report) => {
  const frames = report.times.length, supports = report.views[0].tokens.length;
  const fact = (value, name, more) => el("div", { class: "fact" }, el("dt", {}, name), el("dd", {}, el("strong", {}, value), el("span", {}, more)));
  const layers = report.conditions[0].layer_tokens;
  return el("dl", { class: "facts" },
    fact(whole.format(frames), frames === 1 ? "frame" : "frames", `sampled from ${seconds(report.duration)} of video`),
    fact(whole.format(supports), counted(supports, unitName(report)).replace(/^\S+ /, ""), report.views[0].path.length > 1 ? `made of them: ${report.views[0].path.join(" → ")}` : report.whole_frames ? "the frames as they are: nothing to compress" : "have tokens left"),
    layers.length ? fact(whole.format(layers[0]), "tokens enter", `the language model; ${whole.format(report.tokens.after)} are left in its last layers`)
      : fact(whole.format(report.tokens.after), "visual tokens", `read by the language model, instead of ${whole.format(report.tokens.before)}`),
    layers.length ? null : fact(percent(report.prefill.saved), "prefill saved", `of the ${operations(report.prefill.before)} that reading all frames would take`));
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
      ["Segment", ...views.map((view) => (report.conditioned ? `For ${viewName(report, view)}` : report.method))], rows);
  });
  const lead = staged
    ? "Compression goes in stages. Each stage cuts time into equal segments and decides how many supports each segment may have. A question can move supports to where it is answered; the total stays the same."
    : report.tokens.after < report.tokens.before
      ? "The method has no stages and shares no budget among segments."
      : "The video is short enough as it is: no stage was needed, and every frame is its own support.";
  return part("budgets", "How the budget was shared", lead, el("div", { class: "stages" }, tables));
};
