// One line for the whole video. Its thickness is the number of tokens spent on each moment.

class Timeline {
  // series: [{ name, kind, spent, tokens, half }]; `pick` gets a frame, `scrub` a time.
  constructor(report, series, { pick, scrub, height = 104, label }) {
    Object.assign(this, { report, series, pick, scrub, height });
    this.length = Math.max(report.duration, report.times.at(-1) || 1e-3);
    this.chosen = 0;
    this.time = 0;
    this.frame = 0;
    this.tip = el("div", { class: "tip", hidden: true });
    this.holder = el("div", { class: "drawing" });
    this.element = el("div", { class: "timeline", role: "slider", tabindex: 0, "aria-label": label, "aria-valuemin": 0, "aria-valuemax": report.times.length - 1,
      onkeydown: (event) => this.key(event), onpointerdown: (event) => this.down(event), onpointermove: (event) => this.hover(event),
      onpointerup: (event) => this.up(event), onpointercancel: () => this.leave(), onpointerleave: () => this.leave() }, this.holder, this.tip);
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  tokens(series, frame) {
    return series.spent[frame] * series.tokens;
  }

  x(time) {
    return 8 + (time / this.length) * (this.width - 16);
  }

  timeAt(event) {
    const box = this.element.getBoundingClientRect();
    return Math.min(this.length, Math.max(0, ((event.clientX - box.left - 8) / (box.width - 16)) * this.length));
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.pick(Math.min(this.report.times.length - 1, Math.max(0, this.frame + step)));
  }

  down(event) {
    if (event.button) return;
    this.held = true;
    this.element.setPointerCapture(event.pointerId);
    this.scrub?.(this.timeAt(event));
    this.hover(event);
  }

  up(event) {
    if (!this.held) return;
    this.held = false;
    this.pick(nearestFrame(this.report, this.timeAt(event)));
    if (event.pointerType === "touch") this.leave();
  }

  leave() {
    this.held = false;
    this.tip.hidden = true;
  }

  hover(event) {
    const time = this.timeAt(event), frame = nearestFrame(this.report, time);
    if (this.held) this.scrub?.(time);
    this.tip.hidden = false;
    this.tip.replaceChildren(el("strong", {}, clock(this.report.times[frame])), ...this.series.map((each) =>
      el("span", { class: "row" }, el("i", { class: `dot ${each.kind}`, "aria-hidden": "true" }), `${whole.format(Math.round(this.tokens(each, frame)))} of ${whole.format(this.report.per_frame)} tokens`)));
    const at = Math.min(this.width - 96, Math.max(96, this.x(this.report.times[frame])));
    this.tip.style.left = `${at}px`;
  }

  // The frame that is chosen, the series in front, and the span of the chosen support.
  show({ frame, chosen, span }) {
    Object.assign(this, { frame, chosen, span });
    const series = this.series[chosen];
    this.element.setAttribute("aria-valuenow", frame);
    this.element.setAttribute("aria-valuetext", `${seconds(this.report.times[frame])}, ${this.series.map((each, n) => `${this.series.length > 1 ? `question ${n + 1}: ` : ""}${Math.round(this.tokens(each, frame))} tokens`).join(", ")}`);
    this.element.dataset.frame = frame;
    if (series) this.draw();
  }

  moved(time) {
    this.time = time;
    if (this.cursor) this.cursor.setAttribute("transform", `translate(${this.x(time).toFixed(1)} 0)`);
  }

  area(series, middle, reach) {
    const top = this.report.times.map((time, frame) => [this.x(time), (this.tokens(series, frame) / this.most) * reach]);
    if (top.length === 1) top.push([this.x(this.length), top[0][1]]);
    const least = 0.75; // a moment without tokens is still a thin line
    const line = (sign, points) => points.map(([x, tall]) => `${x.toFixed(1)},${(middle + sign * Math.max(least, tall)).toFixed(1)}`);
    return `${line(-1, top).join(" ")} ${line(1, [...top].reverse()).join(" ")}`;
  }

  draw() {
    this.width = this.element.clientWidth;
    if (!this.width) return;
    const { report, height, width } = this, bottom = 20, middle = (height - bottom) / 2, reach = middle - 4;
    this.most = Math.max(...this.series.flatMap((each) => report.times.map((_, frame) => this.tokens(each, frame)))) || 1;
    const order = this.series.map((_, n) => n).sort((a, b) => (a === this.chosen) - (b === this.chosen));
    const areas = order.map((n) => svg("polygon", { class: `flow ${this.series[n].kind}${n === this.chosen ? " chosen" : ""}`, points: this.area(this.series[n], middle, reach) }));
    const span = this.span && svg("rect", { class: "span", x: this.x(report.times[this.span[0]]) - 2, y: 1, rx: 4,
      width: Math.max(4, this.x(report.times[this.span[1]]) - this.x(report.times[this.span[0]]) + 4), height: height - bottom - 2 });
    const half = this.series[this.chosen]?.half, marks = [];
    if (half) {
      const [from, to] = half.map((frame) => this.x(report.times[frame]));
      marks.push(svg("path", { class: `half ${this.series[this.chosen].kind}`, d: `M${from.toFixed(1)} ${height - bottom - 5}v5H${Math.max(from + 2, to).toFixed(1)}v-5` }));
    }
    const count = Math.max(2, Math.min(9, Math.floor(width / 110)));
    const labels = Array.from({ length: count }, (_, n) => (n / (count - 1)) * this.length).map((time, n) =>
      svg("text", { x: this.x(time), y: height - 4, "text-anchor": n === 0 ? "start" : n === count - 1 ? "end" : "middle" }, clock(time)));
    this.cursor = svg("g", { class: "playhead", transform: `translate(${this.x(this.time).toFixed(1)} 0)` },
      svg("line", { y1: 0, y2: height - bottom }), svg("circle", { cy: 4, r: 4 }));
    this.holder.replaceChildren(svg("svg", { width, height, "aria-hidden": "true" }, span || null,
      svg("line", { class: "axis-line", x1: 8, x2: width - 8, y1: middle, y2: middle }), areas, marks, labels, this.cursor));
  }
}
