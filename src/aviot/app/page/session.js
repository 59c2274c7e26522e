// What survives a reload of this tab: the video, the conversation, and the settings. Other tabs have their own.

const settings = JSON.parse(document.getElementById("settings").textContent);
const PLACE = "aviot-app";
const EMPTY = { video: null, turns: [], shown: null, draft: "", settings: null };

const stored = () => {
  try {
    return { ...EMPTY, ...JSON.parse(sessionStorage.getItem(PLACE)) };
  } catch {
    return { ...EMPTY };
  }
};

const store = (state) => {
  try { sessionStorage.setItem(PLACE, JSON.stringify(state)); } catch { /* full or forbidden: only the reload is lost */ }
};
