// How contended a VM or a host is: calm, warm, hot, or off. The levels and their limits are in the
// help of the page and in docs/howto/page.md.

import { percent, ratioOf, megabytes } from "./format.js";

const READINESS_WARM = 5;
const READINESS_HOT = 10;
const USAGE_WARM = 0.75;
const USAGE_HOT = 0.9;
const RANKS = { off: 0, calm: 1, warm: 2, hot: 3 };

export function rank(level) {
  return RANKS[level];
}

export function vmContention(vm) {
  if (vm.power !== "poweredOn") {
    const text = vm.isTemplate ? "template" : powerText(vm.power);
    return { level: "off", reasons: [text] };
  }
  const reasons = [];
  let level = "calm";
  const readiness = vm.cpuReadinessPercent;
  if (readiness >= READINESS_WARM) {
    level = readiness >= READINESS_HOT ? "hot" : "warm";
    reasons.push(`CPU readiness ${readiness} %`);
  }
  if (vm.balloonedMemoryMB > 0) {
    if (level === "calm") level = "warm";
    reasons.push(`ballooned ${megabytes(vm.balloonedMemoryMB)}`);
  }
  if (vm.swappedMemoryMB > 0) {
    level = "hot";
    reasons.push(`swapped ${megabytes(vm.swappedMemoryMB)}`);
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
    const found = usageLevel(ratio);
    if (RANKS[found] > RANKS[level]) level = found;
    if (found !== "calm") reasons.push(`${text} ${percent(ratio)}`);
  }
  for (const pressure of host.pressure ?? []) {
    if (level === "calm") level = "warm";
    reasons.push(pressure.message || pressure.type);
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
