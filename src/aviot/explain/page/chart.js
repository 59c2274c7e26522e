// Curves and bars over time or over supports, as wide as their container.

const DASHES = ["", "7 4", "2 3", "10 3 2 3", "1 6"];

class Chart {
  constructor({ label, pick, height = 190, bars = false }) {
    this.bars = bars;
    this.height = height;
    this.label = label;
    this.pick = pick;
    this.tip = el("div", { class: "tip", hidden: true });
    this.element = el("div", { class: pick ? "chart pickable" : "chart", onpointermove: (event) => this.hover(event), onpointerdown: (event) => this.hover(event), onpointerleave: () => { this.tip.hidden = true; } });
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  // series: [{ name, values, kind }]; ticks: [[place, text]]; bands: [[from, to, text]]
  show(series, { ticks, bands = [], marker = null, unit = percent, label = this.label }) {
    Object.assign(this, { series, ticks, bands, marker, unit, label });
    this.draw();
  }

  placeOf(event) {
    const box = this.element.getBoundingClientRect(), count = this.series[0].values.length;
    return Math.floor(((event.clientX - box.left - 58) / (box.width - 68)) * count);
  }

  hover(event) {
    const place = this.placeOf(event);
    this.tip.hidden = !(place >= 0 && place < this.series[0].values.length);
    if (this.tip.hidden) return;
    const tick = this.ticks.find(([at]) => at === place)?.[1] ?? place;
    this.tip.replaceChildren(el("strong", {}, this.bars ? `number ${tick}` : tick), ...this.series.map((each) => el("span", { class: `row ${each.kind ?? ""}` }, this.unit(each.values[place]))));
    this.tip.style.left = `${Math.min(this.element.clientWidth - 60, Math.max(60, event.clientX - this.element.getBoundingClientRect().left))}px`;
  }

  draw() {
    const width = this.element.clientWidth;
    if (!this.series || !width) return;
    const left = 58, right = 10, top = 18, bottom = 26, count = this.series[0].values.length;
    const most = Math.max(...this.series.flatMap((each) => each.values)) || 1;
    const span = width - left - right, tall = this.height - top - bottom;
    const x = (place) => left + ((place + 0.5) / count) * span;
    const y = (value) => top + tall * (1 - value / most);
    const bands = this.bands.map(([from, to, text], n) => [
      svg("rect", { x: left + (from / count) * span, y: top, width: ((to - from) / count) * span, height: tall, class: n % 2 ? "band odd" : "band" }),
      svg("text", { x: left + (from / count) * span + 4, y: top - 5, class: "band-text" }, ((to - from) / count) * span < 66 ? text.replace("segment ", "") : text)]);
    const levels = [0, 0.5, 1].map((part) => [
      svg("line", { x1: left, x2: width - right, y1: y(part * most), y2: y(part * most), class: "level" }),
      svg("text", { x: left - 6, y: y(part * most) + 4, "text-anchor": "end" }, this.unit(part * most))]);
    const step = Math.ceil(this.ticks.length / Math.max(2, Math.floor(span / 84)));
    const ticks = this.ticks.filter((_, n) => n % step === 0).map(([place, text]) =>
      svg("text", { x: x(place), y: this.height - 7, "text-anchor": "middle" }, text));
    const marker = this.marker == null ? null :
      svg("line", { x1: x(this.marker), x2: x(this.marker), y1: top, y2: top + tall, class: "marker" });
    const drawn = this.series.map((each, n) => this.bars
      ? each.values.map((value, place) => svg("rect", { class: place === this.marker ? "column chosen" : "column", x: left + (place / count) * span + 0.5,
        y: y(value), width: Math.max(1, span / count - 1), height: Math.max(0, y(0) - y(value)) }))
      : count === 1
        ? svg("circle", { cx: x(0), cy: y(each.values[0]), r: 4, class: `dot ${each.kind ?? ""}` })
        : svg("polyline", { class: `curve ${each.kind ?? ""}`, "stroke-dasharray": DASHES[n % DASHES.length],
          points: each.values.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
    const picture = svg("svg", { width, height: this.height, role: "img", "aria-label": this.label }, bands.flat(), levels.flat(), ticks,
      this.bars ? drawn.flat() : drawn, this.bars ? null : marker);
    if (this.pick) picture.addEventListener("pointerdown", (event) => {
      const place = this.placeOf(event);
      if (place >= 0 && place < count) this.pick(place);
    });
    this.element.replaceChildren(picture, this.tip);
  }
}

const lineKey = (names) =>
  el("ul", { class: "key" }, names.map((name, n) => el("li", {},
    svg("svg", { width: 34, height: 10, "aria-hidden": "true" },
      svg("line", { x1: 1, x2: 33, y1: 5, y2: 5, class: `curve series${n}`, "stroke-dasharray": DASHES[n % DASHES.length] })), name)));
