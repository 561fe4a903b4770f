// The views of the page, in the order of the navigation and of the keys 1 to 9.

import { laneRows, legend } from "./lanes.js";
import { datastoreRows, unnamedShortcut, volumeRows } from "./storage.js";
import {
  changeRows,
  gpuRows,
  groupRows,
  hotRows,
  hotSummary,
  whatIfRows,
  whyNotRows,
} from "./tables.js";

export const VIEWS = [
  {
    id: "hosts",
    group: "Browse",
    label: "Hosts and VMs",
    collection: "hosts",
    rows: laneRows,
    legend,
    title: "Hosts and VMs",
    description: "In each host, the VMs are as wide as their memory. Colours show contention.",
    empty: "No hosts. The account may not be allowed to see any: run manager doctor.",
  },
  {
    id: "datastores",
    group: "Browse",
    label: "Datastores",
    collection: "datastores",
    rows: datastoreRows,
    title: "Datastores",
    description: "Select one to see the VMs and volumes on it.",
    empty: "No datastores.",
  },
  {
    id: "groups",
    group: "Browse",
    label: "VmGroups",
    collection: "vmGroups",
    rows: groupRows,
    title: "VmGroups",
    description: "Replicas, and tasks while they run.",
    empty: "No VmGroups. Create one with: kubectl apply -f config/samples",
  },
  {
    id: "gpus",
    group: "Browse",
    label: "GPUInfos",
    collection: "gpuInfos",
    rows: gpuRows,
    title: "GPUInfos",
    description: "The Node that each one selected, its candidates and rejections.",
    empty: "No GPUInfos. Create one with: kubectl apply -f config/samples",
  },
  {
    id: "hot",
    group: "Questions",
    label: "Which host is hot?",
    rows: hotRows,
    title: "Which host is hot?",
    description: hotSummary,
    empty: "No hosts.",
  },
  {
    id: "what-if",
    group: "Questions",
    label: "What stops if a host goes?",
    rows: whatIfRows,
    title: "What stops if a host goes?",
    description: "Select a host: its Pods, those without a replica elsewhere, violated budgets, volumes.",
    empty: "No hosts.",
  },
  {
    id: "volumes",
    group: "Questions",
    label: "Where is this volume?",
    rows: volumeRows,
    title: "Where is this volume?",
    description: "Each volume with its datastore and VM.",
    shortcut: unnamedShortcut,
    empty: "No First Class Disks.",
  },
  {
    id: "why-not",
    group: "Questions",
    label: "Why not this Node?",
    rows: whyNotRows,
    title: "Why not this Node?",
    description: "What each GPUInfo decided about each Node, and why.",
    empty: "No Nodes.",
  },
  {
    id: "changes",
    group: "Questions",
    label: "What changed?",
    rows: changeRows,
    title: "What changed in the last hour?",
    description: "Loading the changes.",
    empty: "No changes yet.",
  },
];

export function viewOf(id) {
  return VIEWS.find((view) => view.id === id) ?? VIEWS[0];
}

// The view in which an object has a row.
export const HOME_VIEWS = {
  host: "hosts",
  vm: "hosts",
  node: "hosts",
  cluster: "hosts",
  datacenter: "hosts",
  datastore: "datastores",
  disk: "volumes",
  vmgroup: "groups",
  gpuinfo: "gpus",
  pod: "hosts",
};

// The row of an object in a view: a VM is in the row of its host.
export function rowKey(store, view, kind, id) {
  if (view === "hosts" && kind === "node") {
    const vm = store.get("node", id)?.vm;
    return vm ? rowKey(store, view, "vm", vm) : `node/${id}`;
  }
  if (view === "hosts" && kind === "vm") {
    const host = store.get("vm", id)?.host;
    return host ? `host/${host}` : "without-host";
  }
  return `${kind}/${id}`;
}
