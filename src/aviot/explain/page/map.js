// Ordered supports against source time.

const timeTicks = (report) => report.times.map((time, frame) => [frame, seconds(time)]);

const supportMap = (report, choose) => {
  const frames = report.times.length;
  let supports = report.views[0].tokens.length;
  const canvas = el("canvas", { width: frames, height: supports, role: "img", class: "matrix" });
  const cursor = el("span", { class: "cursor", "aria-hidden": "true" });
  const holder = el("div", { class: "matrix-holder", style: `aspect-ratio:${Math.max(1.2, Math.min(4, frames / supports))};min-height:${Math.min(280, 8 * supports)}px` }, canvas, cursor);
  const same = el("input", { type: "checkbox", id: "one-scale", onchange: () => draw() });
  const axis = el("div", { class: "axis", "aria-hidden": "true" }, el("span", {}, seconds(report.times[0])), el("span", {}, "time in the video"), el("span", {}, seconds(report.times.at(-1))));
  const lastRow = el("span");
  let view = null;
  const draw = () => {
    const context = canvas.getContext("2d"), picture = context.createImageData(frames, supports);
    const rows = Array.from({ length: supports }, (_, support) => view.row(support));
    const most = Math.max(...rows.map((row) => Math.max(...row)));
    rows.forEach((row, support) => {
      const scale = (same.checked ? most : Math.max(...row)) || 1;
      row.forEach((value, frame) => picture.data.set([...ramp(value / scale), 255], 4 * (support * frames + frame)));
    });
    context.putImageData(picture, 0, 0);
  };
  holder.addEventListener("pointerdown", (event) => {
    const place = canvas.getBoundingClientRect();
    const within = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    choose({ frame: within((event.clientX - place.left) / place.width, frames), support: within((event.clientY - place.top) / place.height, supports), patch: null });
  });
  const table = numbers(() => [`Share of each frame in each support, for ${viewName(report, view)}`,
    ["Support", ...report.times.map((time, frame) => `Frame ${frame}, ${seconds(time)}`)],
    Array.from({ length: supports }, (_, support) => [String(support), ...view.row(support).map((value) => decimal(value, 5))])]);
  return {
    element: part("map", `Where each ${unitName(report)} comes from`,
      "One row per support, in order; one column per frame. A bright spot is a frame that the support was made from. Every row adds up to 100 %. Touch or click a spot to choose its support and frame.",
      el("div", { class: "with-axis" }, el("span", { class: "side-label", "aria-hidden": "true" }, `${unitName(report)} 0`, lastRow), holder), axis,
      legend("nothing", "the most"), el("p", {}, same, el("label", { for: "one-scale" }, " One colour scale for all rows (otherwise each row by its own largest share)")), table.element),
    update: (state) => {
      if (view !== state.view) {
        view = state.view;
        supports = view.supports;
        canvas.height = supports;
        lastRow.textContent = supports > 1 ? `${unitName(report)} ${supports - 1}` : "";
        draw();
        table.update();
      }
      canvas.setAttribute("aria-label", `Map of ${counted(supports, "support")} against ${counted(frames, "frame")}; the chosen support ${state.support} is strongest at ${view.strongest(state.support, 3).map((frame) => `frame ${frame} (${percent(view.weight(state.support, frame))})`).join(", ")}`);
      Object.assign(cursor.style, { left: `${(100 * state.frame) / frames}%`, top: `${(100 * state.support) / supports}%`, width: `${100 / frames}%`, height: `${100 / supports}%` });
    },
  };
};
