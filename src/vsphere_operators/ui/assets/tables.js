// The rows of the other views. Each function returns rows for VirtualList.

import { hostContention, rank, usageLevel, vmContention } from "./contention.js";
import { badge, bdi, h, meter } from "./dom.js";
import { ago, clock, count, megahertz, percent } from "./format.js";
import { hostBadges, nodeBadges } from "./lanes.js";
import { byName } from "./store.js";

const NARROW = matchMedia("(max-width: 700px)");

export function entry(key, version, render, { wide = 52, narrow = 84 } = {}) {
  return {
    key,
    height: NARROW.matches ? narrow : wide,
    version: `${version}/${NARROW.matches}`,
    render,
  };
}

export function cell(className, ...children) {
  return h("span", { class: `cell ${className}` }, ...children);
}

// Hottest first: the level, then the contended VMs, then the higher of CPU and memory usage.
export function hotRows(store, matches, link) {
  const ranking = store.memo("hot", ["hosts", "vms"], () =>
    store
      .all("hosts")
      .map((host) => {
        const levels = (store.vmsByHost().get(host.id) ?? []).map(
          (vm) => vmContention(vm, store.pressureLimits).level,
        );
        const contended = levels.filter((level) => level === "warm" || level === "hot").length;
        return { host, contention: hostContention(host), contended, vms: levels.length };
      })
      .sort(
        (left, right) =>
          rank(right.contention.level) - rank(left.contention.level) ||
          right.contended - left.contended ||
          right.contention.load - left.contention.load ||
          byName(left.host, right.host),
      ),
  );
  return ranking
    .filter(({ host }) => matches(host.name, host.id))
    .map((item, index) =>
      entry(
        `host/${item.host.id}`,
        `${store.stamp(item.host)}/${item.contended}/${item.vms}/${index}/${link("", "")}`,
        () => hotRow(store, item, index, link),
      ),
    );
}

function hotRow(store, { host, contention, contended, vms }, index, link) {
  const { level, cpu, memory, reasons } = contention;
  return h(
    "div",
    { class: "entry" },
    cell("rank muted", index + 1),
    cell(
      "main",
      h("a", { href: link("host", host.id) }, bdi(host.name ?? host.id)),
      level !== "calm" && level !== "off" && badge(level, level),
      hostBadges(host),
    ),
    cell("gauge", "CPU", meter(cpu, usageLevel(cpu)), h("b", null, percent(cpu))),
    cell("gauge", "Mem", meter(memory, usageLevel(memory)), h("b", null, percent(memory))),
    cell(
      "note why",
      reasons.length > 0 && h("span", null, `${reasons.join(" ")} `),
      contended ? `${contended} of ${count(vms, "VM")} contended` : count(vms, "VM"),
    ),
  );
}

export function whatIfRows(store, matches, link) {
  const hosts = store.memo("hostsByName", ["hosts"], () => [...store.all("hosts")].sort(byName));
  return hosts
    .filter((host) => matches(host.name, host.id))
    .map((host) => {
      const vms = store.vmsByHost().get(host.id) ?? [];
      const nodes = vms.filter((vm) => vm.node).length;
      const cluster = store.get("cluster", host.cluster);
      return entry(
        `host/${host.id}`,
        `${store.stamp(host)}/${vms.length}/${nodes}/${link("", "")}`,
        () =>
          h(
            "div",
            { class: "entry" },
            cell(
              "main",
              h("a", { href: link("host", host.id, "what-if") }, bdi(host.name ?? host.id)),
              hostBadges(host),
            ),
            cell("note", cluster && bdi(cluster.name ?? cluster.id)),
            cell("note", `${count(vms.length, "VM")}, ${count(nodes, "Node")}`),
          ),
      );
    });
}

export function groupRows(store, matches, link) {
  return store
    .all("vmGroups")
    .filter((group) => matches(group.id, group.template, group.phase))
    .map((group) =>
      entry(
        `vmgroup/${group.id}`,
        `${store.stamp(group)}/${link("", "")}`,
        () =>
          h(
            "div",
            { class: "entry group" },
            cell(
              "main",
              h("a", { href: link("vmgroup", group.id) }, bdi(group.id)),
              groupBadge(group),
            ),
            cell(
              "replicas",
              replicaDots(group),
              h("b", null, `${group.readyReplicas ?? 0}/${group.replicas ?? 0}`),
              " ready",
            ),
            cell(
              "tasks",
              (group.tasks ?? []).slice(0, 3).map(taskLine),
              (group.tasks ?? []).length > 3 &&
                h("span", { class: "muted" }, `and ${count(group.tasks.length - 3, "more task")}`),
              !(group.tasks ?? []).length && h("span", { class: "muted" }, group.message),
            ),
          ),
        groupHeights(group),
      ),
    );
}

function groupHeights(group) {
  const lines = Math.min((group.tasks ?? []).length, 4);
  return { wide: Math.max(52, 12 + 20 * lines), narrow: 64 + 20 * Math.max(lines, 1) };
}

export function groupBadge(group) {
  const level = group.phase === "ERROR" ? "hot" : group.ready ? "good" : "warm";
  return badge(group.phase || (group.ready ? "Ready" : "not ready"), level);
}

// One square a replica, up to a number that fits into a row.
function replicaDots(group) {
  const total = Math.min(group.replicas ?? 0, 24);
  const squares = Array.from({ length: total }, (_, index) =>
    h("i", { class: `dot ${index < (group.readyReplicas ?? 0) ? "good" : "pending"}` }),
  );
  return h("span", { class: "dots", "aria-hidden": "true" }, squares);
}

export function taskLine(task) {
  const ratio = task.percent === undefined ? undefined : task.percent / 100;
  return h(
    "span",
    { class: "task" },
    h("span", null, task.name, " ", bdi(task.vm ?? "")),
    meter(ratio, "good"),
    h("b", null, percent(ratio)),
  );
}

export function gpuRows(store, matches, link) {
  return store
    .all("gpuInfos")
    .filter((info) => matches(info.id, info.node, info.message))
    .map((info) =>
      entry(`gpuinfo/${info.id}`, `${store.stamp(info)}/${link("", "")}`, () =>
        h(
          "div",
          { class: "entry" },
          cell(
            "main",
            h("a", { href: link("gpuinfo", info.id) }, bdi(info.id)),
            badge(info.ready ? "Ready" : "not ready", info.ready ? "good" : "warm"),
          ),
          cell(
            "note",
            info.node
              ? ["selected ", h("a", { href: link("node", info.node) }, bdi(info.node))]
              : "no suitable Node",
          ),
          cell(
            "note",
            `${count((info.candidates ?? []).length, "candidate")}, ` +
              count(rejectionsOf(info), "rejection"),
          ),
          cell("note muted", info.message),
        ),
      ),
    );
}

function rejectionsOf(info) {
  return (info.rejections ?? []).length + (info.omittedRejections ?? 0);
}

// What each GPUInfo decided about a Node.
export function verdicts(store, nodeId) {
  return store.all("gpuInfos").map((info) => {
    const rejection = (info.rejections ?? []).find((item) => item.node === nodeId);
    const candidate = (info.candidates ?? []).find((item) => item.node === nodeId);
    if (info.node === nodeId)
      return { info, level: "good", text: "selected", message: info.message };
    if (rejection) {
      return { info, level: "hot", text: rejection.reason, message: rejection.message };
    }
    if (candidate) return { info, level: "calm", text: "candidate", message: gpuText(candidate) };
    return {
      info,
      level: "plain",
      text: "not listed",
      message: "Not among the listed rejections.",
    };
  });
}

export function gpuText(candidate) {
  return [
    candidate.freeGPUs !== undefined && count(candidate.freeGPUs, "free GPU"),
    (candidate.gpus ?? []).join(", "),
    candidate.availableHours !== undefined && `available for ${candidate.availableHours} h`,
    candidate.cpuDemandMHz !== undefined && `CPU demand ${megahertz(candidate.cpuDemandMHz)}`,
  ]
    .filter(Boolean)
    .join(", ");
}

export function whyNotRows(store, matches, link) {
  const nodes = store.memo("nodesByName", ["nodes"], () => [...store.all("nodes")].sort(byName));
  return nodes
    .filter((node) => matches(node.id))
    .map((node) => {
      const results = verdicts(store, node.id);
      const vm = store.get("vm", node.vm);
      const host = vm && store.get("host", vm.host);
      const text = results.map((item) => item.text).join();
      return entry(
        `node/${node.id}`,
        `${store.stamp(node)}/${text}/${host?.name}/${link("", "")}`,
        () =>
          h(
            "div",
            { class: "entry" },
            cell("main", h("a", { href: link("node", node.id) }, bdi(node.id)), nodeBadges(node)),
            cell("note", host ? ["on ", bdi(host.name ?? host.id)] : "no known host"),
            cell(
              "verdicts",
              results
                .slice(0, 3)
                .map((item) =>
                  h("span", { class: "verdict" }, bdi(item.info.id), badge(item.text, item.level)),
                ),
              results.length > 3 && h("span", { class: "muted" }, `and ${results.length - 3} more`),
            ),
          ),
      );
    });
}

const CHANGE_LEVELS = {
  Removed: "hot",
  Disconnected: "hot",
  NotReady: "hot",
  PoweredOff: "warm",
  Suspended: "warm",
  EnteredMaintenance: "warm",
  Moved: "calm",
  Added: "good",
  Cloned: "good",
  Ready: "good",
  Connected: "good",
  PoweredOn: "good",
};
const CHANGE_KINDS = {
  VM: "vm",
  Host: "host",
  Node: "node",
  VmGroup: "vmgroup",
  Datastore: "datastore",
  Disk: "disk",
  Cluster: "cluster",
  GPUInfo: "gpuinfo",
};

export function changeRows(store, matches, link, width, changes) {
  return (changes?.changes ?? [])
    .filter((item) => matches(item.name, item.id, item.kind, item.type, item.message))
    .map((item, index, all) => {
      const kind = CHANGE_KINDS[item.kind];
      const exists = kind && store.get(kind, item.id) !== undefined;
      const label = bdi(item.name ?? item.id);
      const minutes = Math.floor((Date.now() - new Date(item.time).getTime()) / 60_000);
      // The position from the end stays the same when newer changes come.
      const key = `change/${all.length - index}/${item.time}/${item.id}/${item.type}`;
      return entry(
        key,
        `${exists}/${minutes}/${link("", "")}`,
        () =>
          h(
            "div",
            { class: "entry" },
            cell(
              "time",
              h("time", { datetime: item.time }, clock(item.time)),
              h("span", { class: "muted" }, ` ${ago(item.time)}`),
            ),
            cell(
              "main",
              badge(item.type, CHANGE_LEVELS[item.type]),
              h("span", { class: "muted" }, item.kind),
              exists ? h("a", { href: link(kind, item.id) }, label) : label,
            ),
            cell("note", item.message),
          ),
        { wide: 42, narrow: 76 },
      );
    });
}
