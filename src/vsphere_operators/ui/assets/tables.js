// The rows of all views but those in lanes.js and storage.js. Each function returns rows for
// VirtualList.

import { hostCauses, hostContention, rank, usageLevel, vmContention } from "./contention.js";
import { badge, bdi, h, hostName, meter } from "./dom.js";
import { ago, clock, count, dateAndClock, hours, megahertz, percent } from "./format.js";
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
        const vms = store.vmsByHost().get(host.id) ?? [];
        const levels = vms.map((vm) => vmContention(vm, store.pressureLimits).level);
        const causes = hostCauses(host, vms, store.pressureLimits).map(({ text }) => text);
        const contended = levels.filter((level) => level === "warm" || level === "hot").length;
        return { host, contention: hostContention(host), causes, contended, vms: vms.length };
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
        `${store.stamp(item.host)}/${item.causes}/${item.contended}/${item.vms}/` +
          `${index}/${link("", "")}`,
        () => hotRow(item, index, link),
      ),
    );
}

// The sentence above the list: the answer if there is nothing to see.
export function hotSummary(store) {
  const hot = store.all("hosts").filter((host) => hostContention(host).level === "hot").length;
  const number = `${count(hot, "host")} ${hot === 1 ? "is" : "are"} hot.`;
  const answer = hot === 0 ? "No host is hot." : number;
  return `${answer} Hottest first: by level, by contended VMs, then by CPU or memory usage.`;
}

function hotRow({ host, contention, causes, contended, vms }, index, link) {
  const { level, cpu, memory, usage } = contention;
  const why = causes.length > 0 ? causes : usage;
  return h(
    "div",
    { class: "entry" },
    cell("rank muted", index + 1),
    cell(
      "main",
      h("a", { href: link("host", host.id) }, hostName(host)),
      level !== "calm" && level !== "off" && badge(level, level),
      hostBadges(host),
    ),
    cell("gauge", "CPU", meter(cpu, usageLevel(cpu)), h("b", null, percent(cpu))),
    cell("gauge", "Mem", meter(memory, usageLevel(memory)), h("b", null, percent(memory))),
    cell(
      "note why",
      why.length > 0 && h("span", null, `${why.join(", ")}; `),
      contended ? `${contended} of ${count(vms, "VM")} contended` : count(vms, "VM"),
    ),
  );
}

export function whatIfRows(store, matches, link) {
  const hosts = store.memo("hostsByName", ["hosts"], () => [...store.all("hosts")].sort(byName));
  return hosts
    .filter((host) => matches(host.name, host.id))
    .map((host) => {
      const vms = (store.vmsByHost().get(host.id) ?? []).filter((vm) => !vm.isTemplate);
      const nodes = vms.map((vm) => vm.node && store.get("node", vm.node)).filter(Boolean);
      const pods = nodes.reduce((sum, node) => sum + (node.pods ?? 0), 0);
      const figures = [
        count(vms.length, "VM"),
        count(nodes.length, "Node"),
        nodes.every((node) => node.pods !== undefined) && count(pods, "Pod"),
      ];
      const text = figures.filter(Boolean).join(", ");
      const cluster = store.get("cluster", host.cluster);
      return entry(
        `host/${host.id}`,
        `${store.stamp(host)}/${text}/${link("", "")}`,
        () =>
          h(
            "div",
            { class: "entry" },
            cell(
              "main",
              h("a", { href: link("host", host.id, "what-if") }, hostName(host)),
              hotBadge(host),
              hostBadges(host),
            ),
            cell("note", cluster && bdi(cluster.name ?? cluster.id)),
            cell("amount", text),
          ),
      );
    });
}

export function hotBadge(host) {
  return hostContention(host).level === "hot" && badge("hot", "hot");
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
          { class: "entry gpu" },
          cell(
            "main",
            h("a", { href: link("gpuinfo", info.id) }, bdi(info.id)),
            badge(info.ready ? "Ready" : "not ready", info.ready ? "good" : "warm"),
          ),
          cell(
            "place",
            info.node
              ? ["selected ", h("a", { href: link("node", info.node) }, bdi(info.node))]
              : "no suitable Node",
          ),
          cell(
            "amount",
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
    if (candidate) {
      const message = `${notSelectedText(info, candidate)} ${gpuText(candidate)}`.trim();
      return { info, level: "calm", text: "candidate", message };
    }
    return {
      info,
      level: "plain",
      text: "not listed",
      message: "Not among the listed rejections.",
    };
  });
}

// By the rule that decides among candidates: the least CPU demand, then more free memory, then the
// name. The selected Node is kept while no other one is better by the margin.
export function notSelectedText(info, candidate) {
  const selected = (info.candidates ?? []).find((item) => item.node === info.node);
  if (!selected || candidate === selected) return "";
  const [demand, least] = [candidate.cpuDemandMHz, selected.cpuDemandMHz];
  if (demand === undefined) return "Not selected: its CPU demand is not known.";
  if (least === undefined || demand < least) {
    return `Not selected: not better by the margin for a change than ${info.node}.`;
  }
  if (demand === least) {
    return `Not selected: same CPU demand as ${info.node}, which is first by free memory or name.`;
  }
  return `Not selected: more CPU demand than ${info.node} (${megahertz(least)}).`;
}

export function gpuText(candidate) {
  return [
    candidate.freeGPUs !== undefined && count(candidate.freeGPUs, "free GPU"),
    (candidate.gpus ?? []).join(", "),
    candidate.availableHours !== undefined && `available for ${hours(candidate.availableHours)}`,
    candidate.cpuDemandMHz !== undefined && `CPU demand ${megahertz(candidate.cpuDemandMHz)}`,
  ]
    .filter(Boolean)
    .join(", ");
}

export function whyNotRows(store, matches, link) {
  const names = store.all("gpuInfos").map((info) => nameOf(info.id));
  const isUnique = new Set(names).size === names.length;
  const nodes = store.memo("nodesByName", ["nodes"], () => [...store.all("nodes")].sort(byName));
  return nodes
    .filter((node) => matches(node.id))
    .map((node) => {
      const results = verdicts(store, node.id);
      const vm = store.get("vm", node.vm);
      const host = vm && store.get("host", vm.host);
      const lines = Math.min(results.length, 3) + (results.length > 3 ? 1 : 0);
      const text = results.map((item) => `${item.text} ${item.message}`).join();
      return entry(
        `node/${node.id}`,
        `${store.stamp(node)}/${text}/${host?.name}/${link("", "")}`,
        () =>
          h(
            "div",
            { class: "entry why-not" },
            cell(
              "main",
              h("a", { href: link("node", node.id) }, bdi(node.id)),
              nodeBadges(node, { problemsOnly: true }),
            ),
            cell("place", host ? ["on ", hostName(host)] : "no known host"),
            cell(
              "verdicts",
              results
                .slice(0, 3)
                .map((item) =>
                  h(
                    "span",
                    { class: "verdict", title: `${item.info.id}: ${item.text}. ${item.message}` },
                    bdi(isUnique ? nameOf(item.info.id) : item.info.id),
                    badge(item.text, item.level),
                    h("span", { class: "muted" }, item.message),
                  ),
                ),
              results.length > 3 && h("span", { class: "muted" }, `and ${results.length - 3} more`),
            ),
          ),
        { wide: Math.max(52, 14 + 23 * lines), narrow: 56 + 23 * Math.max(lines, 1) },
      );
    });
}

function nameOf(id) {
  return id.slice(id.indexOf("/") + 1);
}

const CHANGE_LEVELS = {
  Hot: "hot",
  NoneSelected: "warm",
  Selected: "good",
  NoLongerHot: "good",
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
    .filter((item) =>
      matches(item.name, item.id, item.kind, item.type, item.message, clock(item.time)),
    )
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
            { class: "entry change" },
            cell(
              "time",
              h("time", { datetime: item.time, title: dateAndClock(item.time) }, clock(item.time)),
              h("span", { class: "muted" }, ` ${ago(item.time)}`),
            ),
            cell(
              "main",
              badge(item.type, CHANGE_LEVELS[item.type]),
              h("span", { class: "muted" }, item.kind),
              exists ? h("a", { href: link(kind, item.id) }, label) : label,
            ),
            h("span", { class: "cell note", title: item.message }, item.message),
          ),
        { wide: 42, narrow: 76 },
      );
    });
}
