// One frame, or one patch of it: which supports it went into.

const framePanel = (report, pictures, choose) => {
  const [rows, columns] = report.grid;
  const title = el("h4", { class: "now", "aria-live": "polite" });
  const stage = new Stage(report, { label: "" });
  stage.canvas.classList.add("pickable");
  stage.canvas.addEventListener("pointerdown", (event) => choose({ patch: stage.patchAt(event) }));
  const row = slider("patch-row", "Row", rows - 1, (value) => choose({ patch: value * columns + ((state.patch ?? 0) % columns) }));
  const column = slider("patch-column", "Column", columns - 1, (value) => choose({ patch: Math.floor((state.patch ?? 0) / columns) * columns + value }));
  const clear = el("button", { type: "button", onclick: () => choose({ patch: null }) }, "Whole frame again");
  const chart = new Chart({ label: "", bars: true, pick: (support) => choose({ support, frame: state.frame }) });
  const words = el("p");
  let state = null;
  const trace = () => {
    const { view, frame, patch } = state;
    if (patch == null) return view.column(frame);
    return Array.from({ length: view.supports }, (_, support) => (view.place(support, frame) === undefined ? 0 : view.fused(support, frame)[patch]));
  };
  const what = () => (state.patch == null ? `Frame ${state.frame}` : `The patch in row ${Math.floor(state.patch / columns)}, column ${state.patch % columns} of frame ${state.frame}`);
  const table = numbers(() => [`${what()} in every support`, ["Support", "Share of the support"], trace().map((value, support) => [String(support), decimal(value, 6)])]);
  return {
    element: part("frame", "One frame, one patch: where it went",
      "Touch or click the frame to choose a patch, or use the sliders. The bars say how much of each support was made from it.",
      title, el("div", { class: "two" },
        el("figure", {}, stage.canvas, el("div", { class: "sliders" }, row.element, column.element), clear),
        el("div", {}, chart.element, words, table.element))),
    update: (now) => {
      state = now;
      const { view, frame, patch, support } = state;
      const given = trace(), total = given.reduce((sum, value) => sum + value, 0);
      const order = given.map((_, n) => n).sort((a, b) => given[b] - given[a]).filter((n) => given[n] > 0);
      title.textContent = `${what()}, at ${seconds(report.times[frame])}`;
      const held = view.column(frame).reduce((sum, value, n) => sum + (view.place(n, frame) === undefined ? 0 : value), 0);
      const all = view.column(frame).reduce((sum, value) => sum + value, 0);
      words.textContent = order.length
        ? `Most went to ${order.slice(0, 3).map((n) => `support ${n} (${percent(given[n])} of it)`).join(", ")}. ` +
          `Added up over all supports: ${total.toPrecision(2)} (1 would be as much as one whole support).` +
          (patch != null && held < 0.9995 * all ? ` The page holds maps for ${percent(held / all)} of what this frame gave; the rest is spread thinly and left out here.` : "")
        : "It went nowhere: no support was made from it.";
      chart.show([{ values: given }], { ticks: given.map((_, n) => [n, String(n)]), marker: support, label: `${what()}: share in every support. ${words.textContent}` });
      row.show(patch == null ? 0 : Math.floor(patch / columns), patch == null ? "none" : String(Math.floor(patch / columns)));
      column.show(patch == null ? 0 : patch % columns, patch == null ? "none" : String(patch % columns));
      clear.disabled = patch == null;
      stage.label(`${what()}, at ${seconds(report.times[frame])}`);
      stage.paint(pictures, frame, () => patch != null && stage.mark(patch));
      table.update();
    },
  };
};
