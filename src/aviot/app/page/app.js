// The page: one video, a conversation about it, and below it where the chosen answer came from.

const page = Object.fromEntries(["form", "file", "report", "drop", "samples", "preview", "progress", "bar", "stage", "cancel", "status",
  "notice", "turns", "problem", "question", "submit", "stop", "method", "kind", "ratio", "ratio-number", "ratio-choice", "model",
  "others", "camera", "explaining", "explaining-words", "stop-explaining", "saving", "save", "explorer"].map((id) => [id, document.getElementById(id)]));
const STAGES = { upload: "Uploading", wait: "Waiting for its turn", decode: "Decoding", encode: "Encoding" };
const BROKEN_OFF = "The page was closed before the answer was complete.";

const state = stored();
let source = null, opening = null, camera = null, answering = null, explaining = null, explored = null;

const say = (text) => { page.status.textContent = text; };
const complain = (text) => { page.problem.textContent = text; };
const warn = (text) => { page.notice.textContent = text ?? ""; page.notice.hidden = !text; };

const ready = () => {
  page.submit.disabled = !state.video || Boolean(answering) || Boolean(opening);
  page.submit.hidden = Boolean(answering);
  page.stop.hidden = !answering;
  document.body.toggleAttribute("aria-busy", Boolean(opening || answering || explaining));
};

const draw = () => {
  store({ ...state, draft: page.question.value, settings: { method: page.method.value, kind: page.kind.value, ratio: page["ratio-number"].value } });
  return drawTurns(page.turns, state, { show: (reply) => explain({ number: reply.number, also: [] }), compare, again: (turn) => ask(turn) });
};

// Runs work that may fail with a sentence, or be stopped.
const attempt = async (work) => {
  complain("");
  try {
    return await work();
  } catch (error) {
    if (!stopped(error)) complain(error.message);
    return null;
  }
};

// The video

const describe = (video) => `“${video.name}” is ready: ${video.frames} ${video.frames === 1 ? "frame" : "frames"} of ${video.duration.toFixed(1)} s, encoded once for all questions.`;

const progress = ({ stage, share, left }) => {
  const known = stage !== "wait" && share > 0;
  if (known) page.bar.value = share;
  else page.bar.removeAttribute("value");
  page.stage.textContent = STAGES[stage] + (known ? ` · ${Math.round(100 * share)} %` : "") + (left != null ? ` · about ${Math.max(1, Math.ceil(left))} s left` : "");
};

// Forgets the file that the browser plays.
const forget = () => {
  if (source) URL.revokeObjectURL(source);
  source = null;
  page.preview.removeAttribute("src");
};

// The browser plays the chosen file itself, before it is read: nothing is sent for that.
const preview = (file) => {
  forget();
  source = URL.createObjectURL(file);
  page.preview.hidden = false;
  page.preview.onerror = () => { page.preview.hidden = true; };
  page.preview.src = source;
};

const endCamera = () => {
  camera?.end();
  camera = null;
  page.progress.hidden = true;
};

const clear = () => {
  answering?.abort();
  endCamera();
  hideReport();
  Object.assign(state, { video: null, turns: [] });
  warn(null);
  draw();
};

const open = (file) => attempt(async () => {
  opening?.abort();
  const mine = (opening = new AbortController()), before = state.video, turns = state.turns;
  clear();
  preview(file);
  say("");
  ready();
  page.progress.hidden = false;
  try {
    if (file.size > settings.upload_bytes) throw new Error(`“${file.name}” is too large: at most ${Math.floor(settings.upload_bytes / 1e6)} MB.`);
    const video = await sendVideo(file, (step) => { if (opening === mine) progress(step); }, mine.signal);
    state.video = video;
    if (before?.video === video.video) state.turns = turns; // the same video again: go on
    page.others.open = false;
    warn(video.notice);
    say(describe(video));
  } finally {
    if (opening === mine) {
      opening = null;
      page.progress.hidden = true;
      draw();
      ready();
    }
  }
});

const sample = ({ number, question }) => attempt(async () => {
  const reply = await send(`/samples/${number}`);
  await open(new File([await reply.blob()], `scene ${number}.mp4`, { type: "video/mp4" }));
  if (state.video && !page.question.value) page.question.value = question;
});

const watch = () => attempt(async () => {
  opening?.abort();
  clear();
  forget();
  page.preview.hidden = false;
  const counts = ({ seen, dropped }) => {
    page.progress.hidden = false;
    page.bar.removeAttribute("value");
    page.stage.textContent = `Watching · ${seen} ${seen === 1 ? "frame" : "frames"} seen, ${dropped} dropped`;
  };
  try {
    camera = await openCamera(page.preview, counts, (error) => { endCamera(); complain(error.message); });
  } catch (error) {
    page.preview.hidden = true;
    throw error;
  }
  state.video = { stream: camera.id, name: "the camera" };
  page.others.open = false;
  warn(settings.notice);
  say("The camera is watched; ask about now or about before. It is forgotten when it ends.");
  draw();
  ready();
});

const cancel = () => {
  opening?.abort();
  if (camera) Object.assign(state, { video: null });
  endCamera();
  page.preview.hidden = page.others.open = true;
  page.file.value = "";
  say("Cancelled.");
  draw();
  ready();
};

const addressOf = (video) => (video.stream ? `stream:${video.stream}` : `upload:${video.video}`);

const reopen = (file) => attempt(async () => {
  const report = await savedReport(file);
  opening?.abort();
  clear();
  page.preview.hidden = true;
  say(`“${file.name}” as it was saved. Choose its video to ask more.`);
  ready();
  try {
    await showReport(report, {});
  } catch {
    throw new Error(`“${file.name}” is damaged and cannot be shown.`);
  }
});

const take = (file) => (/\.html?$/i.test(file.name) ? reopen(file) : open(file));

// The conversation

const budgetOf = () => (page.kind.value === "auto" ? "auto" : Number(page["ratio-number"].value));

const ask = (turn) => attempt(async () => {
  if (!state.video) throw new Error("Choose a video first.");
  if (answering) return;
  if (page.kind.value !== "auto" && !page["ratio-number"].reportValidity()) return;
  explaining?.abort();
  const mine = (answering = new AbortController()), budget = budgetOf();
  const reply = { text: "", method: page.method.value, budget: budget === "auto" ? "automatic budget" : `ratio ${budget}` };
  if (turn) turn.replies.push(reply);
  else state.turns.push((turn = { question: page.question.value.trim(), replies: [reply] }));
  page.question.value = "";
  ready();
  const writing = draw();
  writing?.scrollIntoView({ block: "nearest" });
  try {
    const asked = { model: settings.model.id, messages: messagesOf(addressOf(state.video), state.turns, turn), aviot: { method: reply.method, budget } };
    const told = await sendQuestion(asked, (text) => { reply.text += text; if (writing) writing.textContent = reply.text; }, mine.signal);
    const { before, after, read } = told.usage.visual_tokens;
    Object.assign(reply, { number: told.id, before, after, read, steps: told.about.steps?.length, explained: Boolean(told.about.explain), done: true });
    if (told.about.steps) reply.budget = `automatic budget: ${told.about.budget}`;
  } catch (error) {
    reply.failed = stopped(error) ? "Stopped." : error.message;
  } finally {
    reply.finished = true;
    if (answering === mine) answering = null;
    draw();
    ready();
  }
  if (reply.explained) await explain({ number: reply.number, also: [] });
});

// The explanation

const hideReport = () => {
  explaining?.abort();
  explored?.player.end();
  explored = null;
  state.shown = null;
  page.explorer.replaceChildren();
  delete page.explorer.dataset.ready;
  page.saving.hidden = true;
  document.body.classList.remove("explained");
};

const showReport = async (report, options) => {
  explored?.player.end();
  explored = await explore(page.explorer, report, { linked: false, ...options });
  document.body.classList.add("explained");
};

const explain = (chosen) => attempt(async () => {
  explaining?.abort();
  const mine = (explaining = new AbortController()), began = performance.now();
  const tell = () => { page["explaining-words"].textContent = `Finding out where the answer came from · ${Math.floor((performance.now() - began) / 1000)} s`; };
  const ticking = setInterval(tell, 1000);
  tell();
  page.explaining.hidden = false;
  ready();
  try {
    const reply = await send(explanationPath(chosen, state.video.name, "/data"), { signal: mine.signal });
    const report = await reply.json();
    if (explaining !== mine) return;
    state.shown = chosen;
    await showReport(report, page.preview.hidden || !source ? {} : { source });
    page.saving.hidden = false;
    draw();
  } finally {
    clearInterval(ticking);
    if (explaining === mine) {
      explaining = null;
      page.explaining.hidden = true;
      ready();
    }
  }
});

const compare = ({ number }) => {
  const { number: first, also } = state.shown;
  explain({ number: first, also: also.includes(number) ? also.filter((each) => each !== number) : [...also, number] });
};

const save = () => attempt(async () => {
  const reply = await send(explanationPath(state.shown, state.video.name));
  const place = URL.createObjectURL(await reply.blob());
  el("a", { href: place, download: `${state.video.name.replace(/\.\w+$/, "")} report.html` }).click();
  setTimeout(() => URL.revokeObjectURL(place), 60_000);
});

// The page's controls

page.form.addEventListener("submit", (event) => { event.preventDefault(); if (page.question.value.trim()) ask(null); else complain("Type a question first."); });
page.file.addEventListener("change", () => { if (page.file.files[0]) take(page.file.files[0]); });
page.report.addEventListener("change", () => { if (page.report.files[0]) reopen(page.report.files[0]); page.report.value = ""; });
page.cancel.addEventListener("click", cancel);
page.camera.addEventListener("click", watch);
page.camera.hidden = !hasCamera();
page.stop.addEventListener("click", () => answering?.abort());
page["stop-explaining"].addEventListener("click", () => explaining?.abort());
page.save.addEventListener("click", save);
page.ratio.addEventListener("input", () => { page["ratio-number"].value = page.ratio.value; });
page["ratio-number"].addEventListener("input", () => { page.ratio.value = page["ratio-number"].value; });
page.kind.addEventListener("change", () => { page["ratio-choice"].hidden = page.kind.value === "auto"; });
addEventListener("pagehide", () => { draw(); camera?.end(); });
for (const kind of ["dragover", "drop", "dragleave"])
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    page.drop.classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });

page.file.accept = `${settings.accept},.html`;
page.model.replaceChildren("Answers come from ", el("strong", {}, settings.model.name), ` (${settings.model.facts}).`);
page.samples.append(...settings.samples.map((each) => el("button", { type: "button", onclick: () => sample(each) }, `Scene ${each.number}`)));
page.method.append(...settings.methods.map((name) => el("option", { value: name }, name)));
page.method.value = state.settings?.method ?? settings.method;
page.kind.value = state.settings?.kind ?? "ratio";
page.ratio.value = page["ratio-number"].value = state.settings?.ratio ?? settings.ratio;
page["ratio-choice"].hidden = page.kind.value === "auto";
page.question.value = state.draft;
for (const { replies } of state.turns)
  for (const reply of replies)
    if (!reply.finished) Object.assign(reply, { finished: true, failed: BROKEN_OFF });
if (state.video?.stream) state.video = null; // a camera ends with its page
page.others.open = !state.video;
if (state.video) {
  warn(state.video.notice);
  say(describe(state.video));
}
draw();
ready();
if (state.shown) explain(state.shown);
