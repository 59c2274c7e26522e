// The report's numbers, unpacked.

const bytesOf = (text) => {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n++) bytes[n] = raw.charCodeAt(n);
  return bytes;
};

const inflated = async (text) => {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// One compression: the contribution of every frame to every support, by path.
class View {
  static async open(raw, report) {
    const [mass, pairs, figures] = await Promise.all([raw.mass, raw.pairs, raw.figures].map(inflated));
    return new View(raw, report, new Float32Array(mass.buffer), new Uint16Array(pairs.buffer), new Uint16Array(figures.buffer));
  }

  constructor(raw, report, mass, pairs, figures) {
    this.raw = raw;
    this.mass = mass; // [path, support, frame]
    this.figures = figures; // [pair, figure]
    this.heard = raw.heard;
    this.paths = raw.paths;
    this.frames = report.times.length;
    this.supports = raw.tokens.length;
    this.uniform = report.fading.uniform;
    this.patches = report.grid[0] * report.grid[1];
    this.steps = report.figure_steps;
    this.figureNames = report.figures;
    this.places = new Map();
    for (let n = 0; n < pairs.length; n += 2) this.places.set(pairs[n] * this.frames + pairs[n + 1], n / 2);
    this.loading = null;
    this.maps = null;
  }

  load() {
    this.loading ??= this.inflate();
    return this.loading;
  }

  async inflate() {
    const chunks = await Promise.all(this.raw.chunks.map(inflated));
    const whole = new Uint8Array(chunks.reduce((size, chunk) => size + chunk.length, 0));
    let at = 0;
    for (const chunk of chunks) { whole.set(chunk, at); at += chunk.length; }
    this.maps = whole;
  }

  // A path's contribution from a frame to a support, averaged over positions.
  path(level, support, frame) {
    return this.mass[(level * this.supports + support) * this.frames + frame];
  }

  weight(support, frame) {
    let sum = 0;
    for (let level = 0; level < this.paths.length; level++) sum += this.path(level, support, frame);
    return sum;
  }

  row(support) {
    return Array.from({ length: this.frames }, (_, frame) => this.weight(support, frame));
  }

  column(frame) {
    return Array.from({ length: this.supports }, (_, support) => this.weight(support, frame));
  }

  // Every frame's share of all tokens.
  overTime() {
    return this.raw.spent;
  }

  strongest(support, count) {
    const row = this.row(support);
    return row.map((_, frame) => frame).sort((a, b) => row[b] - row[a]).slice(0, count).filter((frame) => row[frame] > 0);
  }

  // The index of a pair's maps; undefined if the page does not have them.
  place(support, frame) {
    return this.places.get(support * this.frames + frame);
  }

  get bytesPerPair() {
    return this.paths.length * this.patches + (this.paths.length + 1) * this.bytesPerSet;
  }

  get bytesPerSet() {
    return Math.ceil(this.patches / 8);
  }

  // A path's weight at every position; its mean is the path's exact mass for the pair.
  map(level, support, frame) {
    const start = this.place(support, frame) * this.bytesPerPair + level * this.patches;
    const steps = this.maps.subarray(start, start + this.patches);
    const sum = steps.reduce((total, step) => total + step, 0);
    const scale = sum ? (this.patches * this.path(level, support, frame)) / sum : 0;
    return Float64Array.from(steps, (step) => step * scale);
  }

  fused(support, frame) {
    const total = new Float64Array(this.patches);
    for (let level = 0; level < this.paths.length; level++)
      this.map(level, support, frame).forEach((value, patch) => { total[patch] += value; });
    return total;
  }

  // The positions in the top 20 % of the fused map (level -1) or of a path's.
  top(level, support, frame) {
    const start = this.place(support, frame) * this.bytesPerPair + this.paths.length * this.patches;
    const set = start + (level + 1) * this.bytesPerSet;
    return Array.from({ length: this.patches }, (_, patch) => (this.maps[set + (patch >> 3)] >> (7 - (patch & 7))) & 1);
  }

  // True if all positions of a frame contribute about alike, as in an unchanged frame: no fifth of them stands out.
  even(support, frame) {
    return this.figure("mass_in_top", support, frame) < this.uniform;
  }

  figure(name, support, frame) {
    const column = this.figureNames.indexOf(name);
    return this.figures[this.place(support, frame) * this.figureNames.length + column] / this.steps;
  }
}

const times = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 2, useGrouping: false });
const seconds = (value) => {
  if (value < 60) return `${times.format(value)} s`;
  const minutes = Math.floor(value / 60), rest = value - 60 * minutes;
  return `${minutes}:${rest < 9.995 ? "0" : ""}${times.format(rest)}`;
};
const percent = (share) => {
  if (!share) return "0\u00a0%";
  const value = 100 * share;
  if (value < 0.01) return "under\u00a00.01\u00a0%";
  return `${value >= 99.95 && value < 100 ? "above\u00a099.9" : value.toFixed(value < 1 ? 2 : 1)}\u00a0%`;
};
const whole = new Intl.NumberFormat("en");
const decimal = (value, digits = 3) => value.toFixed(digits);
const counted = (number, noun) => `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
const operations = (count) => {
  const [size, name] = [[1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"]].find(([least]) => count >= least) ?? [1, "FLOP"];
  return `${Number((count / size).toPrecision(3))} ${name}`;
};
const small = (value) => (value === 0 ? "0" : value.toExponential(1));
