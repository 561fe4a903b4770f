// Shortcuts of the whole page. Single keys can be switched off in the help, because speech input
// and some assistive tools type them by accident.

import { VIEWS } from "./views.js";

const SETTING = "shortcuts";

export function listenForKeys({ navigate, closePanel, switchTheme }) {
  const help = document.getElementById("help");
  const checkbox = document.getElementById("shortcuts");
  checkbox.checked = localStorage.getItem(SETTING) !== "off";
  checkbox.addEventListener("change", () => {
    localStorage.setItem(SETTING, checkbox.checked ? "on" : "off");
  });
  document.getElementById("help-open").addEventListener("click", () => help.showModal());
  const actions = {
    "/": () => document.getElementById("search").focus(),
    f: () => document.getElementById("filter").focus(),
    t: switchTheme,
    "?": () => help.showModal(),
  };
  for (const [index, view] of VIEWS.entries()) actions[index + 1] = () => navigate(`#/${view.id}`);

  addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      closePanel();
      return;
    }
    if (!checkbox.checked || event.target.closest("input, textarea, select")) return;
    const action = actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
