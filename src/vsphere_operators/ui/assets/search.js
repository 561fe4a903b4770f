// Search over everything in the model and over the Pods, as a combobox.

import { bdi, h } from "./dom.js";
import { KIND_NAMES } from "./facts.js";
import { count } from "./format.js";
import { podId, PodSearch } from "./pods.js";
import { routeTo } from "./route.js";
import { KINDS } from "./store.js";
import { HOME_VIEWS } from "./views.js";

const MAX_RESULTS = 20;
const FIELDS = {
  host: ["name", "id"],
  vm: ["name", "id", "node", "ipAddress"],
  node: ["id"],
  cluster: ["name", "id"],
  datacenter: ["name", "id"],
  datastore: ["name", "id", "type"],
  disk: ["claim", "name", "persistentVolume", "id"],
  vmgroup: ["id", "template"],
  gpuinfo: ["id"],
};

// Matches that begin with the text come before others; among them shorter names first.
function find(store, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return { total: 0, results: [] };
  const results = [];
  for (const [kind, fields] of Object.entries(FIELDS)) {
    for (const object of store.all(KINDS[kind])) {
      const score = scoreOf(object, fields, wanted);
      if (score !== undefined) results.push({ kind, object, score });
    }
  }
  results.sort((left, right) => left.score - right.score);
  return { total: results.length, results: results.slice(0, MAX_RESULTS) };
}

function scoreOf(object, fields, wanted) {
  for (const [order, field] of fields.entries()) {
    const value = object[field];
    const position = value ? value.toLowerCase().indexOf(wanted) : -1;
    if (position >= 0)
      return order * 1000 + (position === 0 ? 0 : 500) + Math.min(value.length, 400);
  }
  return undefined;
}

const NO_PODS = { pods: [], omitted: 0, problems: [] };

export class Search {
  constructor(input, list, store, { navigate, announce }) {
    this._input = input;
    this._list = list;
    this._store = store;
    this._navigate = navigate;
    this._announce = announce;
    this._results = [];
    this._active = -1;
    this._found = { total: 0, results: [] };
    this._pods = NO_PODS;
    this._opensFirst = false;
    this._podSearch = new PodSearch((pods) => this._onPods(pods));
    input.addEventListener("input", () => this._update());
    input.addEventListener("focus", () => this._update());
    input.addEventListener("keydown", (event) => this._onKey(event));
    input.addEventListener("blur", () => this.close());
    // Before the blur, which closes the list.
    list.addEventListener("pointerdown", (event) => event.preventDefault());
    list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this._open(Number(option.dataset.index));
    });
  }

  close() {
    this._podSearch.cancel();
    this._list.hidden = true;
    this._input.setAttribute("aria-expanded", "false");
    this._input.removeAttribute("aria-activedescendant");
  }

  _update() {
    this._found = find(this._store, this._input.value);
    this._pods = NO_PODS;
    this._opensFirst = false;
    this._active = this._found.results.length ? 0 : -1;
    this._podSearch.start(this._input.value.trim());
    this._draw();
  }

  _onPods(pods) {
    this._pods = pods;
    if (this._active < 0 && pods.pods.length) this._active = 0;
    this._draw();
    if (this._opensFirst && this._active >= 0) this._open(this._active);
  }

  _draw() {
    const { total, results } = this._found;
    const { pods, omitted, problems } = this._pods;
    const hasText = this._input.value.trim() !== "";
    this._results = [
      ...results,
      ...pods.map((pod) => ({ kind: "pod", object: { ...pod, name: podId(pod), id: podId(pod) } })),
    ];
    const options = this._results.map((result, index) => this._option(result, index));
    const notes = [
      total > results.length &&
        `${(total - results.length).toLocaleString("en")} more. Type more of the name.`,
      omitted > 0 && `${count(omitted, "more Pod")}. Type more of the name.`,
      ...problems,
      this._podSearch.isPending && "Searching Pods",
      !this._podSearch.isPending && this._results.length === 0 && "Nothing matches.",
    ].filter(Boolean);
    this._list.replaceChildren(
      ...options,
      ...notes.map((text) => h("p", { class: "muted", role: "presentation" }, text)),
    );
    this._list.hidden = !hasText;
    this._input.setAttribute("aria-expanded", String(hasText));
    if (hasText && !this._podSearch.isPending) {
      this._announce(count(total + pods.length + omitted, "result"));
    }
    this._mark();
  }

  _option({ kind, object }, index) {
    const name = object.claim || object.name || object.id;
    return h(
      "div",
      { role: "option", id: `result-${index}`, "data-index": index, "aria-selected": "false" },
      h("span", { class: "kind" }, KIND_NAMES[kind]),
      bdi(name),
      h("span", { class: "muted" }, this._where(kind, object)),
    );
  }

  _where(kind, object) {
    const store = this._store;
    const nameOf = (other, id) => (id ? (store.get(other, id)?.name ?? "") : "");
    if (kind === "vm")
      return [object.node && "Node", nameOf("host", object.host)].filter(Boolean).join(" on ");
    if (kind === "node") return nameOf("host", store.get("vm", object.vm)?.host);
    if (kind === "pod") return object.node ? `on ${object.node}` : "not scheduled";
    if (kind === "host") return nameOf("cluster", object.cluster);
    if (kind === "disk") return nameOf("datastore", object.datastore);
    if (kind === "datastore" || kind === "cluster") return nameOf("datacenter", object.datacenter);
    return "";
  }

  _onKey(event) {
    const last = this._results.length - 1;
    if (event.key === "ArrowDown") this._active = this._active >= last ? 0 : this._active + 1;
    else if (event.key === "ArrowUp") this._active = this._active <= 0 ? last : this._active - 1;
    else if (event.key === "Enter" && this._active >= 0) this._open(this._active);
    // The Pods have not arrived yet.
    else if (event.key === "Enter") this._opensFirst = this._podSearch.isPending;
    else if (event.key === "Escape") {
      if (this._list.hidden) this._input.blur();
      this.close();
    } else return;
    event.preventDefault();
    event.stopPropagation();
    this._mark();
  }

  _mark() {
    for (const option of this._list.querySelectorAll("[role=option]")) {
      const isActive = Number(option.dataset.index) === this._active;
      option.setAttribute("aria-selected", String(isActive));
      if (!isActive) continue;
      this._input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    }
  }

  _open(index) {
    const { kind, object } = this._results[index];
    this._input.value = "";
    this.close();
    this._input.blur();
    this._navigate(routeTo({ view: HOME_VIEWS[kind], kind, id: object.id }));
  }
}
