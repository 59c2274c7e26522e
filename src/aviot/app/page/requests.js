// Requests to the app. Each throws an Error with one sentence if it fails; a stopped one throws an AbortError.

const GONE = "The app does not answer; is it still running in its terminal?";
const LINES = "application/x-ndjson";

const stopped = (error) => error.name === "AbortError";

const sentenceOf = async (reply) => {
  try {
    const { error } = await reply.json();
    return error.message;
  } catch {
    return `The app answered with status ${reply.status}.`;
  }
};

const send = async (path, options) => {
  let reply;
  try {
    reply = await fetch(path, options);
  } catch (error) {
    throw stopped(error) ? error : new Error(GONE);
  }
  if (!reply.ok) throw new Error(await sentenceOf(reply));
  return reply;
};

// Sends a video; `tell` hears of every step, and the last line describes the video.
const sendVideo = (file, tell, signal) => new Promise((resolve, reject) => {
  const request = new XMLHttpRequest(), began = performance.now();
  let read = 0, last = null;
  const take = () => {
    const lines = request.responseText.slice(read).split("\n");
    read = request.responseText.length - lines.pop().length;
    for (const line of lines) {
      last = JSON.parse(line);
      if (last.stage) tell(last);
    }
  };
  request.open("POST", "/videos");
  request.setRequestHeader("Content-Type", "application/octet-stream");
  request.setRequestHeader("X-File-Name", encodeURIComponent(file.name));
  request.setRequestHeader("Accept", LINES);
  request.upload.onprogress = ({ loaded, total }) => {
    const share = total ? loaded / total : 0, spent = (performance.now() - began) / 1000;
    tell({ stage: "upload", share, left: share > 0.02 ? (spent * (1 - share)) / share : null });
  };
  request.onprogress = () => { if (request.status === 200) take(); };
  request.onerror = () => reject(new Error(GONE));
  request.onabort = () => reject(new DOMException("stopped", "AbortError"));
  request.onload = () => {
    try {
      if (request.status !== 200) throw new Error(JSON.parse(request.responseText).error.message);
      take();
      if (last.error) throw new Error(last.error);
      resolve(last);
    } catch (error) {
      reject(error instanceof SyntaxError ? new Error(`The app answered with status ${request.status}.`) : error);
    }
  };
  signal.addEventListener("abort", () => request.abort());
  tell({ stage: "upload", share: 0, left: null });
  request.send(file);
});

// Asks a question; `say` hears the answer's text as it comes. Returns what the reply tells at its end.
const sendQuestion = async (asked, say, signal) => {
  const body = JSON.stringify({ ...asked, stream: true, stream_options: { include_usage: true } });
  const reply = await send("/v1/chat/completions", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader(), told = {};
  let waiting = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      throw stopped(error) ? error : new Error(GONE);
    }
    if (part.done) break;
    const events = (waiting + part.value).split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const data = event.slice("data: ".length);
      if (data === "[DONE]") return told;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      const text = chunk.choices[0]?.delta.content;
      if (text) say(text);
      if (chunk.aviot) Object.assign(told, { id: chunk.id, about: chunk.aviot });
      if (chunk.usage) told.usage = chunk.usage;
    }
  }
  throw new Error("The answer broke off; ask again.");
};

const explanationPath = ({ number, also }, name, part = "") =>
  `/explain/${number}${part}?${new URLSearchParams([...also.map((each) => ["also", each]), ["name", name]])}`;

// The data of a report that was saved as a page.
const savedReport = async (file) => {
  const page = new DOMParser().parseFromString(await file.text(), "text/html"); // runs no script
  let report;
  try {
    report = JSON.parse(page.getElementById("report").textContent);
  } catch {
    throw new Error(`“${file.name}” is not a saved report.`);
  }
  if (report.format !== settings.format) throw new Error(`“${file.name}” was saved by another version of the app.`);
  return report;
};
