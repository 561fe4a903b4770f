// What the details show of each kind of object.

import {
  connectionText,
  datastoreUsage,
  hostContention,
  powerText,
  vmContention,
} from "./contention.js";
import { badge, h } from "./dom.js";
import { bytes, count, dateAndClock, megabytes, megahertz, percent, ratioOf } from "./format.js";
import { hostBadges, nodeBadges } from "./lanes.js";
import {
  diskSection,
  gauge,
  infoSection,
  linkTo,
  listOf,
  podSection,
  section,
  table,
  vmSection,
} from "./sections.js";
import { byName } from "./store.js";
import { gpuText, groupBadge, taskLine, verdicts } from "./tables.js";

export const KIND_NAMES = {
  // As in store.js.
  __proto__: null,
  host: "Host",
  vm: "VM",
  node: "Node",
  cluster: "Cluster",
  datacenter: "Datacenter",
  datastore: "Datastore",
  disk: "Volume",
  vmgroup: "VmGroup",
  gpuinfo: "GPUInfo",
  pod: "Pod",
};

// `context` has the store, the links, and what the panel has loaded.
export function facts(kind, object, context) {
  return FACTS[kind]?.(object, context) ?? [];
}

function hostFacts(host, context) {
  const { store } = context;
  const { level, reasons, cpu, memory } = hostContention(host);
  const vms = store.vmsByHost().get(host.id) ?? [];
  const datastores = store.all("datastores").filter((item) => (item.hosts ?? []).includes(host.id));
  return [
    h(
      "p",
      { class: "badges" },
      badge(level === "off" ? connectionText(host.connection) : level, level),
      hostBadges(host),
    ),
    reasons.length > 0 &&
      h(
        "ul",
        { class: "reasons" },
        reasons.map((text) => h("li", null, text)),
      ),
    h(
      "p",
      null,
      h(
        "a",
        { class: "button", href: context.link("host", host.id, "what-if") },
        "What stops if this host goes?",
      ),
    ),
    table([
      [
        "CPU",
        cpu !== undefined &&
          gauge(cpu, `${megahertz(host.cpuUsageMHz)} of ${megahertz(host.cpuMHz)}`),
      ],
      [
        "Memory",
        memory !== undefined &&
          gauge(memory, `${megabytes(host.memoryUsageMB)} of ${megabytes(host.memoryMB)}`),
      ],
      ["Cluster", host.cluster && linkTo(context, "cluster", host.cluster)],
      ["Datacenter", host.datacenter && linkTo(context, "datacenter", host.datacenter)],
      ["Connection", host.connection],
      ["ID", h("code", null, host.id)],
    ]),
    vmSection("VMs", vms, context),
    datastores.length > 0 &&
      section(
        "Datastores",
        listOf(datastores, (item) => linkTo(context, "datastore", item.id), "datastores", context),
      ),
    infoSection(host, "HostInfo", context),
  ];
}

function vmFacts(vm, context) {
  const { level, reasons } = vmContention(vm, context.store.pressureLimits);
  const host = context.store.get("host", vm.host);
  const node = vm.node && context.store.get("node", vm.node);
  return [
    h(
      "p",
      { class: "badges" },
      badge(level === "off" ? reasons[0] : level, level),
      vm.isTemplate && badge("template"),
      node && nodeBadges(node),
    ),
    level !== "off" &&
      reasons.length > 0 &&
      h(
        "ul",
        { class: "reasons" },
        reasons.map((text) => h("li", null, text)),
      ),
    table([
      ["Node", vm.node && linkTo(context, "node", vm.node)],
      ["VmGroup", vm.vmGroup && linkTo(context, "vmgroup", vm.vmGroup)],
      ["Host", vm.host && linkTo(context, "host", vm.host)],
      ["Cluster", host?.cluster && linkTo(context, "cluster", host.cluster)],
      ["Power", powerText(vm.power)],
      ["CPUs", vm.cpus],
      ["CPU usage", vm.cpuUsageMHz !== undefined && megahertz(vm.cpuUsageMHz)],
      ["CPU readiness", vm.cpuReadinessPercent !== undefined && `${vm.cpuReadinessPercent} %`],
      ["Memory", megabytes(vm.memoryMB)],
      [
        "Active memory",
        vm.guestMemoryMB !== undefined &&
          gauge(ratioOf(vm.guestMemoryMB, vm.memoryMB), megabytes(vm.guestMemoryMB)),
      ],
      ["Ballooned", vm.balloonedMemoryMB !== undefined && megabytes(vm.balloonedMemoryMB)],
      ["Swapped", vm.swappedMemoryMB !== undefined && megabytes(vm.swappedMemoryMB)],
      ["IP address", vm.ipAddress],
      [
        "Datastores",
        vm.datastores?.length &&
          h(
            "ul",
            { class: "inline" },
            vm.datastores.map((id) => h("li", null, linkTo(context, "datastore", id))),
          ),
      ],
      ["ID", h("code", null, vm.id)],
    ]),
    diskSection(context.store.disksByVm().get(vm.id) ?? [], context),
    node && podSection(node, context),
    infoSection(vm, "VMInfo", context),
  ];
}

function nodeFacts(node, context) {
  const vm = context.store.get("vm", node.vm);
  const results = verdicts(context.store, node.id);
  return [
    h("p", { class: "badges" }, nodeBadges(node)),
    table([
      ["VM", node.vm ? linkTo(context, "vm", node.vm) : node.message || "not known"],
      ["Host", vm?.host && linkTo(context, "host", vm.host)],
      ["Maintenance", node.maintenanceStart && `from ${dateAndClock(node.maintenanceStart)}`],
    ]),
    results.length > 0 &&
      section(
        "Why, or why not, for a GPUInfo",
        listOf(
          results,
          ({ info, text, level, message }) => [
            linkTo(context, "gpuinfo", info.id),
            badge(text, level),
            h("span", null, message),
          ],
          "verdicts",
          context,
        ),
      ),
    podSection(node, context),
  ];
}

function clusterFacts(cluster, context) {
  const hosts = context.store.hostsByCluster().get(cluster.id) ?? [];
  const sum = (field) => hosts.reduce((total, host) => total + (host[field] ?? 0), 0);
  const memory = ratioOf(sum("memoryUsageMB"), sum("memoryMB"));
  const cpu = ratioOf(sum("cpuUsageMHz"), sum("cpuMHz"));
  const state = (enabled) => enabled !== undefined && (enabled ? "on" : "off");
  return [
    table([
      ["CPU", gauge(cpu, `${megahertz(sum("cpuUsageMHz"))} of ${megahertz(sum("cpuMHz"))}`)],
      [
        "Memory",
        gauge(memory, `${megabytes(sum("memoryUsageMB"))} of ${megabytes(sum("memoryMB"))}`),
      ],
      ["DRS", state(cluster.drsEnabled)],
      ["HA", state(cluster.haEnabled)],
      ["Datacenter", cluster.datacenter && linkTo(context, "datacenter", cluster.datacenter)],
      ["ID", h("code", null, cluster.id)],
    ]),
    hosts.length > 0 &&
      section(
        `Hosts (${hosts.length})`,
        listOf(
          [...hosts].sort(byName),
          (host) => [linkTo(context, "host", host.id), hostBadges(host)],
          "hosts",
          context,
        ),
      ),
    infoSection(cluster, "ClusterInfo", context),
  ];
}

function datacenterFacts(datacenter, context) {
  const clusters = context.store
    .all("clusters")
    .filter((item) => item.datacenter === datacenter.id);
  return [
    table([
      ["vCenter", datacenter.vcenter],
      ["ID", h("code", null, datacenter.id)],
    ]),
    clusters.length > 0 &&
      section(
        `Clusters (${clusters.length})`,
        listOf(
          [...clusters].sort(byName),
          (item) => linkTo(context, "cluster", item.id),
          "clusters",
          context,
        ),
      ),
  ];
}

function datastoreFacts(datastore, context) {
  const { used, ratio, provisioned, overcommit, level } = datastoreUsage(datastore);
  const { store } = context;
  return [
    h(
      "p",
      { class: "badges" },
      datastore.type && badge(datastore.type),
      datastore.accessible === false && badge("not accessible", "hot"),
      level === "warm" && badge("filling up", "warm"),
      level === "hot" && badge("almost full", "hot"),
      overcommit > 1 && badge("overcommitted", "warm"),
    ),
    table([
      [
        "Used",
        ratio !== undefined && gauge(ratio, `${bytes(used)} of ${bytes(datastore.capacityBytes)}`),
      ],
      ["Free", bytes(datastore.freeBytes)],
      [
        "Provisioned",
        provisioned !== undefined &&
          `${bytes(provisioned)}, ${percent(overcommit)} of the capacity`,
      ],
      ["Hosts", datastore.hosts && count(datastore.hosts.length, "host")],
      ["Datacenter", datastore.datacenter && linkTo(context, "datacenter", datastore.datacenter)],
      ["ID", h("code", null, datastore.id)],
    ]),
    diskSection(store.disksByDatastore().get(datastore.id) ?? [], context),
    vmSection("VMs", store.vmsByDatastore().get(datastore.id) ?? [], context),
    infoSection(datastore, "DatastoreInfo", context),
  ];
}

function diskFacts(disk, context) {
  const vm = context.store.get("vm", disk.vm);
  return [
    !disk.persistentVolume &&
      h("p", { class: "badges" }, badge("no PersistentVolume of this cluster", "warm")),
    table([
      ["Claim", disk.claim],
      ["PersistentVolume", disk.persistentVolume],
      ["Datastore", disk.datastore && linkTo(context, "datastore", disk.datastore)],
      ["Size", megabytes(disk.sizeMB)],
      ["Attached to", disk.vm ? linkTo(context, "vm", disk.vm) : "no VM"],
      ["Host", vm?.host && linkTo(context, "host", vm.host)],
      ["ID", h("code", null, disk.id)],
    ]),
  ];
}

function groupFacts(group, context) {
  const members = group.members ?? [];
  const tasks = group.tasks ?? [];
  return [
    h("p", { class: "badges" }, groupBadge(group)),
    group.message && h("p", null, group.message),
    table([
      ["Ready", `${group.readyReplicas ?? 0} of ${group.replicas ?? 0} ready`],
      ["Template", group.template],
      ["vCenter", group.vcenter],
    ]),
    tasks.length > 0 &&
      section(`Tasks (${tasks.length})`, listOf(tasks, taskLine, "tasks", context)),
    members.length > 0 &&
      section(
        `Replicas (${members.length})`,
        listOf(
          members,
          (member) => [
            linkTo(context, "vm", member.vm, member.name),
            member.state && badge(member.state, member.state === "Ready" ? "good" : "warm"),
          ],
          "members",
          context,
        ),
      ),
  ];
}

function gpuFacts(info, context) {
  const candidates = info.candidates ?? [];
  const rejections = info.rejections ?? [];
  return [
    h(
      "p",
      { class: "badges" },
      badge(info.ready ? "Ready" : "not ready", info.ready ? "good" : "warm"),
    ),
    info.message && h("p", null, info.message),
    table([["Selected", info.node ? linkTo(context, "node", info.node) : "no Node"]]),
    section(
      `Candidates (${candidates.length})`,
      candidates.length > 0
        ? listOf(
            candidates,
            (item) => [
              linkTo(context, "node", item.node),
              h("span", { class: "muted" }, gpuText(item)),
            ],
            "candidates",
            context,
          )
        : h("p", { class: "muted" }, "No Node matches."),
    ),
    rejections.length > 0 &&
      section(
        `Rejections (${rejections.length + (info.omittedRejections ?? 0)})`,
        listOf(
          rejections,
          (item) => [
            linkTo(context, "node", item.node),
            badge(item.reason, "hot"),
            h("span", null, item.message),
          ],
          "rejections",
          context,
        ),
        info.omittedRejections > 0 &&
          h(
            "p",
            { class: "muted" },
            `${count(info.omittedRejections, "more rejection")} not listed.`,
          ),
      ),
  ];
}

const FACTS = {
  __proto__: null,
  host: hostFacts,
  vm: vmFacts,
  node: nodeFacts,
  cluster: clusterFacts,
  datacenter: datacenterFacts,
  datastore: datastoreFacts,
  disk: diskFacts,
  vmgroup: groupFacts,
  gpuinfo: gpuFacts,
};
