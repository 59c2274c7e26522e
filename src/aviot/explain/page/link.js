// Deep links: the address after # holds question, support, frame and patch.

const PARTS = { answer: "condition", support: "support", frame: "frame", patch: "patch" };

const readLink = (report) => {
  const given = new URLSearchParams(location.hash.slice(1)), found = {};
  for (const [name, key] of Object.entries(PARTS))
    if (/^\d{1,6}$/.test(given.get(name) ?? "")) found[key] = Number(given.get(name));
  const limits = { condition: report.conditions.length, frame: report.times.length, patch: report.grid[0] * report.grid[1] };
  for (const [key, most] of Object.entries(limits)) if (found[key] >= most) delete found[key];
  const condition = report.conditions[found.condition ?? 0];
  if (found.support >= report.views[condition.view].tokens.length) delete found.support;
  return found;
};

const writeLink = (state) => {
  const parts = Object.entries(PARTS).filter(([, key]) => state[key] != null).map(([name, key]) => `${name}=${state[key]}`);
  try { history.replaceState(history.state, "", `#${parts.join("&")}`); } catch { /* a page in a frame may not */ }
};
