// The details of the selected object.
//
// The panel is built again after each change, and the document is touched only if the result
// differs. So its buttons have no listeners of their own: data-action names what they do.

import { getJson } from "./api.js";
import { bdi, h } from "./dom.js";
import { facts, KIND_NAMES } from "./facts.js";
import { clock } from "./format.js";
import { podFacts, podsPath } from "./pods.js";
import { objectSections, whatIf } from "./reports.js";

// Kinds of the model that are objects of Kubernetes. A kind comes from the address.
const PLURALS = { __proto__: null, vmgroup: "vmgroups", gpuinfo: "gpuinfoes", node: "nodes" };
// Kinds that are not in the model: a Pod, and a custom resource that reports an object of vSphere.
const ON_DEMAND = new Set(["pod", "object"]);
// Each read lists Events from the API server, and a VmGroup at work changes several times a second.
const OBJECT_MILLISECONDS = 5000;
const PATHS = {
  pods: (key) => `topology/nodes/${encodeURIComponent(key)}/pods`,
  "what-if": (key) => `topology/what-if/hosts/${path(key)}`,
  object: (key) => `topology/objects/${path(key)}`,
  pod: podsPath,
};

function path(key) {
  return key.split("/").map(encodeURIComponent).join("/");
}

export class Panel {
  constructor(element, store, { onChange, onClose }) {
    this.element = element;
    this._store = store;
    this._onChange = onChange;
    this._loads = new Map();
    this._expanded = new Set();
    this._selection = "";
    element.addEventListener("click", (event) => {
      const button = event.target.closest("[data-action]");
      if (!button) return;
      const { action, kind, key } = button.dataset;
      if (action === "close") onClose();
      if (action === "expand") this._expanded.add(key);
      if (action === "load") this._load(kind, key);
      if (action === "refresh") {
        for (const load of [...this._loads.values()]) this._load(load.kind, load.key);
      }
      if (action === "copy") this._copy(button);
      if (action === "jump") this._jump(key);
      onChange();
    });
  }

  // Returns whether another object than before is shown.
  show(route, link) {
    const selection = `${route.kind}/${route.id}/${route.tab ?? ""}`;
    const isNew = selection !== this._selection;
    if (isNew) {
      this._selection = selection;
      this._expanded.clear();
      this._loads.clear();
    }
    const object = ON_DEMAND.has(route.kind)
      ? { id: route.id }
      : this._store.get(route.kind, route.id);
    const fresh = h(
      "div",
      { class: "content" },
      this._head(route, object),
      object ? this._body(route, object, link) : this._missing(route),
    );
    this.element.hidden = false;
    const current = this.element.firstElementChild;
    if (!current?.isEqualNode(fresh)) this._swap(current, fresh, isNew);
    return isNew;
  }

  hide() {
    this._selection = "";
    this.element.hidden = true;
    this.element.replaceChildren();
  }

  focus() {
    this.element.querySelector("h2")?.focus({ preventScroll: true });
  }

  _head(route, object) {
    const loaded = route.kind === "object" && this._loads.get(`object/${route.id}`)?.data;
    const kind = KIND_NAMES[route.kind] ?? (loaded ? loaded.kind : "Object");
    const name = loaded
      ? `${loaded.namespace}/${loaded.name}`
      : object?.claim || object?.name || route.id;
    return h(
      "div",
      { class: "panel-head" },
      h(
        "div",
        null,
        h(
          "p",
          { class: "kind" },
          route.tab === "what-if" ? `What stops if this ${kind.toLowerCase()} goes?` : kind,
        ),
        h("h2", { tabindex: "-1" }, bdi(name)),
      ),
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          "data-action": "close",
          "aria-label": "Close the details",
        },
        "✕",
      ),
    );
  }

  _missing(route) {
    const kind = KIND_NAMES[route.kind] ?? "object";
    return h(
      "p",
      { class: "muted" },
      this._store.revision === undefined
        ? "Loading"
        : `This ${kind} does not exist, or no longer. Its ID was ${route.id}.`,
    );
  }

  _body(route, object, link) {
    const context = {
      store: this._store,
      link,
      expanded: this._expanded,
      loaded: (kind, key) => this._loads.get(`${kind}/${key}`),
      progress,
    };
    if (route.kind === "host" && route.tab === "what-if") return this._whatIf(object, context);
    if (route.kind === "pod") return this._pod(object.id, context);
    if (route.kind === "object") {
      return [this._object(object.id, undefined, context), this._refresh(`object/${object.id}`)];
    }
    const content = facts(route.kind, object, context);
    const plural = PLURALS[route.kind];
    if (plural === undefined) return content;
    const version = this._store.stamp(object);
    return [content, this._object(`${plural}/${object.id}`, version, context)];
  }

  _pod(id, context) {
    const loaded = this._ensure("pod", id);
    if (!loaded.data) return progress(loaded);
    return [
      podFacts(id, loaded.data, context),
      this._refresh(`pod/${id}`),
      this._object(`pods/${id}`, undefined, context),
    ];
  }

  // What is read on demand does not follow changes.
  _refresh(name) {
    const { at } = this._loads.get(name);
    return (
      at !== undefined &&
      h(
        "p",
        { class: "muted" },
        `As of ${clock(at)}. `,
        h("button", { type: "button", "data-action": "refresh" }, "Refresh"),
      )
    );
  }

  _whatIf(host, context) {
    const loaded = this._ensure("what-if", host.id);
    const back = h("p", null, h("a", { href: context.link("host", host.id) }, "Back to the host"));
    return loaded.data ? [back, whatIf(loaded.data, host, context)] : [back, progress(loaded)];
  }

  // `version` is undefined for an object of which no changes are known.
  _object(key, version, context) {
    const loaded = this._ensure("object", key);
    // Read again after a change, and meanwhile show what is known.
    const isDue = performance.now() - loaded.time > OBJECT_MILLISECONDS;
    const isOld = version !== undefined && loaded.version !== version;
    if (loaded.state !== "loading" && isOld && isDue) {
      this._load("object", key, version);
    }
    return loaded.data ? objectSections(loaded.data, context) : progress(loaded);
  }

  _ensure(kind, key) {
    if (!this._loads.has(`${kind}/${key}`)) this._load(kind, key);
    return this._loads.get(`${kind}/${key}`);
  }

  async _load(kind, key, version = undefined) {
    const name = `${kind}/${key}`;
    const before = this._loads.get(name)?.data;
    const load = { state: "loading", data: before, version, kind, key, time: performance.now() };
    this._loads.set(name, load);
    try {
      load.data = await getJson(PATHS[kind](key), { cache: "no-store" });
      load.state = "done";
      load.at = Date.now();
    } catch (error) {
      load.state = "failed";
      load.message = error.message;
    }
    if (load.version === undefined && kind === "object") load.version = this._versionOf(key);
    this._onChange();
  }

  _versionOf(key) {
    const [plural, ...id] = key.split("/");
    const kind = Object.keys(PLURALS).find((name) => PLURALS[name] === plural);
    const object = this._store.get(kind, id.join("/"));
    return object ? this._store.stamp(object) : 0;
  }

  _jump(title) {
    const headings = [...this.element.querySelectorAll("section > h3")];
    const heading = headings.find((item) => item.textContent.startsWith(title));
    heading?.focus({ preventScroll: true });
    heading?.scrollIntoView();
  }

  async _copy(button) {
    const text = this.element.querySelector("pre.yaml")?.textContent ?? "";
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "The browser does not allow copying";
    }
  }

  _swap(current, fresh, isNew) {
    const open = new Set(
      [...this.element.querySelectorAll("details[open]")].map((item) => item.dataset.key),
    );
    const focused =
      this.element.contains(document.activeElement) && !isNew
        ? [...this.element.querySelectorAll("a, button, summary, h2")].indexOf(
            document.activeElement,
          )
        : -1;
    const top = isNew ? 0 : this.element.scrollTop;
    for (const item of fresh.querySelectorAll("details"))
      item.open = open.has(item.dataset.key) && !isNew;
    this.element.replaceChildren(fresh);
    this.element.scrollTop = top;
    const targets = this.element.querySelectorAll("a, button, summary, h2");
    if (focused >= 0) (targets[focused] ?? targets[0])?.focus({ preventScroll: true });
  }
}

function progress(loaded) {
  if (loaded.state !== "failed") return h("p", { class: "muted" }, "Loading");
  return h(
    "p",
    { class: "problem" },
    `Reading failed: ${loaded.message} `,
    h(
      "button",
      { type: "button", "data-action": "load", "data-kind": loaded.kind, "data-key": loaded.key },
      "Try again",
    ),
  );
}
