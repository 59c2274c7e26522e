// The app's page: a video is uploaded once and can be asked about at any ratio.

(() => {
  const settings = JSON.parse(document.getElementById("settings").textContent);
  // The slider and the number beside it set the same ratio; the number is sent.
  const [form, file, drop, question, second, ratio, exact, submit, status, problem, notice, model, root, preview] =
    ["form", "file", "drop", "question", "second", "ratio", "ratio-number", "submit", "status", "problem", "notice", "model", "explorer", "preview"].map((id) => document.getElementById(id));
  let video = null, asked = false, turn = 0, source = null;

  const say = (text) => { status.textContent = text; };
  const complain = (text) => { problem.textContent = text; if (text) say(""); };

  const warn = (text) => { notice.textContent = text ?? ""; notice.hidden = !text; };

  // Sends one request; throws an Error with one sentence if it fails.
  const request = async (path, headers, body) => {
    let reply;
    try {
      reply = await fetch(path, { method: "POST", headers, body });
    } catch {
      throw new Error("The app does not answer; is it still running in its terminal?");
    }
    const said = await reply.json();
    if (!reply.ok) throw new Error(said.error);
    return said;
  };

  const attempt = async (work) => {
    const mine = ++turn;
    complain("");
    submit.disabled = true;
    document.body.setAttribute("aria-busy", "true");
    try {
      await work(() => mine === turn);
    } catch (error) {
      if (mine === turn) complain(error.message);
    } finally {
      if (mine === turn) {
        submit.disabled = !video;
        document.body.removeAttribute("aria-busy");
      }
    }
  };

  // The browser plays the chosen file itself, before it is read and in the page: nothing is sent for that.
  const show = (chosen) => {
    if (source) URL.revokeObjectURL(source);
    source = URL.createObjectURL(chosen);
    preview.hidden = false;
    preview.onerror = () => { preview.hidden = true; };
    preview.src = source;
  };

  const upload = (chosen) => attempt(async (current) => {
    video = null;
    asked = false;
    show(chosen);
    warn(null);
    root.replaceChildren();
    delete root.dataset.ready;
    if (chosen.size > settings.upload_bytes) throw new Error(`“${chosen.name}” is too large: at most ${Math.floor(settings.upload_bytes / 1e6)} MB.`);
    say(`Reading “${chosen.name}” and encoding its frames…`);
    const found = await request("/videos", { "Content-Type": "application/octet-stream", "X-File-Name": encodeURIComponent(chosen.name) }, chosen);
    if (!current()) return;
    video = found;
    warn(found.notice);
    say(`“${found.name}” is ready: ${found.frames} ${found.frames === 1 ? "frame" : "frames"} of ${found.duration.toFixed(1)} s. Ask as many questions as you like; the video is not encoded again.`);
  });

  const ask = () => attempt(async (current) => {
    if (!video) throw new Error("Choose a video first.");
    if (!question.value.trim()) throw new Error("Type a question first.");
    say("Compressing and answering…");
    const questions = [question.value, second.value].filter((text) => text.trim());
    const report = await request("/ask", { "Content-Type": "application/json" },
      JSON.stringify({ video: video.video, name: video.name, questions, ratio: Number(exact.value) }));
    if (!current()) return;
    asked = true;
    await explore(root, report, { linked: false, source: preview.hidden ? undefined : source });
    preview.hidden = true; // the page below shows the video
    warn(null); // the report shows it beside the answers
    say(`Answer: “${report.conditions[0].answer}”, from ${report.supports} ${report.supports === 1 ? "support" : "supports"} made of ${report.times.length} frames. Below is where it came from.`);
  });

  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  file.addEventListener("change", () => { if (file.files[0]) upload(file.files[0]); });
  ratio.addEventListener("input", () => { exact.value = ratio.value; });
  exact.addEventListener("input", () => { ratio.value = exact.value; });
  for (const input of [ratio, exact]) input.addEventListener("change", () => { if (asked && exact.reportValidity()) ask(); });
  for (const kind of ["dragover", "drop", "dragleave"])
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
    });
  file.accept = settings.accept;
  model.replaceChildren("Questions are answered by ", Object.assign(document.createElement("strong"), { textContent: settings.model.name }), ` (${settings.model.facts}).`);
  ratio.value = exact.value = settings.ratio;
})();
