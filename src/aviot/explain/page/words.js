// Plain words, and the paper's words explained where they stand.

const GLOSSARY = {
  token: "One of the vectors that the language model reads. Pictures become tokens; fewer tokens mean less work and less memory.",
  support: "One compressed frame. At every position it is a mixture of that position in several frames of the video, and the language model reads it in their place.",
  moment: "All tokens that stand at one time of the video. This method keeps or merges single tokens; those of one time are shown together.",
  patch: "One square of the grid that the model cuts a frame into.",
  share: "How much of a support was made from a frame. All shares of a support add up to 100 %. The paper writes ω.",
  path: "AVIOT moves mass from frames to supports by several transport plans at once, from coarse to fine: global, medium and local. The paper calls them branches.",
  ratio: "Visual tokens before compression over those after it.",
  segment: "A stretch of the video of equal length. Each has a budget of supports, which the question can move.",
  relevance: "How similar a frame is to the question in the language model's own space. The support with most relevance times mass is shown first.",
};

const MARKS = new Map(); // one explanation open at a time for each term

// A word with its explanation, which opens after it on a click.
const term = (name, text = name) => {
  const note = el("span", { class: "definition", role: "note", hidden: true }, GLOSSARY[name]);
  const button = el("button", { type: "button", class: "term", "aria-expanded": "false", onclick: () => {
    const other = MARKS.get("open");
    if (other && other !== close) other();
    note.hidden ? open() : close();
  } }, text);
  const close = () => { note.hidden = true; button.setAttribute("aria-expanded", "false"); MARKS.delete("open"); };
  const open = () => { note.hidden = false; button.setAttribute("aria-expanded", "true"); MARKS.set("open", close); };
  return el("span", { class: "termed" }, button, note);
};

const clock = (value) => {
  const all = Math.floor(value + 1e-6);
  return `${Math.floor(all / 60)}:${String(all % 60).padStart(2, "0")}`;
};
const spanned = (report, [first, last]) => {
  const [a, b] = [clock(report.times[first]), clock(report.times[last])];
  return a === b ? a : `${a}–${b}`;
};
const unitName = (report) => (report.whole_frames ? "support" : "moment");
const Unit = (report) => (report.whole_frames ? "Support" : "Moment");

const CONDITIONS = {
  matched: "for this question",
  rotated: "for another question",
  none: "for no question",
};
const conditionName = (report, condition) => {
  if (!report.conditioned) return "without using the question";
  if (condition.kind !== "rotated") return CONDITIONS[condition.kind];
  return `for question ${report.views[condition.view].heard + 1}`;
};
const viewName = (report, view) => (view.heard == null ? "no question" : `question ${view.heard + 1}`);

// The answers that come first: one per question, compressed for it if the method uses questions.
const mainConditions = (report) =>
  report.questions.map((_, question) => report.conditions.findIndex((each) => each.question === question));
const seriesOf = (condition) => `series${condition.question}`;

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
