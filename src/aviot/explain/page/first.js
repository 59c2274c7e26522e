// The first screen: the video, what it was asked, the answer and who gave it, and the tokens in time.

const LONG_QUESTION = 220; // letters: longer ones are cut, and open on a click

const longText = (text) => {
  if (text.length <= LONG_QUESTION) return [text];
  const rest = el("span", { hidden: true }, text.slice(LONG_QUESTION)), dots = el("span", {}, "… ");
  const more = el("span", { class: "more", role: "button", tabindex: 0, onclick: (event) => open(event), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") open(event); } }, "show all");
  const open = (event) => { event.preventDefault(); event.stopPropagation(); rest.hidden = false; dots.remove(); more.remove(); };
  return [text.slice(0, LONG_QUESTION), dots, rest, more];
};

const questionCards = (report, choose) => {
  const main = mainConditions(report);
  const cards = report.questions.map((question, number) => {
    const condition = report.conditions[main[number]];
    const button = el("button", { type: "button", class: `answer ${seriesOf(condition)}`, "aria-pressed": "false", "data-condition": main[number], onclick: () => choose({ condition: main[number] }) },
      el("span", { class: "said", dir: "auto" }, condition.answer || "(an empty answer)"));
    return { number, button, element: el("article", { class: `qa ${seriesOf(condition)}` },
      el("p", { class: "question", dir: "auto" }, ...longText(question)), button) };
  });
  return {
    element: el("div", { class: "qas", role: "group", "aria-label": "Questions and answers" }, cards.map(({ element }) => element)),
    update: ({ condition }) => cards.forEach(({ button, number, element }) => {
      const shown = report.conditions[condition].question === number;
      button.setAttribute("aria-pressed", String(main[number] === condition));
      element.classList.toggle("chosen", shown);
    }),
  };
};

// Counts from the tokens before down to those after, once, unless motion is unwelcome.
const counter = (report) => {
  const now = el("strong", { class: "after" }), before = el("span", { class: "before" }), saved = el("span", { class: "saved" });
  const element = el("p", { class: "counter" }, before, el("span", { class: "arrow", "aria-hidden": "true" }, " → "), now, " ", term("token", "tokens"), saved);
  let shown = null;
  const update = ({ condition }) => {
    const [from, to] = report.conditions[condition].tokens;
    before.textContent = whole.format(from);
    saved.textContent = report.inside ? " left in the last layers" : to < from ? ` ${Math.round(100 * (1 - to / from))}\u00a0% saved` : " nothing saved";
    if (shown === to) return;
    const start = shown ?? from, began = performance.now();
    shown = to;
    if (calm() || document.hidden) { now.textContent = whole.format(to); return; }
    const step = (time) => {
      const part = Math.min(1, Math.max(0, (time - began) / 700));
      now.textContent = whole.format(Math.round(to + (start - to) * (1 - part) ** 3));
      if (part < 1 && shown === to) requestAnimationFrame(step);
    };
    now.textContent = whole.format(start);
    requestAnimationFrame(step);
  };
  return { element, update };
};

const clipNote = (report) => {
  if (!report.clip) return `Shown as the ${report.pictures.length} frames that were sampled.`;
  if (report.clip.kind === "frames") return `The ${report.pictures.length} frames that the model was given, each at its time.`;
  return "";
};

const firstScreen = (report, views, pictures, choose, options) => {
  const main = mainConditions(report);
  const series = main.map((number) => {
    const condition = report.conditions[number], raw = report.views[condition.view];
    return { kind: seriesOf(condition), spent: raw.spent, half: raw.half, tokens: condition.tokens[1] };
  });
  const player = new Player(report, pictures, (time) => timeline.moved(time), options);
  const pickMoment = (frame) => {
    const view = views[report.conditions[state.condition].view];
    const column = view.column(frame), support = column.indexOf(Math.max(...column));
    player.seek(report.times[frame]);
    choose(column[support] > 0 ? { frame, support, patch: null } : { frame, patch: null });
  };
  const timeline = new Timeline(report, series, { pick: (frame) => pickMoment(frame), scrub: (time) => player.seek(time),
    label: "Tokens spent on each moment of the video; arrow keys move from frame to frame" });
  const cards = questionCards(report, choose), tokens = counter(report);
  const sentence = el("p", { class: "sentence", "aria-live": "polite" });
  const key = el("ul", { class: "flow-key" }, series.map((each, n) =>
    el("li", {}, el("i", { class: `dot ${each.kind}`, "aria-hidden": "true" }), series.length > 1 ? `question ${n + 1}` : "tokens spent on each moment")));
  const shape = series.length > 1 ? "Thickness: tokens spent on each moment, " : "Thickness: ";
  const note = clipNote(report);
  let state = null, frame = null;
  return {
    element: el("section", { id: "first", "aria-label": "The video, the question and the answer" },
      el("div", { class: "watch" }, player.element),
      el("div", { class: "told" }, cards.element,
        el("p", { class: "model", dir: "auto" }, "Answered by ", el("strong", {}, report.model.name), el("span", { class: "facts-of-model" }, ` · ${report.model.facts}`),
          el("span", { class: "method" }, " · compressed by ", el("strong", {}, report.title))),
        report.notice && el("p", { class: "notice", role: "note" }, report.notice)),
      el("div", { class: "spending" },
        timeline.element,
        el("p", { class: "flow-note" }, shape, key),
        el("div", { class: "totals" }, tokens.element, sentence),
        note && el("p", { class: "clip-note" }, note))),
    player,
    update: (now) => {
      state = now;
      const condition = report.conditions[state.condition], raw = report.views[condition.view];
      const place = main.findIndex((number) => report.conditions[number].question === condition.question);
      series[place] = { ...series[place], spent: raw.spent, half: raw.half, tokens: condition.tokens[1] };
      timeline.show({ frame: state.frame, chosen: place, span: raw.spans[state.support] });
      cards.update(state);
      tokens.update(state);
      sentence.textContent = `${condition.sentence}.`;
      if (state.frame !== frame && !player.playing) player.seek(report.times[state.frame]);
      frame = state.frame;
    },
  };
};
