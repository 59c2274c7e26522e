// What the model saw: all supports as blended pictures, and one of them from near.

const FIRST_SHOWN = 24; // supports that are shown before "show all"
const LARGE_FRAMES = 6;

const gridRows = (report, values) => Array.from({ length: report.grid[0] }, (_, row) =>
  [String(row), ...Array.from({ length: report.grid[1] }, (_, column) => decimal(values[row * report.grid[1] + column], 5))]);
const gridHead = (report) => ["Row", ...Array.from({ length: report.grid[1] }, (_, column) => `Column ${column}`)];

const tooLittle = (report, view, support, frame) =>
  `${Unit(report)} ${support} took ${view.weight(support, frame) ? "next to nothing" : "nothing"} from frame ${frame}: there is no map to draw. Choose one of its strongest frames.`;

// What the outlined fifth of the positions holds of a frame's share in a support, in words.
const outlinedShare = (report, view, support, frame) => {
  const share = percent(view.figure("mass_in_top", support, frame));
  if (view.even(support, frame)) return `nearly uniform: all parts of the picture gave about alike (the strongest fifth holds ${share}), so none is outlined`;
  return `the outlined fifth of the picture holds ${share} of that${faintly(report, view.figure("mass_in_top", support, frame))}`;
};
const boldnessOf = (report, view, support, frame) => boldness(report, view.figure("mass_in_top", support, frame));

const tile = (report, view, support, { choose, best, kind }) => {
  const span = spanned(report, view.raw.spans[support]);
  const score = best === undefined ? 0 : view.raw.scores[best.question][support];
  const first = best?.support === support;
  const said = report.whole_frames ? "" : `, ${counted(view.raw.tokens[support], "token")}`;
  return el("button", { type: "button", class: `tile ${kind}`, "aria-pressed": "false", tabindex: -1, "data-support": support,
    "aria-label": `${Unit(report)} ${support}: ${span}${said}${first ? "; matters most for the question" : ""}`, onclick: () => choose({ support }) },
    el("img", { src: `data:image/jpeg;base64,${view.raw.blends[support]}`, alt: "", style: `aspect-ratio:${report.size[0]}/${report.size[1]}` }),
    el("span", { class: "meter", "aria-hidden": "true" }, el("span", { class: "level", style: `width:${(100 * score).toFixed(1)}%` })),
    el("span", { class: "time" }, span), report.whole_frames ? null : el("span", { class: "count" }, ` ${whole.format(view.raw.tokens[support])}`),
    first ? el("span", { class: "badge" }, "★", el("span", {}, " matters most")) : null);
};

const filmstrip = (report, choose) => {
  const holder = el("div", { class: "tiles", role: "group", "aria-label": "What the model saw; arrow keys move", onkeydown: (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    const now = tiles.indexOf(document.activeElement);
    if (step === undefined || now < 0) return;
    event.preventDefault();
    const next = Math.min(tiles.length - 1, Math.max(0, now + step));
    choose({ support: next }).then(() => tiles[next].focus());
  } });
  const more = el("button", { type: "button", class: "more-tiles", onclick: () => { all = true; reveal(); } });
  let tiles = [], shown = "", all = false;
  const reveal = () => {
    tiles.forEach((each, n) => { each.hidden = !all && n >= FIRST_SHOWN; });
    more.hidden = all || tiles.length <= FIRST_SHOWN;
    more.textContent = `Show all ${tiles.length}`;
  };
  return {
    element: el("div", {}, holder, more),
    update: ({ view, condition, support }) => {
      const key = `${report.views.indexOf(view.raw)} ${condition}`;
      if (key !== shown) {
        const best = report.conditions[condition];
        tiles = Array.from({ length: view.supports }, (_, n) => tile(report, view, n, { choose, best, kind: seriesOf(best) }));
        holder.replaceChildren(...tiles);
        shown = key;
        reveal();
      }
      if (support >= FIRST_SHOWN && !all) { all = true; reveal(); }
      tiles.forEach((each, n) => { each.setAttribute("aria-pressed", String(n === support)); each.tabIndex = n === support ? 0 : -1; });
    },
  };
};

const supportPanel = (report, views, pictures, choose) => {
  const unit = unitName(report);
  const strip = filmstrip(report, choose);
  const title = el("h3", { class: "now", "aria-live": "polite" });
  const step = (by, text, label) => el("button", { type: "button", class: "step", "aria-label": label, onclick: () => choose({ support: Math.min(state.view.supports - 1, Math.max(0, state.support + by)) }) }, text);
  const curve = new Chart({ label: "", pick: (frame) => choose({ frame, patch: null }), height: 150 });
  const gallery = el("div", { class: "gallery" });
  const stage = new Stage(report, { label: "" }), words = el("p", { class: "words" });
  const blend = el("img", { class: "blend", alt: "", style: `aspect-ratio:${report.size[0]}/${report.size[1]}` }), blendWords = el("figcaption");
  const opacity = el("input", { type: "range", id: "opacity", min: 0, max: 100, value: 70, oninput: () => paint() });
  const select = el("select", { id: "condition", onchange: () => choose({ condition: Number(select.value) }) },
    report.conditions.map((condition, number) => el("option", { value: number }, report.questions.length > 1 ? `question ${condition.question + 1}, compressed ${conditionName(report, condition)}` : `compressed ${conditionName(report, condition)}`)));
  let state = null, drawn = null;
  const paint = () => {
    const { view, support, frame } = state, known = view.place(support, frame) !== undefined, even = !known || view.even(support, frame);
    stage.paint(pictures, frame, () => {
      if (even) return;
      const bold = boldnessOf(report, view, support, frame);
      stage.glow(view.fused(support, frame), (opacity.value / 100) * bold);
      stage.contour(view.top(-1, support, frame), OUTLINE, bold);
    });
    stage.canvas.dataset.even = String(even);
  };
  const curveTable = numbers(() => [`Shares of frames in ${unit} ${state.support}`, ["Frame", "Time", "Share (ω)", ...(state.view.paths.length > 1 ? state.view.paths.map((name) => `by the ${name} path`) : [])],
    report.times.map((time, frame) => [String(frame), seconds(time), decimal(state.view.weight(state.support, frame), 6),
      ...(state.view.paths.length > 1 ? state.view.paths.map((_, level) => decimal(state.view.path(level, state.support, frame), 6)) : [])])]);
  const fieldTable = numbers(() => {
    const { view, support, frame } = state;
    const known = view.place(support, frame) !== undefined;
    return [`Weight of every patch of frame ${frame} in ${unit} ${support}`, gridHead(report), known ? gridRows(report, view.fused(support, frame)) : []];
  }, "Weights of the chosen frame, patch by patch");
  const thumb = (frame) => {
    const { view, support } = state;
    return el("button", { type: "button", class: "plain", "data-frame": frame, "aria-pressed": "false", "aria-label": `Frame ${frame}, ${seconds(report.times[frame])}: ${percent(view.weight(support, frame))} of ${unit} ${support}`, onclick: () => choose({ frame, patch: null }) },
      el("img", { src: pictures.source(frame), alt: "", style: `aspect-ratio:${report.size[0]}/${report.size[1]}` }),
      el("span", { class: "time" }, `${seconds(report.times[frame])} · ${percent(view.weight(support, frame))}`));
  };
  const lead = report.whole_frames
    ? ["Instead of ", counted(report.times.length, "frame"), ", the language model read ", term("support", counted(report.views[0].tokens.length, "support")), ": each one is a blend of several frames, shown here in the video's own pixels. The line under each says how much it matters for the question."]
    : ["The method keeps or merges single ", term("token", "tokens"), ". Those of one ", term("moment"), " are shown together, with their number; dark parts of a picture were dropped. The line under each says how much it matters for the question."];
  return {
    element: el("section", { id: "support", "aria-labelledby": "support-title" },
      el("div", { class: "heading" }, el("h2", { id: "support-title" }, "What the model saw"), report.conditions.length > 1 ? el("label", { class: "pick", for: "condition" }, "Shown: ", select) : null),
      el("p", { class: "lead" }, lead), strip.element,
      el("div", { class: "heading one" }, title, el("span", { class: "steps" }, step(-1, "←", `Previous ${unit}`), step(1, "→", `Next ${unit}`))),
      el("div", { class: "near" },
        el("figure", { class: "large" }, stage.canvas, words,
          el("div", { class: "slider" }, el("label", { for: "opacity" }, "Heat map"), opacity)),
        el("div", { class: "aside" },
          el("figure", { class: "blended" }, blend, blendWords),
          el("h4", {}, "Its strongest frames"), gallery)),
      el("h4", {}, "Where in time it comes from"), curve.element, curveTable.element, fieldTable.element),
    update: (now) => {
      state = now;
      const { view, support, frame, condition } = state;
      const best = view.strongest(support, LARGE_FRAMES), known = view.place(support, frame) !== undefined;
      select.value = condition;
      strip.update(state);
      const matters = report.conditions[condition].support === support ? ", the one that matters most for the question" : "";
      title.textContent = `${Unit(report)} ${support}: ${spanned(report, view.raw.spans[support])}${matters}`;
      blend.src = `data:image/jpeg;base64,${view.raw.blends[support]}`;
      blend.alt = `${Unit(report)} ${support} as a picture`;
      blendWords.textContent = report.whole_frames
        ? `${Unit(report)} ${support} as the model got it: ${counted(view.row(support).filter((share) => share > 0.005).length, "frame")} blended, position by position`
        : `What is left of this moment: ${counted(view.raw.tokens[support], "token")}`;
      curve.show([{ values: view.row(support), kind: seriesOf(report.conditions[condition]) }], { ticks: timeTicks(report), marker: frame,
        label: `Share of every frame in ${unit} ${support}; most from frame ${best[0]}, ${percent(view.weight(support, best[0]))}` });
      const key = `${report.views.indexOf(view.raw)} ${support}`;
      if (key !== drawn) gallery.replaceChildren(...best.map(thumb));
      drawn = key;
      gallery.querySelectorAll("button").forEach((button, n) => button.setAttribute("aria-pressed", String(best[n] === frame)));
      words.textContent = known
        ? `Frame ${frame}, ${seconds(report.times[frame])}, gave ${percent(view.weight(support, frame))} of this ${unit}; ${outlinedShare(report, view, support, frame)}.`
        : tooLittle(report, view, support, frame);
      stage.label(words.textContent);
      opacity.disabled = !known || view.even(support, frame);
      paint();
      curveTable.update();
      fieldTable.update();
    },
  };
};
