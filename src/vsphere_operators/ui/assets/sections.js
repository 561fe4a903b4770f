// The building blocks of the details: sections, tables of facts and lists of objects.

import { usageLevel, vmContention } from "./contention.js";
import { badge, bdi, h, meter } from "./dom.js";
import { megabytes, percent } from "./format.js";
import { byName } from "./store.js";

export function section(title, ...content) {
  return h("section", null, h("h3", { tabindex: "-1" }, title), ...content);
}

// What the manager could not read, so that something may be missing.
export function problems(data) {
  return (data.problems ?? []).map((text) => h("p", { class: "problem" }, text));
}

export function table(rows) {
  const shown = rows.filter(
    (row) => row[1] !== undefined && row[1] !== false && row[1] !== "" && row[1] !== 0,
  );
  return h(
    "dl",
    { class: "facts" },
    shown.map(([label, value]) => [h("dt", null, label), h("dd", null, value)]),
  );
}

// A list of at most 50 entries, until the user asks for all.
export function listOf(items, render, key, context) {
  const limit = context.expanded.has(key) ? Infinity : 50;
  return [
    h(
      "ul",
      { class: "entries" },
      items.slice(0, limit).map((item) => h("li", null, render(item))),
    ),
    items.length > limit &&
      h(
        "button",
        { type: "button", "data-action": "expand", "data-key": key },
        `Show all ${items.length.toLocaleString("en")}`,
      ),
  ];
}

export function linkTo(context, kind, id, text = undefined) {
  const object = context.store.get(kind, id);
  const label = bdi(text ?? object?.name ?? id);
  return object ? h("a", { href: context.link(kind, id) }, label) : label;
}

export function gauge(ratio, text) {
  return h(
    "span",
    { class: "gauge" },
    meter(ratio, usageLevel(ratio)),
    h("span", null, `${percent(ratio)}, ${text}`),
  );
}

function vmEntry(vm, context) {
  const { level, reasons } = vmContention(vm, context.store.pressureLimits);
  return [
    linkTo(context, "vm", vm.id),
    h("span", { class: "muted" }, megabytes(vm.memoryMB)),
    level !== "calm" && badge(level === "off" ? reasons[0] : level, level),
    vm.node && badge("Node"),
  ];
}

export function vmSection(title, vms, context) {
  if (!vms.length) return null;
  const sorted = [...vms].sort(byName);
  return section(
    `${title} (${vms.length.toLocaleString("en")})`,
    listOf(sorted, (vm) => vmEntry(vm, context), title, context),
  );
}

export function diskSection(disks, context) {
  if (!disks.length) return null;
  return section(
    `Volumes (${disks.length.toLocaleString("en")})`,
    listOf(
      [...disks].sort(byName),
      (disk) => [
        linkTo(context, "disk", disk.id, disk.claim || disk.name),
        h("span", { class: "muted" }, megabytes(disk.sizeMB)),
        !disk.persistentVolume && badge("no PersistentVolume", "warm"),
      ],
      "volumes",
      context,
    ),
  );
}

export function podLink(pod, context) {
  return h(
    "a",
    { href: context.link("pod", `${pod.namespace}/${pod.name}`) },
    h("span", { class: "muted" }, bdi(pod.namespace), "/"),
    bdi(pod.name),
  );
}

// The custom resources that report an object of vSphere: `kind` is theirs.
export function infoSection(object, kind, context) {
  const infos = object.infos ?? [];
  return section(
    "Conditions, Events and YAML",
    infos.length === 0
      ? h("p", { class: "muted" }, `Of a ${kind} that reports this object. There is none yet.`)
      : listOf(
          infos,
          (info) => {
            const id = `${info.plural}/${info.namespace}/${info.name}`;
            return h(
              "a",
              { href: context.link("object", id) },
              `${info.kind} `,
              bdi(`${info.namespace}/${info.name}`),
            );
          },
          "infos",
          context,
        ),
    object.omittedInfos > 0 &&
      h("p", { class: "muted" }, `${object.omittedInfos.toLocaleString("en")} more not listed.`),
  );
}

export function podSection(node, context) {
  const loaded = context.loaded("pods", node.id);
  const title = node.pods === undefined ? "Pods" : `Pods (${node.pods})`;
  if (!loaded) {
    return section(
      title,
      h(
        "button",
        {
          type: "button",
          "data-action": "load",
          "data-kind": "pods",
          "data-key": node.id,
        },
        "Show the Pods",
      ),
    );
  }
  if (!loaded.data) return section(title, context.progress(loaded));
  const pods = loaded.data.pods ?? [];
  return section(
    `Pods (${pods.length})`,
    problems(loaded.data),
    pods.length === 0
      ? h("p", { class: "muted" }, "No Pods run on this Node.")
      : listOf(
          pods,
          (pod) => [
            podLink(pod, context),
            pod.phase && pod.phase !== "Running" && badge(pod.phase, "warm"),
            pod.phase === "Running" && pod.ready === false && badge("not ready", "warm"),
            h("span", { class: "muted" }, pod.controller),
          ],
          "pods",
          context,
        ),
  );
}
