// Pods are not in the model: the manager searches them on demand.

import { getJson } from "./api.js";
import { badge, h } from "./dom.js";
import { linkTo, problems, table } from "./sections.js";

// A person types a letter in less than this.
const DELAY_MILLISECONDS = 250;
const MIN_LENGTH = 2;

export function podsPath(text) {
  return `topology/pods?search=${encodeURIComponent(text)}`;
}

export class PodSearch {
  // `onResult` gets the pods, how many more match, and sentences about what is missing.
  constructor(onResult) {
    this.isPending = false;
    this._onResult = onResult;
    this._timer = undefined;
    this._abort = new AbortController();
  }

  // Replaces the previous search, of which no result arrives any more.
  start(text) {
    this.cancel();
    if (text.length < MIN_LENGTH) return;
    this.isPending = true;
    this._timer = setTimeout(() => this._read(text), DELAY_MILLISECONDS);
  }

  cancel() {
    this.isPending = false;
    clearTimeout(this._timer);
    this._abort.abort();
  }

  async _read(text) {
    const { signal } = (this._abort = new AbortController());
    const result = { pods: [], omitted: 0, problems: [] };
    try {
      const data = await getJson(podsPath(text), { cache: "no-store", signal });
      result.pods = data.pods ?? [];
      result.omitted = data.omittedPods ?? 0;
      result.problems = data.problems ?? [];
    } catch (error) {
      result.problems = [`Searching the Pods failed: ${error.message}`];
    }
    if (signal.aborted) return;
    this.isPending = false;
    this._onResult(result);
  }
}

export function podId(pod) {
  return `${pod.namespace}/${pod.name}`;
}

// `result` is that of a search for the id of the Pod.
export function podFacts(id, result, context) {
  const pod = (result.pods ?? []).find((item) => podId(item) === id);
  if (!pod) {
    return [
      problems(result),
      h("p", null, "No Pod has this name now. It may have been deleted or replaced."),
    ];
  }
  const vm = context.store.get("vm", context.store.get("node", pod.node)?.vm);
  return [
    problems(result),
    h(
      "p",
      { class: "badges" },
      badge(pod.phase || "phase unknown", pod.phase === "Running" ? "good" : "warm"),
      pod.phase === "Running" && pod.ready === false && badge("not ready", "warm"),
    ),
    table([
      ["Node", pod.node ? linkTo(context, "node", pod.node) : "not scheduled"],
      ["VM", vm && linkTo(context, "vm", vm.id)],
      ["Host", vm?.host && linkTo(context, "host", vm.host)],
      ["Controller", pod.controller || "none: Kubernetes does not start this Pod again"],
    ]),
    vm?.host &&
      h(
        "p",
        null,
        h(
          "a",
          { class: "button", href: context.link("host", vm.host, "what-if") },
          "What stops if this host goes?",
        ),
      ),
  ];
}
