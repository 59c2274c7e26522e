// The video as a strip of thumbnails with times and segments.

const strip = (report, views, pictures, choose) => {
  const sizes = report.views[0].segments[0] ?? [report.times.length];
  const firsts = new Map();
  sizes.reduce((start, size, n) => { firsts.set(start, n + 1); return start + size; }, 0);
  let segment = 0;
  const thumbs = report.times.map((time, frame) => {
    segment = firsts.get(frame) ?? segment;
    const level = el("span", { class: "level" });
    const button = el("button", { type: "button", tabindex: -1, "aria-pressed": "false", "data-frame": frame, class: segment % 2 ? "thumb" : "thumb odd",
      onclick: () => choose({ frame, patch: null }) },
      el("span", { class: firsts.has(frame) ? "segment first" : "segment" }, `segment ${segment}`),
      el("img", { src: pictures.source(frame), alt: "", loading: "lazy", style: `aspect-ratio:${report.size[0]}/${report.size[1]}` }),
      el("span", { class: "meter", "aria-hidden": "true" }, level),
      el("span", { class: "time" }, seconds(time)));
    return { button, level };
  });
  const row = el("div", { class: "strip", role: "group", "aria-label": "Frames of the video; arrow keys move",
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
      const now = thumbs.findIndex(({ button }) => button === document.activeElement);
      if (step === undefined || now < 0) return;
      event.preventDefault();
      const next = Math.min(thumbs.length - 1, Math.max(0, now + step));
      choose({ frame: next, patch: null });
      thumbs[next].button.focus();
    } }, thumbs.map(({ button }) => button));
  let shown = null;
  return {
    element: section("video", "The video",
      "Every sampled frame. The bar under a frame is its share of the chosen support, relative to the strongest frame. Choose a frame to see where it went.", row),
    update: ({ view, support, frame }) => {
      const weights = view.row(support), most = Math.max(...weights);
      thumbs.forEach(({ button, level }, n) => {
        const chosen = n === frame;
        button.setAttribute("aria-pressed", String(chosen));
        button.tabIndex = chosen ? 0 : -1;
        button.setAttribute("aria-label", `Frame ${n}, ${seconds(report.times[n])}, gives ${percent(weights[n])} of support ${support}`);
        level.style.width = `${most ? (100 * weights[n]) / most : 0}%`;
      });
      if (shown !== frame) {
        const { button } = thumbs[frame];
        const [low, high] = [button.offsetLeft - row.offsetLeft, button.offsetLeft - row.offsetLeft + button.offsetWidth];
        if (low < row.scrollLeft || high > row.scrollLeft + row.clientWidth) row.scrollLeft = low - row.clientWidth / 2;
        shown = frame;
      }
    },
  };
};
