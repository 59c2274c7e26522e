// Elements, made without ever reading text as markup.

const NAMESPACE = "http://www.w3.org/2000/svg";

const filledWith = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
};
const el = (name, attributes, ...children) => filledWith(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) =>
  filledWith(document.createElementNS(NAMESPACE, name), attributes, children);

const section = (id, title, lead, ...children) =>
  el("section", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title), lead && el("p", { class: "lead" }, lead), ...children);

const WIDE = 8; // columns above which the cells of a row wrap
const NARROW = 4; // the same on a phone

// One of the parts below a section's heading.
const part = (id, title, lead, ...children) =>
  el("details", { id, class: "part" }, el("summary", {}, el("h3", {}, title)), lead && el("p", { class: "lead" }, lead), ...children);

// A table. The last column of a `worded` table has sentences, which a phone shows under their row; the rows of a wide
// one wrap, so that nothing scrolls sideways.
const tableOf = (caption, head, rows, kind) =>
  el("table", { class: head.length > WIDE ? "wrapped" : head.length > NARROW ? `narrowed ${kind ?? ""}` : kind }, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, rows.map((row) => el("tr", {},
      row.map((cell, n) => (n ? el("td", {}, cell) : el("th", { scope: "row" }, cell)))))));

// "Numbers as a table" under a chart; filled while it is open.
const numbers = (make, title = "Numbers as a table") => {
  const body = el("div");
  const details = el("details", { class: "numbers", ontoggle: () => fill() }, el("summary", {}, title), body);
  const fill = () => body.replaceChildren(...(details.open ? [tableOf(...make())] : []));
  return { element: details, update: fill };
};

const bar = (share, text, kind = "") =>
  el("span", { class: "barred" },
    el("span", { class: "track", "aria-hidden": "true" },
      el("span", { class: `bar ${kind}`, style: `width:${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%` })),
    el("span", { class: "value" }, text));

const slider = (id, label, most, choose) => {
  const input = el("input", { type: "range", id, min: 0, max: Math.max(0, most), step: 1, oninput: () => choose(Number(input.value)) });
  const output = el("output", { for: id });
  const limit = (least) => { input.max = Math.max(0, least); input.disabled = least < 1; };
  limit(most);
  const show = (value, text) => {
    input.value = value;
    input.setAttribute("aria-valuetext", text);
    output.textContent = text;
  };
  return { element: el("div", { class: "slider" }, el("label", { for: id }, label), input, output), show, limit };
};
