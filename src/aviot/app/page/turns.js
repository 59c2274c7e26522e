// The conversation: each question with its answers, one for each setting that it was asked with.

const MOST_COMPARED = 4;
const MOST_EARLIER = 16; // turns that a question is asked after

const settingsOf = ({ method, budget }) => `${method} · ${budget}`;

const howOf = (reply) => {
  const tokens = reply.before ? ` · ${whole.format(reply.before)} → ${whole.format(reply.after)} tokens` : "";
  const read = reply.read && reply.read !== reply.after ? ` (${whole.format(reply.read)} read in ${reply.steps} tries)` : "";
  return settingsOf(reply) + tokens + read;
};

// The turns before a question, each with its latest complete answer; of a long conversation the latest ones.
const historyOf = (turns, turn) =>
  turns.slice(0, turns.indexOf(turn)).slice(-MOST_EARLIER).flatMap((each) => {
    const reply = each.replies.findLast(({ done }) => done);
    return reply ? [{ role: "user", text: each.question }, { role: "assistant", text: reply.text }] : [];
  });

const messagesOf = (video, turns, turn) => {
  const said = [...historyOf(turns, turn), { role: "user", text: turn.question }];
  return said.map(({ role, text }, n) => ({
    role,
    content: n ? text : [{ type: "video_url", video_url: { url: video } }, { type: "text", text }],
  }));
};

const replyElement = (state, turn, reply, does) => {
  const text = el("p", { class: "text", dir: "auto" }, reply.text || (reply.done ? "(an empty answer)" : ""));
  const shown = state.shown, own = shown?.number === reply.number;
  const among = shown?.also.includes(reply.number), full = (shown?.also.length ?? 0) + 1 >= MOST_COMPARED;
  const buttons = reply.explained ? [
    el("button", { type: "button", "aria-pressed": String(own), onclick: () => does.show(reply) }, "Where from"),
    ...(shown && !own && (among || !full) ? [el("button", { type: "button", "aria-pressed": String(among), onclick: () => does.compare(reply) }, "Compare")] : []),
  ] : [];
  if (turn.replies.at(-1) === reply && reply.finished)
    buttons.push(el("button", { type: "button", title: "Ask this again with the method and budget chosen below", onclick: () => does.again(turn) }, "Ask again"));
  return { text, element: el("div", { class: "reply" }, text,
    reply.failed ? el("p", { class: "failed" }, reply.failed) : null,
    el("p", { class: "how" }, howOf(reply)), el("div", { class: "does" }, buttons)) };
};

// Draws all turns; returns the element of the text that is still being written, if there is one.
const drawTurns = (root, state, does) => {
  let writing = null;
  root.replaceChildren(...state.turns.map((turn) => {
    const replies = turn.replies.map((reply) => {
      const drawn = replyElement(state, turn, reply, does);
      if (!reply.finished) writing = drawn.text;
      return drawn.element;
    });
    const shown = turn.replies.some(({ number }) => number && number === state.shown?.number);
    return el("li", { class: shown ? "turn shown" : "turn" }, el("p", { class: "question", dir: "auto" }, turn.question), replies);
  }));
  return writing;
};
