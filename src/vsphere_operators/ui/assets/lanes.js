// The lanes: datacenter, cluster, host, and in each host its VMs, as wide as their memory.

import {
  connectionText,
  hostContention,
  pressureText,
  usageLevel,
  vmContention,
} from "./contention.js";
import { badge, bdi, h, meter, plain } from "./dom.js";
import { count, megabytes, percent } from "./format.js";
import { byName } from "./store.js";

const NARROW = matchMedia("(max-width: 700px)");
const ARRIVAL_MILLISECONDS = 4000;
// Below this width a VM has no room for its name.
const LABEL_PIXELS = 72;
// The columns of .host in page.css, with the gap and the padding of a row.
const HOST_PIXELS = 350;
const NARROW_HOST_PIXELS = 298;

function hostHeight() {
  return NARROW.matches ? 104 : 58;
}

export function laneRows(store, matches, link, width) {
  const rows = [];
  const hosts = store.hostsByCluster();
  const datacenters = store.memo("datacenters", ["datacenters"], () =>
    [...store.all("datacenters")].sort(byName),
  );
  const clusters = store.memo("clusters", ["clusters"], () =>
    [...store.all("clusters")].sort(byName),
  );
  const single = hosts.get("") ?? [];
  const shown = new Set();
  for (const datacenter of datacenters) {
    const lanes = [];
    for (const cluster of clusters.filter((item) => item.datacenter === datacenter.id)) {
      lanes.push(...laneOf(store, cluster, hosts.get(cluster.id) ?? [], matches, link, width));
      shown.add(cluster.id);
    }
    const alone = single.filter((host) => host.datacenter === datacenter.id);
    lanes.push(
      ...laneOf(
        store,
        { id: `${datacenter.id}/`, name: "Hosts without a cluster" },
        alone,
        matches,
        link,
        width,
      ),
    );
    if (lanes.length) rows.push(datacenterRow(store, datacenter), ...lanes);
  }
  // A cluster of which the datacenter is not visible to the account.
  for (const cluster of clusters.filter((item) => !shown.has(item.id))) {
    rows.push(...laneOf(store, cluster, hosts.get(cluster.id) ?? [], matches, link, width));
  }
  rows.push(...withoutHost(store, matches, link, width), ...withoutVm(store, matches, link));
  return rows;
}

function laneOf(store, cluster, hosts, matches, link, width) {
  const rows = sortedHosts(store, cluster.id, hosts)
    .filter((host) => matchesHost(store, host, cluster, matches))
    .map((host) => hostRow(store, host, link, width));
  return rows.length ? [clusterRow(store, cluster, hosts, link), ...rows] : [];
}

function sortedHosts(store, key, hosts) {
  return store.memo(`sorted/${key}`, ["hosts", "clusters"], () => [...hosts].sort(byName));
}

function matchesHost(store, host, cluster, matches) {
  if (matches(host.name, host.id, cluster.name)) return true;
  return (store.vmsByHost().get(host.id) ?? []).some((vm) =>
    matches(vm.name, vm.id, vm.node, vm.vmGroup, vm.ipAddress),
  );
}

function datacenterRow(store, datacenter) {
  const name = datacenter.name ?? datacenter.id;
  return {
    key: `datacenter/${datacenter.id}`,
    height: 40,
    version: store.stamp(datacenter),
    render: () =>
      h(
        "div",
        { class: "datacenter" },
        h("h3", null, bdi(name)),
        h("span", { class: "muted" }, `datacenter in ${plain(datacenter.vcenter ?? "")}`),
      ),
  };
}

function clusterRow(store, cluster, hosts, link) {
  const isReal = store.get("cluster", cluster.id) !== undefined;
  return {
    key: `cluster/${cluster.id}`,
    height: 34,
    version: `${store.stamp(cluster)}/${store.version(hosts)}`,
    render: () => {
      const total = (field) => hosts.reduce((sum, host) => sum + (host[field] ?? 0), 0);
      const memory = total("memoryMB");
      const usage = memory ? total("memoryUsageMB") / memory : undefined;
      const name = bdi(cluster.name ?? cluster.id);
      return h(
        "div",
        { class: "cluster" },
        h("h4", null, isReal ? h("a", { href: link("cluster", cluster.id) }, name) : name),
        h(
          "span",
          { class: "muted" },
          `${count(hosts.length, "host")}, memory ${percent(usage)} of ${megabytes(memory)}`,
        ),
        isReal && cluster.drsEnabled !== undefined && badge(cluster.drsEnabled ? "DRS" : "DRS off"),
        isReal && cluster.haEnabled !== undefined && badge(cluster.haEnabled ? "HA" : "HA off"),
      );
    },
  };
}

function hostRow(store, host, link, width) {
  const vms = vmsOf(store, host.id);
  const arrived = vms.filter((vm) => hasArrived(store, vm)).length;
  return {
    key: `host/${host.id}`,
    height: hostHeight(),
    version: `${store.stamp(host)}/${store.version(vms)}/${arrived}/${width}/${link("", "")}`,
    render: () => {
      const contention = hostContention(host);
      return h(
        "div",
        { class: `host ${contention.level}` },
        hostHead(host, contention, vms, link),
        strip(store, vms, host.memoryMB ?? 0, link, width),
      );
    },
  };
}

function vmsOf(store, hostId) {
  const vms = store.vmsByHost().get(hostId) ?? [];
  return store.memo(`strip/${hostId}`, ["vms"], () =>
    [...vms].sort(
      (left, right) => (right.memoryMB ?? 0) - (left.memoryMB ?? 0) || byName(left, right),
    ),
  );
}

function hasArrived(store, vm) {
  const time = store.arrivals.get(vm.id);
  return time !== undefined && performance.now() - time < ARRIVAL_MILLISECONDS;
}

export function hostBadges(host) {
  return [
    host.connection &&
      host.connection !== "connected" &&
      badge(connectionText(host.connection), "hot"),
    host.maintenance === "in" && badge("in maintenance", "warm"),
    host.maintenance === "entering" && badge("entering maintenance", "warm"),
    (host.pressure ?? [])
      .map(({ type }) => pressureText(type))
      .filter(Boolean)
      .map((text) => badge(text, "hot")),
  ];
}

function hostHead(host, contention, vms, link) {
  const label = [
    host.name ?? host.id,
    "host",
    contention.level,
    ...contention.reasons,
    host.maintenance && `${host.maintenance} maintenance`,
    count(vms.length, "VM"),
  ]
    .filter(Boolean)
    .join(", ");
  return h(
    "div",
    { class: "head" },
    h(
      "div",
      { class: "line" },
      h("a", { href: link("host", host.id), "aria-label": label }, bdi(host.name ?? host.id)),
      // The badges of pressures say more.
      contention.level === "hot" && !host.pressure?.length && badge("hot", "hot"),
      hostBadges(host),
    ),
    h(
      "div",
      { class: "line usage" },
      h("span", null, "CPU"),
      meter(contention.cpu, usageLevel(contention.cpu)),
      h("span", { class: "figure" }, percent(contention.cpu)),
      h("span", null, "Mem"),
      meter(contention.memory, usageLevel(contention.memory)),
      h("span", { class: "figure" }, percent(contention.memory)),
    ),
  );
}

function strip(store, vms, hostMemory, link, width) {
  const used = vms.reduce((sum, vm) => sum + (vm.memoryMB ?? 0), 0);
  const whole = Math.max(hostMemory, used, 1);
  const head = width > 820 ? HOST_PIXELS : NARROW_HOST_PIXELS;
  const pixels = NARROW.matches ? width - 24 : width - head;
  const blocks = vms.map((vm) =>
    block(store, vm, link, ((vm.memoryMB ?? 0) / whole) * pixels >= LABEL_PIXELS),
  );
  const free = whole - used;
  if (free > 0) {
    blocks.push(
      h(
        "span",
        { class: "free", vars: { "flex-grow": free }, "aria-hidden": "true" },
        (free / whole) * pixels > 130 && `${megabytes(free)} not assigned`,
      ),
    );
  }
  return h("div", { class: "strip" }, blocks);
}

function block(store, vm, link, hasLabel) {
  const { level, reasons } = vmContention(vm, store.pressureLimits);
  const name = vm.name ?? vm.id;
  const text = [
    name,
    vm.node ? `Node ${vm.node}` : "VM",
    megabytes(vm.memoryMB),
    level,
    ...reasons,
  ].join(", ");
  const classes = ["vm", level, vm.node && "node", hasArrived(store, vm) && "arrived"];
  return h(
    "a",
    {
      class: classes.filter(Boolean).join(" "),
      href: link("vm", vm.id),
      "aria-label": text,
      title: text,
      vars: { "flex-grow": Math.max(vm.memoryMB ?? 0, 1) },
    },
    hasLabel && [bdi(name), h("small", null, reasons[0] ?? megabytes(vm.memoryMB))],
  );
}

function withoutHost(store, matches, link, width) {
  const vms = (store.vmsByHost().get("") ?? []).filter((vm) => matches(vm.name, vm.id, vm.vmGroup));
  if (!vms.length) return [];
  return [
    {
      key: "without-host",
      height: hostHeight(),
      version: `${store.version(vms)}/${width}/${link("", "")}`,
      render: () =>
        h(
          "div",
          { class: "host" },
          h(
            "div",
            { class: "head" },
            h("h3", { class: "line" }, "Not on a host"),
            h("p", { class: "line muted" }, count(vms.length, "VM")),
          ),
          strip(store, [...vms].sort(byName), 0, link, width),
        ),
    },
  ];
}

function withoutVm(store, matches, link) {
  const nodes = store.all("nodes").filter((node) => !node.vm && matches(node.id));
  if (!nodes.length) return [];
  return [
    {
      key: "without-vm",
      height: 40,
      version: nodes.length,
      render: () =>
        h(
          "div",
          { class: "datacenter" },
          h("h3", null, "Nodes without a known VM"),
          h("span", { class: "muted" }, count(nodes.length, "Node")),
        ),
    },
    ...nodes.map((node) => nodeRow(store, node, link)),
  ];
}

function nodeRow(store, node, link) {
  return {
    key: `node/${node.id}`,
    height: 44,
    version: `${store.stamp(node)}/${link("", "")}`,
    render: () =>
      h(
        "div",
        { class: "entry" },
        h("a", { href: link("node", node.id) }, bdi(node.id)),
        nodeBadges(node),
        h("span", { class: "muted" }, node.pods !== undefined && count(node.pods, "Pod")),
      ),
  };
}

export function nodeBadges(node) {
  return [
    node.ready === true && badge("Ready", "good"),
    node.ready === false && badge("not Ready", "hot"),
    node.unschedulable && badge("unschedulable", "warm"),
    node.maintenanceStart && badge("maintenance planned", "warm"),
  ];
}

export function legend() {
  const item = (level, text) => h("li", null, h("i", { class: `swatch ${level}` }), text);
  return h(
    "ul",
    null,
    item("calm", "calm"),
    item("warm", "warm"),
    item("hot", "hot"),
    item("off", "off or template"),
    item("calm node", "is a Node"),
    item("free", "memory not assigned"),
  );
}
