// The global, medium and local paths of a pair apart, and how far they agree.

const PATH_WORDS = {
  global: "decides for the whole picture at once",
  medium: "decides for large parts of the picture",
  local: "decides for small parts of the picture",
};

const overlaps = (sets) => {
  const count = (test) => sets[0].reduce((sum, _, patch) => sum + (test(patch) ? 1 : 0), 0);
  const pairs = sets.flatMap((a, n) => sets.slice(n + 1).map((b) => count((p) => a[p] && b[p]) / count((p) => a[p] || b[p])));
  return {
    mean: pairs.reduce((sum, value) => sum + value, 0) / pairs.length,
    common: count((patch) => sets.every((set) => set[patch])) / count((patch) => sets[0][patch]),
  };
};

const pathsPanel = (report, views, pictures) => {
  if (views[0].paths.length < 2)
    return { element: null, update: () => {} };
  const names = views[0].paths;
  const title = el("h3", { class: "now", "aria-live": "polite" });
  const figures = names.map((name) => {
    const stage = new Stage(report, { label: name }), text = el("figcaption");
    return { stage, text, element: el("figure", {}, el("h4", {}, `The ${name} path`), stage.canvas, text) };
  });
  const union = new Stage(report, { width: 1080, label: "" }), unionText = el("figcaption");
  const key = el("ul", { class: "key" }, names.map((name, n) => el("li", {}, el("span", { class: "swatch", style: `border-color:${PATH_COLOURS[n]};margin:${2 * n}px`, "aria-hidden": "true" }), `${name}${n === 0 ? " (outermost box)" : n === names.length - 1 ? " (innermost box)" : ""}`)));
  const joint = el("figure", { class: "wide" }, union.canvas, key, unionText), table = el("div");
  const agreed = el("details", {}, el("summary", {}, "How far the paths agree"), joint, table);
  const nothing = el("p"), body = el("div", {}, el("div", { class: "gallery three" }, figures.map(({ element }) => element)),
    agreed);
  let state = null;
  const mapsTable = numbers(() => {
    const { view, support, frame } = state, known = view.place(support, frame) !== undefined;
    const maps = known ? names.map((_, level) => view.map(level, support, frame)) : [];
    return [`Weight of every patch of frame ${frame} in support ${support}, by path`, ["Row", "Column", ...names],
      known ? Array.from(maps[0], (_, patch) => [String(Math.floor(patch / report.grid[1])), String(patch % report.grid[1]), ...maps.map((map) => decimal(map[patch], 6))]) : []];
  });
  return {
    element: section("paths", "Three paths, apart",
      ["A support is made by several plans at once, from coarse to fine, and mixed: its ", term("path", "three paths"), ". Here is what each brought from the chosen frame to the chosen support, each map by its own largest value."],
      title, nothing, body, mapsTable.element),
    update: (now) => {
      state = now;
      const { view, support, frame } = state, known = view.place(support, frame) !== undefined;
      title.textContent = `From frame ${frame} (${seconds(report.times[frame])}) to support ${support}`;
      body.hidden = !known;
      nothing.textContent = known ? "" : tooLittle(report, view, support, frame);
      mapsTable.update();
      if (!known) return;
      const all = view.weight(support, frame), sets = names.map((_, level) => view.top(level, support, frame)), bolds = [];
      figures.forEach(({ stage, text }, level) => {
        const share = percent(view.path(level, support, frame) / all);
        const map = view.map(level, support, frame), inside = map.reduce((sum, value, patch) => sum + value * sets[level][patch], 0);
        const held = inside / (map.reduce((sum, value) => sum + value, 0) || 1), bold = boldness(report, held);
        bolds.push(held < report.fading.uniform ? 0 : bold);
        text.textContent = `${share} of what this frame gave${PATH_WORDS[names[level]] ? `; this path ${PATH_WORDS[names[level]]}` : ""}; ${held < report.fading.uniform ? `nearly uniform (its strongest fifth holds ${percent(held)}), so it is not outlined` : `its outlined fifth holds ${percent(held)}${faintly(report, held)}`}`;
        stage.label(`The ${names[level]} path's map over frame ${frame}: ${text.textContent}`);
        stage.paint(pictures, frame, () => { stage.heat(map, 0.65 * bold); if (held >= report.fading.uniform) stage.contour(sets[level], PATH_COLOURS[level], bold); }, { grey: true });
      });
      unionText.textContent = "Each path's own fifth of the positions, boxed. Boxes inside each other: those paths agree there.";
      union.label(`Union of the paths' top fifths over frame ${frame}`);
      joint.hidden = bolds.every((bold) => !bold); // no path stands out anywhere
      union.paint(pictures, frame, () => {
        sets.forEach((set, level) => union.boxes(set, PATH_COLOURS[level], (level + 0.35) / 9, bolds[level]));
      });
      const { mean, common } = overlaps(sets);
      table.replaceChildren(tableOf("How far the paths agree", ["Figure", "Value", "What it says"], [
        ...names.map((name, level) => [`Share of the ${name} path`, bar(view.path(level, support, frame) / all, percent(view.path(level, support, frame) / all)), `of what frame ${frame} gave to support ${support}; over all frames and supports ${percent(view.raw.shares[level])}`]),
        ["Mass in the top 20\u00a0%", percent(view.figure("mass_in_top", support, frame)), "of the frame's contribution comes from the fifth of the positions that gave most; 20\u00a0% would be an even spread"],
        ["Centroid distance", decimal(view.figure("centroid_mean", support, frame)), `between the paths' centres of mass, over the picture's diagonal, in the mean of pairs; the largest is ${decimal(view.figure("centroid_largest", support, frame))}. 0: the same centre`],
        ["Top-20\u00a0% overlap (IoU)", decimal(mean), "positions in both top fifths over positions in either, in the mean of pairs. 1: the same positions"],
        ["Jensen–Shannon divergence", `${decimal(view.figure("divergence", support, frame))} bits`, "of the normalised maps, in the mean of pairs. 0: the same map, 1: nothing in common"],
        [names.length === 3 ? "Three-way share" : "Common share", percent(common), "of one path's top fifth is in every path's"]], "worded"));
    },
  };
};
