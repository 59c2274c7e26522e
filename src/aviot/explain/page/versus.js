// Two compressions side by side: other questions, methods or budgets on the same video.

const versusEntries = (report, views) => [
  ...report.conditions.map((condition, number) => {
    const view = views[condition.view], scores = view.raw.scores[condition.question];
    const best = scores.map((_, n) => n).sort((a, b) => scores[b] - scores[a]).slice(0, 6).sort((a, b) => a - b);
    return { name: `${report.questions.length > 1 ? `Question ${condition.question + 1}, ` : ""}${report.title} at ratio ${report.ratio}, ${conditionName(report, condition)}`,
      question: condition.question, condition: number, answer: condition.answer, tokens: condition.tokens, spent: view.raw.spent, sentence: condition.sentence,
      blends: best.map((n) => view.raw.blends[n]), spans: best.map((n) => view.raw.spans[n]) };
  }),
  ...report.alternatives.map((other) => ({ ...other, name: `${report.questions.length > 1 ? `Question ${other.question + 1}, ` : ""}${other.title}${other.budget ? ` at ${other.budget}` : ""}` })),
];

const versusPanel = (report, views, { pick }) => {
  const entries = versusEntries(report, views);
  const section_ = (...children) => el("section", { id: "versus", "aria-labelledby": "versus-title" }, el("h2", { id: "versus-title" }, "Compare"), ...children);
  if (entries.length < 2)
    return { element: section_(el("p", { class: "lead" }, "There is one compression on this page. Ask a second question, or name other methods or ratios, and they can be compared here.")), update: () => {} };
  const main = mainConditions(report);
  const start = [main[0], report.alternatives.length ? report.conditions.length : main[1] ?? 1];
  const sides = start.map((value, n) => {
    const select = el("select", { id: `versus-${n}`, onchange: () => draw() }, entries.map((entry, number) => el("option", { value: number }, entry.name)));
    select.value = value;
    const body = el("div", { class: "versus-body" });
    return { select, body, element: el("article", { class: `side side${n}` }, el("label", { for: `versus-${n}` }, n ? "with" : "Compare"), select, body) };
  });
  const chart = el("div", { class: "difference" }), words = el("p", { class: "sentence", "aria-live": "polite" });
  let frame = 0;
  const shown = () => sides.map(({ select }) => entries[select.value]);
  const tokens = (entry, n) => (entry.refused ? 0 : entry.spent[n] * entry.tokens[1]);
  const mirrored = () => {
    const width = chart.clientWidth, height = 132, bottom = 18, middle = (height - bottom) / 2, pair = shown();
    if (!width) return;
    const length = Math.max(report.duration, report.times.at(-1) || 1e-3), x = (time) => 8 + (time / length) * (width - 16);
    const most = Math.max(...pair.flatMap((entry) => report.times.map((_, n) => tokens(entry, n)))) || 1;
    const flows = pair.map((entry, n) => {
      const sign = n ? 1 : -1;
      const points = report.times.map((time, at) => `${x(time).toFixed(1)},${(middle + sign * (6 + (tokens(entry, at) / most) * (middle - 10))).toFixed(1)}`);
      const ends = [report.times.at(-1), report.times[0]].map((time) => `${x(time).toFixed(1)},${middle + sign * 6}`);
      return svg("polygon", { class: `flow chosen side${n}`, points: `${points.join(" ")} ${ends.join(" ")}` });
    });
    const marks = report.times.map((time, n) => {
      const shift = (tokens(pair[0], n) - tokens(pair[1], n)) / most;
      if (Math.abs(shift) < 0.05) return null;
      const wide = Math.max(2, x(report.times[n + 1] ?? length) - x(time));
      return svg("rect", { class: `mark side${shift > 0 ? 0 : 1}`, x: x(time) - wide / 2, y: middle - 4, width: wide, height: 8, opacity: Math.min(1, 0.25 + Math.abs(shift)).toFixed(2) });
    });
    const count = Math.max(2, Math.min(9, Math.floor(width / 110)));
    const labels = Array.from({ length: count }, (_, n) => svg("text", { x: x((n / (count - 1)) * length), y: height - 3, "text-anchor": n === 0 ? "start" : n === count - 1 ? "end" : "middle" }, clock((n / (count - 1)) * length)));
    const cursor = svg("line", { class: "marker", x1: x(report.times[frame]), x2: x(report.times[frame]), y1: 0, y2: height - bottom });
    const drawing = svg("svg", { width, height, role: "img", "aria-label": words.textContent }, flows, marks, labels, cursor);
    drawing.addEventListener("pointerdown", (event) => pick(nearestFrame(report, Math.min(length, Math.max(0, ((event.clientX - drawing.getBoundingClientRect().left - 8) / (width - 16)) * length)))));
    chart.replaceChildren(drawing);
  };
  const told = (pair) => {
    if (pair.some((entry) => entry.refused)) return "One of the two could not be run, so there is nothing to compare.";
    const shares = report.times.map((_, n) => pair[0].spent[n] - pair[1].spent[n]);
    const moved = shares.reduce((sum, value) => sum + Math.abs(value), 0) / 2;
    const same = pair[0].answer.trim() === pair[1].answer.trim() ? "The answers are the same" : "The answers differ";
    const most = shares.map((_, n) => n).sort((a, b) => Math.abs(shares[b]) - Math.abs(shares[a]))[0];
    if (moved < 0.005) return `${same}, and so is the share of the tokens at every moment.`;
    return `${same}; ${percent(moved)} of the tokens went to other moments, most of all around ${clock(report.times[most])}, where the ${shares[most] > 0 ? "first" : "second"} spends more.`;
  };
  const draw = () => {
    const pair = shown();
    sides.forEach(({ body }, n) => {
      const entry = pair[n];
      body.replaceChildren(...(entry.refused ? [el("p", { class: "refused" }, `This could not be run: ${entry.refused}`)] : [
        el("p", { class: "question", dir: "auto" }, ...longText(report.questions[entry.question])),
        el("p", { class: "said", dir: "auto" }, entry.answer || "(an empty answer)"),
        el("p", { class: "totals" }, `${whole.format(entry.tokens[0])} → `, el("strong", {}, whole.format(entry.tokens[1])), ` tokens. ${entry.sentence}.`),
        el("div", { class: "tiles small" }, entry.blends.map((picture, at) => el("figure", {},
          el("img", { src: `data:image/jpeg;base64,${picture}`, alt: "", style: `aspect-ratio:${report.size[0]}/${report.size[1]}` }),
          el("figcaption", {}, spanned(report, entry.spans[at])))))]));
    });
    words.textContent = told(pair);
    mirrored();
  };
  new ResizeObserver(mirrored).observe(chart);
  draw();
  return {
    element: section_(el("p", { class: "lead" }, "The same video, compressed twice. Above the line are the tokens of the first, below it those of the second; the marks between them show who spends more, and where."),
      el("div", { class: "sides" }, sides.map(({ element }) => element)), words, chart),
    update: (state) => { frame = state.frame; mirrored(); },
  };
};
