// The state of the connection, the banners, the theme and the dialog for a token.

import { hasToken, setToken } from "./api.js";
import { bdi, h } from "./dom.js";
import { ago, clock, count } from "./format.js";

const STATES = {
  connecting: "Connecting",
  live: "Live",
  reconnecting: "Reconnecting",
  stale: "Stale",
  unauthorized: "Token required",
  forbidden: "Not allowed",
};
const THEMES = { auto: "light", light: "dark", dark: "auto" };

export class Status {
  constructor(store, announce) {
    this._store = store;
    this._announce = announce;
    this._announced = "connecting";
    this._element = document.getElementById("connection");
    this._asOf = document.getElementById("as-of");
    this._banners = document.getElementById("banners");
  }

  draw(connection) {
    const { state, received } = connection;
    const text =
      state === "live" || received === undefined
        ? STATES[state]
        : `${STATES[state]}, data of ${clock(received)}`;
    this._element.dataset.state = state;
    this._element.title = connection.message;
    if (this._element.textContent !== text) this._element.replaceChildren(h("span", null, text));
    // Otherwise the age is in the state.
    this._asOf.textContent =
      state === "live" && this._store.time ? `as of ${clock(this._store.time)}` : "";
    if (state !== this._announced) {
      this._announced = state;
      this._announce(`${text}. ${connection.message}`);
    }
    this._replaceBanners(this._bannersOf(connection));
  }

  _bannersOf(connection) {
    const banners = [];
    const add = (level, ...content) => banners.push(h("p", { class: `banner ${level}` }, content));
    if (connection.state === "forbidden") {
      add(
        "hot",
        h("b", null, "You are not allowed to read the topology. "),
        connection.message,
        " The role needs the verb get on the nonResourceURLs /topology and /topology/*. ",
        h("button", { type: "button", "data-action": "token" }, "Use another token"),
      );
    }
    if (connection.state === "stale") {
      add(
        "warm",
        h("b", null, "This data is stale. "),
        connection.message,
        ` The last update was ${ago(connection.received)}. The page reconnects automatically. `,
        h("button", { type: "button", "data-action": "retry" }, "Reconnect now"),
      );
    }
    if (
      connection.state === "reconnecting" &&
      (connection.isRefused || connection.received === undefined)
    ) {
      add("warm", connection.message, " The page tries again automatically.");
    }
    for (const vcenter of this._store.all("vcenters")) {
      if (vcenter.state === "Ready") continue;
      const isLoading = vcenter.state === "Loading";
      add(
        isLoading ? "plain" : "warm",
        h(
          "b",
          null,
          "vCenter ",
          bdi(vcenter.name ?? vcenter.id),
          isLoading ? " is loading. " : " is unavailable. ",
        ),
        vcenter.message,
        !isLoading &&
          vcenter.accurateUntil &&
          ` Its data is as of ${clock(vcenter.accurateUntil)} (${ago(vcenter.accurateUntil)}).`,
      );
    }
    const { version } = this._store.manager;
    this._version ??= version;
    if (version !== this._version) {
      add(
        "plain",
        `The manager is now version ${version}; this page is of version ${this._version}. `,
        h("button", { type: "button", "data-action": "reload" }, "Reload the page"),
      );
    }
    if (this._store.limits.omittedVMs > 0) {
      add(
        "plain",
        `${count(this._store.limits.omittedVMs, "VM")} not shown: the limit is ` +
          `${this._store.limits.vms.toLocaleString("en")}.`,
      );
    }
    return banners;
  }

  _replaceBanners(banners) {
    const fresh = h("div", null, banners);
    if (!this._banners.firstElementChild?.isEqualNode(fresh)) this._banners.replaceChildren(fresh);
  }
}

// Returns when the user has entered a token.
export function askForToken(reason) {
  const dialog = document.getElementById("token");
  const input = document.getElementById("token-value");
  document.getElementById("token-reason").textContent = hasToken()
    ? "The manager does not accept the token: it may have expired."
    : reason;
  input.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      const token = input.value.trim();
      input.value = "";
      // Without any token there is nothing to show.
      if (!token && !hasToken()) return dialog.showModal();
      if (token) setToken(token);
      dialog.onclose = null;
      return resolve();
    };
  });
}

export function applyTheme() {
  const theme = localStorage.getItem("theme") ?? "auto";
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme] ?? "◐";
  button.setAttribute("aria-label", `Theme: ${theme}. Switch to ${THEMES[theme] ?? "light"}.`);
  button.title = button.getAttribute("aria-label");
}

export function switchTheme() {
  const theme = localStorage.getItem("theme") ?? "auto";
  localStorage.setItem("theme", THEMES[theme] ?? "auto");
  applyTheme();
}
