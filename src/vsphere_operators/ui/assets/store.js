// The model of the manager, kept current by changes. Objects are never modified, only replaced, so
// an object that is the same has the same content.

const COLLECTIONS = [
  "vcenters",
  "datacenters",
  "clusters",
  "hosts",
  "vms",
  "datastores",
  "disks",
  "nodes",
  "vmGroups",
  "gpuInfos",
];
// The collection of each kind that has a deep link.
export const KINDS = {
  // A kind comes from the address: "constructor" must not be one.
  __proto__: null,
  vcenter: "vcenters",
  datacenter: "datacenters",
  cluster: "clusters",
  host: "hosts",
  vm: "vms",
  datastore: "datastores",
  disk: "disks",
  node: "nodes",
  vmgroup: "vmGroups",
  gpuinfo: "gpuInfos",
};

export class Store {
  constructor() {
    this.revision = undefined;
    this.manager = {};
    this.limits = {};
    this.pressureLimits = {};
    // The time of the manager's clock at which the model was as shown.
    this.time = undefined;
    this.collections = Object.fromEntries(COLLECTIONS.map((name) => [name, new Map()]));
    this.arrivals = new Map();
    this.onChange = () => {};
    this._stamp = 0;
    this._stamps = new WeakMap();
    this._counters = Object.fromEntries(COLLECTIONS.map((name) => [name, 0]));
    this._memos = new Map();
  }

  replace(model) {
    for (const name of COLLECTIONS) {
      this.collections[name] = new Map();
      this._put(name, model[name] ?? []);
    }
    this.manager = model.manager ?? {};
    this.limits = model.limits ?? {};
    this.pressureLimits = model.pressureLimits ?? {};
    this.revision = model.revision;
    this.time = model.time;
    this.arrivals.clear();
    this._memos.clear();
    this.onChange();
  }

  apply(change) {
    for (const [name, ids] of Object.entries(change.removed ?? {})) {
      if (!Object.hasOwn(this.collections, name)) continue;
      for (const id of ids) this.collections[name].delete(id);
      this._counters[name] += 1;
    }
    for (const vm of change.changed?.vms ?? []) {
      const before = this.collections.vms.get(vm.id);
      if (before && before.host !== vm.host) this.arrivals.set(vm.id, performance.now());
    }
    for (const [name, objects] of Object.entries(change.changed ?? {})) {
      // A newer manager may have single values and collections that this page does not know.
      if (Object.hasOwn(this.collections, name)) this._put(name, objects);
    }
    this.limits = change.limits ?? this.limits;
    this.revision = change.revision;
    this.time = change.time;
    this.onChange();
  }

  // A heartbeat: nothing else than the manager has changed.
  confirm(heartbeat) {
    this.manager = heartbeat.manager ?? this.manager;
    this.revision = heartbeat.revision;
    this.time = heartbeat.time;
    this.onChange();
  }

  get(kind, id) {
    const collection = KINDS[kind];
    return collection && this.collections[collection].get(id);
  }

  all(collection) {
    return this.memo(`all/${collection}`, [collection], () => [
      ...this.collections[collection].values(),
    ]);
  }

  // Grows with each change of an object.
  stamp(object) {
    return this._stamps.get(object) ?? 0;
  }

  // A text that changes when the list or one of its objects changes.
  version(objects) {
    let newest = 0;
    for (const object of objects) newest = Math.max(newest, this.stamp(object));
    return `${objects.length}:${newest}`;
  }

  // The result of `build`, kept until one of the collections changes.
  memo(name, collections, build) {
    const key = collections.map((collection) => this._counters[collection]).join();
    const kept = this._memos.get(name);
    if (kept?.key === key) return kept.value;
    const value = build();
    this._memos.set(name, { key, value });
    return value;
  }

  vmsByHost() {
    return this._groups("vms", "host");
  }

  hostsByCluster() {
    return this._groups("hosts", "cluster");
  }

  disksByDatastore() {
    return this._groups("disks", "datastore");
  }

  disksByVm() {
    return this._groups("disks", "vm");
  }

  vmsByDatastore() {
    return this.memo("vmsByDatastore", ["vms"], () => {
      const groups = new Map();
      for (const vm of this.collections.vms.values()) {
        for (const id of vm.datastores ?? []) addTo(groups, id, vm);
      }
      return groups;
    });
  }

  _groups(collection, field) {
    return this.memo(`${collection}/${field}`, [collection], () => {
      const groups = new Map();
      for (const object of this.collections[collection].values()) {
        addTo(groups, object[field] ?? "", object);
      }
      return groups;
    });
  }

  _put(name, objects) {
    this._stamp += 1;
    this._counters[name] += 1;
    for (const object of objects) {
      this._stamps.set(object, this._stamp);
      this.collections[name].set(object.id, object);
    }
  }
}

function addTo(groups, key, value) {
  const group = groups.get(key);
  if (group) group.push(value);
  else groups.set(key, [value]);
}

// Numbers inside names count: esxi-2 is before esxi-10.
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export function byName(left, right) {
  return collator.compare(left.name ?? left.id, right.name ?? right.id);
}
