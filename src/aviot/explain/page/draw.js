// Pictures, maps over the patch grid and outlines, on canvases.

const CIVIDIS = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120],
  [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56]];
const PATH_COLOURS = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442"]; // Okabe and Ito
const OUTLINE = "#f0e442";

const ramp = (share) => {
  const place = Math.min(1, Math.max(0, share)) * (CIVIDIS.length - 1);
  const low = Math.min(CIVIDIS.length - 2, Math.floor(place)), part = place - low;
  return CIVIDIS[low].map((value, n) => Math.round(value + part * (CIVIDIS[low + 1][n] - value)));
};
const HEAT = (share) => [255 * Math.min(1, 1.8 * share), 255 * Math.max(0, 1.35 * share - 0.35), 60 * (1 - share)].map(Math.round);
const colour = (share) => `rgb(${ramp(share).join(" ")})`;

// Opacity of a map by the share of its mass in its outlined fifth; an even map's fifth holds a fifth and says little.
const boldness = ({ fading: { even, bold, faintest } }, share) =>
  faintest + (1 - faintest) * Math.min(1, Math.max(0, (share - even) / (bold - even)));
const FAINT = 0.6; // boldness under which a caption says that a map is drawn faintly
const faintly = (report, share) => (boldness(report, share) < FAINT ? " (drawn faintly: an even map's holds 20\u00a0%)" : "");

class Pictures {
  constructor(report) {
    this.files = report.pictures;
    this.images = new Map();
    this.aspect = report.size[0] / report.size[1];
  }

  source(frame) {
    return `data:image/jpeg;base64,${this.files[frame]}`;
  }

  async image(frame) {
    if (!this.images.has(frame)) {
      const image = new Image();
      image.src = this.source(frame);
      this.images.set(frame, image.decode().then(() => image));
    }
    return this.images.get(frame);
  }
}

// A canvas with a frame's aspect ratio, and the boxes of its patches.
class Stage {
  constructor(report, { width = 720, square = false, label }) {
    const aspect = square ? report.grid[1] / report.grid[0] : report.size[0] / report.size[1];
    const side = aspect >= 1 ? width : width * aspect;
    this.canvas = el("canvas", { width: Math.round(side), height: Math.round(side / aspect), role: "img", "aria-label": label,
      style: `width:min(100%, ${(78 * aspect).toFixed(2)}vh)` });
    this.context = this.canvas.getContext("2d");
    this.cover = square ? 1 : report.cover;
    [this.rows, this.columns] = report.grid;
    this.turn = 0;
  }

  label(text) {
    this.canvas.setAttribute("aria-label", text);
  }

  box(patch) {
    const width = (this.canvas.width * this.cover) / this.columns, height = (this.canvas.height * this.cover) / this.rows;
    return [(patch % this.columns) * width, Math.floor(patch / this.columns) * height, width, height];
  }

  patchAt(event) {
    const place = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - place.left) / place.width / this.cover) * this.columns);
    const row = Math.floor(((event.clientY - place.top) / place.height / this.cover) * this.rows);
    return Math.min(this.rows - 1, Math.max(0, row)) * this.columns + Math.min(this.columns - 1, Math.max(0, column));
  }

  // The newest call wins, however long pictures take to decode.
  async paint(pictures, frame, draw, { grey = false } = {}) {
    const turn = ++this.turn;
    const image = frame == null ? null : await pictures.image(frame);
    if (turn !== this.turn) return;
    const { context, canvas } = this;
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (image) {
      context.filter = grey ? "grayscale(1) brightness(0.7)" : "none";
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      context.filter = "none";
    }
    draw?.();
    canvas.dataset.drawn = `${frame ?? ""}`;
  }

  heat(values, alpha = 1) {
    const most = values.reduce((largest, value) => Math.max(largest, value), 0);
    this.context.globalAlpha = alpha;
    values.forEach((value, patch) => {
      const [x, y, width, height] = this.box(patch), [left, top] = [Math.round(x), Math.round(y)];
      this.context.fillStyle = colour(most ? value / most : 0);
      this.context.fillRect(left, top, Math.round(x + width) - left, Math.round(y + height) - top);
    });
    this.context.globalAlpha = 1;
  }

  // A smooth heat map: parts that gave little are dimmed, those that gave much glow.
  glow(values, opacity) {
    const most = values.reduce((largest, value) => Math.max(largest, value), 0) || 1;
    const small = new OffscreenCanvas(this.columns, this.rows), context = small.getContext("2d");
    const picture = context.createImageData(this.columns, this.rows);
    values.forEach((value, patch) => {
      const heat = value / most;
      picture.data.set([...HEAT(heat), Math.round(255 * opacity * (0.35 + 0.4 * heat))], 4 * patch);
    });
    context.putImageData(picture, 0, 0);
    this.context.imageSmoothingQuality = "high";
    this.context.drawImage(small, 0, 0, this.canvas.width * this.cover, this.canvas.height * this.cover);
  }

  // The border of a set of patches.
  contour(set, stroke = OUTLINE, alpha = 1) {
    const lines = new Path2D();
    set.forEach((inside, patch) => {
      if (!inside) return;
      const [x, y, width, height] = this.box(patch), column = patch % this.columns;
      const edge = (outside, ...points) => {
        if (!outside) return;
        lines.moveTo(points[0], points[1]);
        lines.lineTo(points[2], points[3]);
      };
      edge(!set[patch - this.columns], x, y, x + width, y);
      edge(!set[patch + this.columns], x, y + height, x + width, y + height);
      edge(column === 0 || !set[patch - 1], x, y, x, y + height);
      edge(column === this.columns - 1 || !set[patch + 1], x + width, y, x + width, y + height);
    });
    this.context.globalAlpha = alpha;
    this.stroke(lines, stroke);
    this.context.globalAlpha = 1;
  }

  // A part of a patch's shorter side.
  thick(share) {
    const [, , width, height] = this.box(0);
    return share * Math.min(width, height);
  }

  stroke(lines, stroke) {
    this.context.lineCap = "round";
    this.context.strokeStyle = "rgb(0 0 0 / 75%)";
    this.context.lineWidth = this.thick(0.32);
    this.context.stroke(lines);
    this.context.strokeStyle = stroke;
    this.context.lineWidth = this.thick(0.16);
    this.context.stroke(lines);
  }

  // A box in every patch of a set, inset by a fraction of its sides.
  boxes(set, stroke, inset, alpha = 1) {
    this.context.globalAlpha = alpha;
    this.context.strokeStyle = stroke;
    this.context.lineWidth = this.thick(0.07);
    set.forEach((inside, patch) => {
      if (!inside) return;
      const [x, y, width, height] = this.box(patch);
      this.context.strokeRect(x + inset * width, y + inset * height, (1 - 2 * inset) * width, (1 - 2 * inset) * height);
    });
    this.context.globalAlpha = 1;
  }

  mark(patch) {
    const [x, y, width, height] = this.box(patch), lines = new Path2D();
    lines.rect(x, y, width, height);
    this.stroke(lines, "#ffffff");
  }
}

const legend = (low, high) =>
  el("p", { class: "legend" }, el("span", {}, low),
    el("span", { class: "ramp", "aria-hidden": "true", style: `background:linear-gradient(90deg,${CIVIDIS.map((stop) => `rgb(${stop.join(" ")})`).join(",")})` }),
    el("span", {}, high));
