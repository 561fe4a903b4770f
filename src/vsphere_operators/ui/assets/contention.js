// How contended a VM or a host is: calm, warm, hot, or off. docs/howto/page.md has the levels. The
// limits of pressure come with the model, so that hot is what the Node condition
// VSphereHostPressure reports.

import { percent, ratioOf, megabytes } from "./format.js";

// A host that uses this much of its CPU or memory is warm. Usage alone never makes it hot.
const HOST_WARM = 0.9;
const DATASTORE_WARM = 0.75;
const DATASTORE_HOT = 0.9;
const RANKS = { off: 0, calm: 1, warm: 2, hot: 3 };

export function rank(level) {
  return RANKS[level];
}

// What the limits are about: the figure of a VM in percent, and as text.
const FIGURES = {
  CPUReady: {
    title: "CPU readiness",
    cause: "CPU wait",
    percentOf: (vm) => vm.cpuReadinessPercent,
    text: (vm) => `CPU readiness ${vm.cpuReadinessPercent} %`,
  },
  MemoryBallooning: {
    title: "ballooned memory",
    cause: "ballooning",
    percentOf: (vm) => percentOfMemory(vm, vm.balloonedMemoryMB),
    text: (vm) => memoryText("ballooned", vm, vm.balloonedMemoryMB),
  },
  MemorySwapping: {
    title: "swapped memory",
    cause: "swapping",
    percentOf: (vm) => percentOfMemory(vm, vm.swappedMemoryMB),
    text: (vm) => memoryText("swapped", vm, vm.swappedMemoryMB),
  },
};

// Why a host is hot, as text and with the limits: the worst figure of its VMs for each pressure.
// Maintenance is not among them: the host has it as a state of its own.
export function hostCauses(host, vms, limits) {
  return (host.pressure ?? [])
    .filter(({ type }) => Object.hasOwn(FIGURES, type))
    .map(({ type, message }) => {
      const { cause, percentOf } = FIGURES[type];
      const limit = limits[type]?.hotPercent;
      const worst = Math.max(
        ...vms.filter((vm) => vm.power === "poweredOn").map((vm) => percentOf(vm) ?? 0),
      );
      // The VM may be among those that the model leaves out.
      if (limit === undefined || !(worst >= limit)) return { short: cause, text: message || cause };
      const short = `${cause} ${Math.round(worst)} %`;
      return { short, text: `${short} (limit ${limit} %)` };
    });
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
    return { level: "off", reasons: [text], short: text };
  }
  const reasons = [];
  let short;
  let level = "calm";
  for (const [type, { percentOf, text, cause }] of Object.entries(FIGURES)) {
    const limit = limits[type];
    const figure = percentOf(vm);
    if (limit === undefined || figure === undefined || figure < limit.warmPercent) continue;
    if (figure >= limit.hotPercent) level = "hot";
    else if (level === "calm") level = "warm";
    reasons.push(text(vm));
    short ??= `${cause} ${Math.round(figure)} %`;
  }
  return { level, reasons, short };
}

export function powerText(power) {
  return (
    { poweredOn: "powered on", poweredOff: "powered off", suspended: "suspended" }[power] ??
    "power state unknown"
  );
}

// The same levels as those of the host, for its bars.
export function usageLevel(ratio) {
  return ratio !== undefined && ratio >= HOST_WARM ? "warm" : "calm";
}

function fillLevel(ratio) {
  if (ratio === undefined || ratio < DATASTORE_WARM) return "calm";
  return ratio < DATASTORE_HOT ? "warm" : "hot";
}

// Hot: VMs on the host contend for its CPU or memory. Warm: it is almost fully used. Maintenance is
// no contention; it has a badge of its own.
export function hostContention(host) {
  if (host.connection && host.connection !== "connected") {
    return { level: "off", reasons: [connectionText(host.connection)], usage: [], load: -1 };
  }
  const cpu = ratioOf(host.cpuUsageMHz, host.cpuMHz);
  const memory = ratioOf(host.memoryUsageMB, host.memoryMB);
  const reasons = [];
  let level = "calm";
  for (const [text, ratio] of [
    ["CPU", cpu],
    ["memory", memory],
  ]) {
    if (usageLevel(ratio) === "calm") continue;
    level = "warm";
    reasons.push(`${text} ${percent(ratio)} used`);
  }
  const usage = [...reasons];
  for (const pressure of [...(host.pressure ?? [])].reverse()) {
    if (Object.hasOwn(FIGURES, pressure.type)) level = "hot";
    // Before the usage: pressure is contention, high usage alone is not.
    reasons.unshift(pressure.message || pressure.type);
  }
  return { level, reasons, usage, cpu, memory, load: Math.max(cpu ?? 0, memory ?? 0) };
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
    level: datastore.accessible === false ? "off" : fillLevel(ratio),
  };
}
