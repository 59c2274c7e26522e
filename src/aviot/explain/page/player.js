// The video itself: a copy inside the page, or its sampled pictures where there is none.

const blobOf = (text, type) => URL.createObjectURL(new Blob([bytesOf(text)], { type }));

class Player {
  constructor(report, pictures, moved, { source } = {}) {
    this.report = report;
    this.pictures = pictures;
    this.moved = moved;
    this.length = Math.max(report.duration, report.times.at(-1) + 0.001);
    this.now = 0;
    this.turn = 0;
    const aspect = report.size[0] / report.size[1];
    this.element = el("div", { class: "player", style: `--aspect:${aspect.toFixed(4)}` });
    this.own = source || !report.clip ? null : blobOf(report.clip.data, "video/mp4");
    const whole = source ?? this.own;
    if (whole) this.withVideo(whole);
    else this.withPictures();
  }

  withVideo(source) {
    this.video = el("video", { class: "screen", src: source, muted: true, playsinline: true, preload: "auto", "aria-label": `The video ${this.report.name}`,
      ontimeupdate: () => this.tick(this.video.currentTime), onplay: () => this.follow(), onpause: () => this.show(), onended: () => this.show(),
      onerror: () => { this.video = null; this.withPictures(); this.seek(this.now); } });
    this.video.muted = true;
    this.button = this.playButton();
    this.element.replaceChildren(this.video, this.button);
    this.video.addEventListener("click", () => this.toggle());
  }

  withPictures() {
    this.image = el("img", { class: "screen", alt: `A frame of ${this.report.name}`, src: this.pictures.source(0) });
    this.button = this.playButton();
    this.element.replaceChildren(this.image, this.button);
    this.image.addEventListener("click", () => this.toggle());
  }

  playButton() {
    return el("button", { type: "button", class: "play", "aria-label": "Play the video", onclick: () => this.toggle() });
  }

  // Stops, and frees the copy of the video.
  end() {
    this.video?.pause();
    if (this.timer) cancelAnimationFrame(this.timer);
    this.timer = null;
    if (this.own) URL.revokeObjectURL(this.own);
  }

  get playing() {
    return this.video ? !this.video.paused : Boolean(this.timer);
  }

  toggle() {
    if (this.video) {
      if (!this.video.paused) this.video.pause();
      else {
        if (this.video.ended || this.video.currentTime > this.length - 0.1) this.video.currentTime = 0;
        this.video.play().catch(() => this.show());
      }
    } else if (this.timer) {
      cancelAnimationFrame(this.timer);
      this.timer = null;
    } else {
      if (this.now > this.length - 0.1) this.now = 0;
      const start = performance.now() - 1000 * this.now;
      const step = () => {
        this.tick((performance.now() - start) / 1000);
        this.timer = this.now < this.length ? requestAnimationFrame(step) : null;
        this.show();
      };
      this.timer = requestAnimationFrame(step);
    }
    this.show();
  }

  // While the video plays, the cursor moves with every frame that is drawn.
  follow() {
    const mine = ++this.turn;
    const step = () => {
      if (mine !== this.turn || !this.video || this.video.paused) return;
      this.tick(this.video.currentTime);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
    this.show();
  }

  show() {
    this.element.classList.toggle("playing", this.playing);
    this.button.setAttribute("aria-label", this.playing ? "Pause the video" : "Play the video");
  }

  tick(time) {
    this.now = Math.min(this.length, time);
    if (!this.video) {
      const source = this.pictures.source(frameAt(this.report, this.now));
      if (this.image.src !== source) this.image.src = source;
    }
    this.moved(this.now);
  }

  seek(time) {
    this.now = time;
    if (this.video) this.video.currentTime = Math.min(time, this.length - 0.001);
    this.tick(time);
  }
}

// The sampled frame that stands for a time: the latest that is not after it.
const frameAt = (report, time) => {
  let low = 0, high = report.times.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (report.times[middle] <= time + 1e-3) low = middle;
    else high = middle - 1;
  }
  return low;
};

const nearestFrame = (report, time) => {
  const low = frameAt(report, time), high = Math.min(low + 1, report.times.length - 1);
  return time - report.times[low] <= report.times[high] - time ? low : high;
};
