// How contended a VM or a host is: calm, warm, hot, or off. docs/howto/page.md has the levels. The
// limits of pressure come with the model, so that hot is what the Node condition
// VSphereHostPressure reports.

import { percent, ratioOf, megabytes } from "./format.js";

const USAGE_WARM = 0.75;
const USAGE_HOT = 0.9;
const RANKS = { off: 0, calm: 1, warm: 2, hot: 3 };

export function rank(level) {
  return RANKS[level];
}

// What the limits are about: the figure of a VM in percent, and as text.
const FIGURES = {
  CPUReady: {
    title: "CPU readiness",
    state: "VMs wait for CPU",
    percentOf: (vm) => vm.cpuReadinessPercent,
    text: (vm) => `CPU readiness ${vm.cpuReadinessPercent} %`,
  },
  MemoryBallooning: {
    title: "ballooned memory",
    state: "ballooning",
    percentOf: (vm) => percentOfMemory(vm, vm.balloonedMemoryMB),
    text: (vm) => memoryText("ballooned", vm, vm.balloonedMemoryMB),
  },
  MemorySwapping: {
    title: "swapped memory",
    state: "swapping",
    percentOf: (vm) => percentOfMemory(vm, vm.swappedMemoryMB),
    text: (vm) => memoryText("swapped", vm, vm.swappedMemoryMB),
  },
};

// What a type of pressure means, or "" for maintenance, which the host has as a state of its own.
export function pressureText(type) {
  return Object.hasOwn(FIGURES, type) ? FIGURES[type].state : "";
}

function percentOfMemory(vm, part) {
  const ratio = ratioOf(part, vm.memoryMB);
  return ratio === undefined ? undefined : 100 * ratio;
}

function memoryText(verb, vm, part) {
  return `${verb} ${megabytes(part)}, ${percent(part / vm.memoryMB)} of its memory`;
}

// The limits as a sentence for the help.
export function limitsText(limits) {
  const known = Object.entries(FIGURES).filter(([type]) => limits[type]);
  const list = (field) =>
    known.map(([type, { title }]) => `${title} from ${limits[type][field]} %`).join(", ");
  return known.length === 0
    ? ""
    : `A VM is warm with ${list("warmPercent")}; hot with ${list("hotPercent")}. `;
}

export function vmContention(vm, limits) {
  if (vm.power !== "poweredOn") {
    const text = vm.isTemplate ? "template" : powerText(vm.power);
    return { level: "off", reasons: [text] };
  }
  const reasons = [];
  let level = "calm";
  for (const [type, { percentOf, text }] of Object.entries(FIGURES)) {
    const limit = limits[type];
    const figure = percentOf(vm);
    if (limit === undefined || figure === undefined || figure < limit.warmPercent) continue;
    if (figure >= limit.hotPercent) level = "hot";
    else if (level === "calm") level = "warm";
    reasons.push(text(vm));
  }
  return { level, reasons };
}

export function powerText(power) {
  return (
    { poweredOn: "powered on", poweredOff: "powered off", suspended: "suspended" }[power] ??
    "power state unknown"
  );
}

export function usageLevel(ratio) {
  if (ratio === undefined || ratio < USAGE_WARM) return "calm";
  return ratio < USAGE_HOT ? "warm" : "hot";
}

// Hot: the host contends with what runs on it. Warm: it is almost fully used, or in maintenance.
export function hostContention(host) {
  if (host.connection && host.connection !== "connected") {
    return { level: "off", reasons: [connectionText(host.connection)], load: -1 };
  }
  const cpu = ratioOf(host.cpuUsageMHz, host.cpuMHz);
  const memory = ratioOf(host.memoryUsageMB, host.memoryMB);
  const reasons = [];
  let level = "calm";
  for (const [text, ratio] of [
    ["CPU", cpu],
    ["memory", memory],
  ]) {
    if (usageLevel(ratio) !== "hot") continue;
    level = "warm";
    reasons.push(`${text} ${percent(ratio)} used`);
  }
  for (const pressure of [...(host.pressure ?? [])].reverse()) {
    if (Object.hasOwn(FIGURES, pressure.type)) level = "hot";
    else if (level === "calm") level = "warm";
    // The pressure is the reason, the usage may be.
    reasons.unshift(pressure.message || pressure.type);
  }
  return { level, reasons, cpu, memory, load: Math.max(cpu ?? 0, memory ?? 0) };
}

export function connectionText(connection) {
  return (
    { disconnected: "disconnected", notResponding: "not responding" }[connection] ??
    String(connection)
  );
}

export function datastoreUsage(datastore) {
  const { capacityBytes: capacity, freeBytes: free, uncommittedBytes: uncommitted } = datastore;
  const used = capacity === undefined || free === undefined ? undefined : capacity - free;
  const ratio = ratioOf(used, capacity);
  const provisioned =
    used === undefined || uncommitted === undefined ? undefined : used + uncommitted;
  return {
    used,
    ratio,
    provisioned,
    overcommit: ratioOf(provisioned, capacity),
    level: datastore.accessible === false ? "off" : usageLevel(ratio),
  };
}
