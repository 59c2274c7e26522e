// The effect of another question, and the checks of the numbers.

const compared = (report, first, second) =>
  report.comparisons.find((each) => (each.first === first && each.second === second) || (each.first === second && each.second === first))
    ?? { allocation: report.views[0].budgets.length ? 0 : null, temporal: 0 };

const moved = (report, views, first, second) => {
  const [ours, theirs] = [first, second].map((n) => views[n].raw.budgets[0] ?? []);
  if (!ours.length) return "Nothing was compressed.";
  const shifts = ours.map((given, segment) => theirs[segment] - given);
  const gains = shifts.map((shift, segment) => [shift, segment]).filter(([shift]) => shift);
  if (!gains.length) return "The first stage gives every segment as many supports.";
  const words = gains.sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, 4)
    .map(([shift, segment]) => `segment ${segment + 1} ${shift > 0 ? "gains" : "loses"} ${Math.abs(shift)}`);
  return `In the first stage, ${words.join(", ")}.`;
};

const comparePanel = (report, views) => {
  if (views.length < 2) return { element: part("compare", "What another question changes", "This method does not use the question: nothing changes."), update: () => {} };
  const many = report.questions.length > 1;
  const value = (found) => [found.allocation == null ? "–" : decimal(found.allocation), `${decimal(found.temporal)} bits`];
  const rows = [];
  for (let a = 0; a < report.questions.length; a++)
    for (let b = a + 1; b < report.questions.length; b++)
      for (const kind of ["matched", "rotated", "none"]) {
        const [first, second] = [a, b].map((question) => report.conditions.find((each) => each.question === question && each.kind === kind)?.view);
        if (first !== undefined && second !== undefined) rows.push([`Questions ${a + 1} and ${b + 1}, ${{ matched: "each compressed for itself (matched)", rotated: "each replaced by the next (rotated)", none: "compressed for none" }[kind]}`, ...value(compared(report, first, second)), first === second ? "One and the same compression." : moved(report, views, first, second)]);
      }
  const none = views.length - 1;
  report.questions.forEach((_, question) => rows.push([`Compressed for question ${question + 1}, against no question`, ...value(compared(report, none, question)), moved(report, views, none, question)]));
  const names = views.map((view) => viewName(report, view));
  const chart = new Chart({ label: "" });
  const chartTable = numbers(() => ["Share of all supports that comes from each frame", ["Frame", "Time", ...names],
    report.times.map((time, frame) => [String(frame), seconds(time), ...curves.map((curve) => decimal(curve[frame], 6))])]);
  const curves = views.map((view) => view.overTime());
  chart.show(curves.map((values, n) => ({ values, kind: `series${n}` })), { ticks: timeTicks(report), label: `Where in time the supports come from, for ${names.join(", ")}` });
  const ends = curves.map((curve) => curve.map((_, frame) => frame).sort((a, b) => curve[b] - curve[a])[0]);
  return {
    element: part("compare", "What another question changes",
      "The same video, ratio and number of supports; only the question that it was compressed for differs. Allocation distance runs from 0 (the same budgets) to 2; half of it is the share of the first stage's budget that went elsewhere. Temporal divergence runs from 0 (the same times) to 1 bit.",
      tableOf("Distances between compressions", ["Compared", "Allocation distance", "Temporal divergence", "What moved"], rows, "worded"),
      many && report.questions.length === 2 ? el("p", { class: "note" }, "With two questions, replacing each by the next swaps them, so that row equals the first. A third question makes it a control.") : null,
      el("h4", {}, "Where in time the supports come from"), lineKey(names), chart.element,
      el("p", {}, names.map((name, n) => `For ${name}, most from ${seconds(report.times[ends[n]])} (${percent(curves[n][ends[n]])}).`).join(" ")), chartTable.element),
    update: () => {},
  };
};

const checksPanel = (report, views) =>
  part("checks", "Can these numbers be trusted?",
    "They are not an estimate of attention: they are the weights the compressed picture was computed with. When this page was made they were checked against each other and against the compressed features; what is left is rounding.",
    tableOf("Largest departures found", ["Compressed for", "Rows from adding up to 1", "ω from the mean over positions", "Paths from adding up to the whole", "Features rebuilt from the weights (relative)", "Shares of the paths", "Drawn as maps"],
      views.map((view) => [report.conditioned ? viewName(report, view) : report.method, small(view.raw.checks.row_sums), small(view.raw.checks.frame_means), small(view.raw.checks.paths), small(view.raw.checks.rebuilt),
        view.paths.length > 1 ? view.paths.map((name, n) => `${name} ${percent(view.raw.shares[n])}`).join(", ") : "–", percent(view.raw.kept_mass)]), "checked"),
    el("p", { class: "note" }, "Shares of frames are exact (float32). Maps are drawn in 256 steps of their own largest value; outlines and figures of agreement come from the exact ones. The export as a safetensors file has every number exactly."));
