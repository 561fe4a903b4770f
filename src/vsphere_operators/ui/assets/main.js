// Starts the page and draws it: one pass a frame, after a change of the model or of the address.

import { getJson } from "./api.js";
import { Connection } from "./connection.js";
import { limitsText } from "./contention.js";
import { h, plain } from "./dom.js";
import { clock, count } from "./format.js";
import { listenForKeys } from "./keyboard.js";
import { legend } from "./lanes.js";
import { VirtualList } from "./list.js";
import { Panel } from "./panel.js";
import { parseRoute, routeTo } from "./route.js";
import { Search } from "./search.js";
import { applyTheme, askForToken, Status, switchTheme } from "./status.js";
import { Store } from "./store.js";
import { rowKey, viewOf, VIEWS } from "./views.js";

// The ring of changes is read again at most this often while it is in view.
const CHANGES_MILLISECONDS = 2000;

// As in page.css.
const NARROW = matchMedia("(max-width: 900px)");

class Page {
  constructor() {
    this._store = new Store();
    this._store.onChange = () => this.schedule();
    this._list = new VirtualList(byId("list"));
    this._status = new Status(this._store, (text) => this.announce(text));
    this._panel = new Panel(byId("panel"), this._store, {
      onChange: () => this.schedule(),
      onClose: () => this.closePanel(),
    });
    this._search = new Search(byId("search"), byId("results"), this._store, {
      navigate: (hash) => this.navigate(hash),
      announce: (text) => this.announce(text),
    });
    this._connection = new Connection(this._store, {
      onState: () => this.schedule(),
      askForToken,
    });
    this._route = parseRoute(location.hash);
    this._drawnView = undefined;
    this._changes = undefined;
    this._changesFailure = "";
    this._changesRead = { revision: undefined, time: -Infinity, isRunning: false };
    this._isRevealed = false;
    this._frame = undefined;
    this._navigation = byId("nav");
  }

  start() {
    applyTheme();
    byId("theme").addEventListener("click", switchTheme);
    byId("help-legend").append(legend());
    byId("filter").addEventListener("input", (event) => {
      const { view, kind, id, tab } = this._route;
      history.replaceState(null, "", routeTo({ view, kind, id, tab, filter: event.target.value }));
      this._route = parseRoute(location.hash);
      this.schedule();
    });
    byId("banners").addEventListener("click", (event) => this._onBanner(event));
    document.querySelector(".skip").addEventListener("click", (event) => {
      // The address has the route, so the link must not change it.
      event.preventDefault();
      byId("main").focus();
    });
    listenForKeys({
      navigate: (hash) => this.navigate(hash),
      closePanel: () => this.closePanel(),
      switchTheme,
    });
    addEventListener("hashchange", () => this._onRoute());
    addEventListener("resize", () => this.schedule());
    // Ages such as "3 min ago" grow.
    setInterval(() => this.schedule(), 15_000);
    this.draw();
    this._connection.run();
  }

  navigate(hash) {
    if (location.hash === hash) this._onRoute();
    else location.hash = hash;
  }

  closePanel() {
    const { view, kind, id, filter } = this._route;
    if (!id) return;
    setCovered(false);
    this._list.focusSelected(rowKey(this._store, view, kind, id));
    location.hash = routeTo({ view, filter });
  }

  announce(text) {
    byId("announce").textContent = text;
  }

  schedule() {
    // A tab in the background has no frames; its title and state may wait.
    this._frame ??= requestAnimationFrame(() => {
      this._frame = undefined;
      this.draw();
    });
  }

  draw() {
    const { _route: route, _store: store } = this;
    const view = viewOf(route.view);
    const isNewView = this._drawnView !== view.id;
    if (isNewView) this._enter(view);
    this._status.draw(this._connection);
    this._drawNavigation(view);
    const limits = limitsText(store.pressureLimits);
    if (byId("help-limits").textContent !== limits) byId("help-limits").textContent = limits;
    if (view.id === "changes") this._refreshChanges();
    this._drawDescription(view);
    const link = (kind, id, tab) => routeTo({ view: view.id, kind, id, tab, filter: route.filter });
    // The panel first: it takes width from the list.
    let isNewPanel = false;
    if (route.id) isNewPanel = this._panel.show(route, link);
    else this._panel.hide();
    setCovered(Boolean(route.id) && NARROW.matches);
    const rows = view.rows(
      store,
      matcher(route.filter),
      link,
      byId("main").clientWidth,
      this._changes,
    );
    // Before the rows: a hidden list has no height to fill.
    this._drawEmpty(view, rows.length);
    this._list.setRows(rows, selectedLinks(store, route, link));
    this._reveal(view, route);
    if (isNewPanel) this._panel.focus();
    document.title = titleOf(store, route, view);
  }

  _enter(view) {
    this._drawnView = view.id;
    this._list.reset();
    byId("filter").value = this._route.filter;
    byId("view-title").textContent = view.title;
    byId("legend").replaceChildren(...(view.legend ? [view.legend()] : []));
  }

  _drawNavigation(current) {
    const groups = [...new Set(VIEWS.map((view) => view.group))].map((group) => [
      h("h2", null, group),
      h(
        "ul",
        null,
        VIEWS.filter((view) => view.group === group).map((view) => {
          const size = view.collection && this._store.collections[view.collection].size;
          return h(
            "li",
            null,
            h(
              "a",
              {
                href: routeTo({ view: view.id }),
                "aria-current": view === current && "page",
              },
              h("span", null, view.label),
              size > 0 && h("span", { class: "size" }, size.toLocaleString("en")),
            ),
          );
        }),
      ),
    ]);
    const { version, identity, isLeader } = this._store.manager;
    const footer =
      version &&
      h(
        "p",
        { class: "manager" },
        `manager ${version}`,
        h("br"),
        identity,
        isLeader ? ", leader" : ", standby",
      );
    const fresh = h("div", null, groups, footer);
    if (this._navigation.firstElementChild?.isEqualNode(fresh)) return;
    const focused = document.activeElement?.closest("#nav a")?.getAttribute("href");
    this._navigation.replaceChildren(fresh);
    if (focused) fresh.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    const selected = fresh.querySelector("[aria-current]");
    // Scrolls only the narrow, horizontal navigation.
    if (selected) this._navigation.scrollLeft = selected.offsetLeft - 60;
  }

  _drawDescription(view) {
    let text = view.description;
    if (view.id === "changes" && this._changes) {
      text =
        `Complete since ${clock(this._changes.since)}. The manager keeps the last hour in ` +
        `memory, at most ${count(this._changes.limit, "change")}, and starts empty.`;
    }
    if (view.id === "changes" && this._changesFailure) text = this._changesFailure;
    const shortcut = view.shortcut?.(this._store, this._route);
    const fresh = h("span", null, text, shortcut && " ");
    if (shortcut) fresh.append(h("a", { href: shortcut.href }, shortcut.text), ".");
    const element = byId("view-description");
    if (!element.firstElementChild?.isEqualNode(fresh)) element.replaceChildren(fresh);
  }

  _drawEmpty(view, size) {
    const element = byId("empty");
    element.hidden = size > 0;
    byId("list").hidden = size === 0;
    const isFiltered = this._route.filter.trim() !== "";
    const loading = this._store.all("vcenters").some((item) => item.state === "Loading");
    byId("count").textContent = isFiltered ? count(size, "row") : "";
    if (size > 0) return;
    let text = view.empty;
    if (this._store.revision === undefined)
      text = EMPTY_STATES[this._connection.state] ?? "Loading the topology";
    else if (isFiltered) text = `Nothing matches “${this._route.filter.trim()}”.`;
    else if (view.id === "changes") text = this._changes ? view.empty : "Loading the changes";
    else if (this._store.all("vcenters").length === 0) {
      text = "No vCenter is configured. Give the manager credentials: see docs/howto/install.md.";
    } else if (loading) text = "The manager is reading the inventory of vCenter.";
    if (element.textContent !== text) element.replaceChildren(h("p", null, text));
  }

  // Scrolls to the selected row once after navigation, as soon as it exists.
  _reveal(view, { kind, id }) {
    if (this._isRevealed || !id) return;
    this._isRevealed = this._list.reveal(rowKey(this._store, view.id, kind, id));
  }

  async _refreshChanges() {
    const read = this._changesRead;
    const { revision } = this._store;
    const isDue = performance.now() - read.time >= CHANGES_MILLISECONDS;
    if (read.isRunning || revision === undefined || revision === read.revision) return;
    if (!isDue) {
      read.timer ??= setTimeout(() => {
        read.timer = undefined;
        this.schedule();
      }, CHANGES_MILLISECONDS);
      return;
    }
    Object.assign(read, { isRunning: true, time: performance.now(), revision });
    try {
      this._changes = await getJson("topology/changes", { cache: "no-store" });
      this._changesFailure = "";
    } catch (error) {
      this._changesFailure = `Reading the changes failed: ${error.message}`;
    }
    read.isRunning = false;
    this.schedule();
  }

  _onRoute() {
    const before = this._route;
    this._route = parseRoute(location.hash);
    this._isRevealed = false;
    if (before.view !== this._route.view) this.announce(viewOf(this._route.view).title);
    if (byId("filter") !== document.activeElement) byId("filter").value = this._route.filter;
    this.draw();
  }

  _onBanner(event) {
    const action = event.target.closest("[data-action]")?.dataset.action;
    if (action === "retry") this._connection.retry();
    if (action === "reload") location.reload();
    if (action === "token")
      askForToken("Enter a token with more permissions.").then(() => this._connection.retry());
  }
}

const EMPTY_STATES = {
  unauthorized: "The manager asks for a token.",
  forbidden: "The topology cannot be shown.",
  reconnecting: "Waiting for the manager",
};

// On a narrow screen the details cover everything else, which must not take the focus then.
function setCovered(isCovered) {
  for (const element of document.querySelectorAll(".bar, #nav, #banners, main")) {
    element.inert = isCovered;
  }
}

function byId(id) {
  return document.getElementById(id);
}

// All parts of the filter must be in the fields of an object, in any order.
function matcher(filter) {
  const parts = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (parts.length === 0) return () => true;
  return (...fields) => {
    const text = fields.filter(Boolean).join(" ").toLowerCase();
    return parts.every((part) => text.includes(part));
  };
}

function selectedLinks(store, { kind, id }, link) {
  if (!id) return new Set();
  const vm = kind === "node" ? store.get("node", id)?.vm : undefined;
  return new Set([link(kind, id), link(kind, id, "what-if"), vm && link("vm", vm)]);
}

function titleOf(store, { kind, id }, view) {
  const object = id && store.get(kind, id);
  const name = object ? (object.name ?? object.id) : (id ?? view.title);
  return `${plain(name)} · vSphere topology`;
}

new Page().start();
