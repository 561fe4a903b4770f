// The rows of datastores and volumes. Each function returns rows for VirtualList.

import { datastoreUsage } from "./contention.js";
import { badge, bdi, h, meter } from "./dom.js";
import { bytes, count, megabytes, percent } from "./format.js";
import { routeTo } from "./route.js";
import { byName } from "./store.js";
import { cell, entry } from "./tables.js";

// The badge of a disk that no PersistentVolume names, which is also a text of the filter.
const UNNAMED = "no PersistentVolume";

export function datastoreRows(store, matches, link) {
  const datastores = store.memo("datastoresByName", ["datastores"], () =>
    [...store.all("datastores")].sort(byName),
  );
  return datastores
    .filter((item) => matches(item.name, item.id, item.type))
    .map((datastore) => {
      const vms = store.vmsByDatastore().get(datastore.id) ?? [];
      const disks = store.disksByDatastore().get(datastore.id) ?? [];
      const unnamed = disks.filter((disk) => !disk.persistentVolume).length;
      const counts = `${vms.length}/${disks.length}/${unnamed}`;
      const version = `${store.stamp(datastore)}/${counts}/${link("", "")}`;
      return entry(`datastore/${datastore.id}`, version, () => {
        const { ratio, level, overcommit } = datastoreUsage(datastore);
        return h(
          "div",
          { class: "entry" },
          cell(
            "main",
            h("a", { href: link("datastore", datastore.id) }, bdi(datastore.name ?? datastore.id)),
            datastore.type && badge(datastore.type),
            datastore.accessible === false && badge("not accessible", "hot"),
            overcommit > 1 && badge(`${percent(overcommit)} provisioned`, "warm"),
          ),
          cell("gauge wide", "Used", meter(ratio, level), h("b", null, percent(ratio))),
          cell("note", `${bytes(datastore.freeBytes)} free of ${bytes(datastore.capacityBytes)}`),
          cell(
            "note",
            `${count(vms.length, "VM")}, ${count(disks.length, "volume")}`,
            unnamed > 0 && `, ${unnamed} without a PersistentVolume`,
          ),
        );
      });
    });
}

export function volumeRows(store, matches, link) {
  const disks = store.memo("disksByName", ["disks"], () => [...store.all("disks")].sort(byName));
  const rows = [];
  for (const disk of disks) {
    const datastore = store.get("datastore", disk.datastore);
    const vm = store.get("vm", disk.vm);
    const marker = disk.persistentVolume ? "" : UNNAMED;
    if (!matches(disk.name, disk.claim, disk.persistentVolume, datastore?.name, vm?.name, marker)) {
      continue;
    }
    const stamp = store.stamp(datastore ?? disk);
    const version = `${store.stamp(disk)}/${stamp}/${vm?.name}/${link("", "")}`;
    rows.push(
      entry(`disk/${disk.id}`, version, () =>
        h(
          "div",
          { class: "entry" },
          cell(
            "main",
            h("a", { href: link("disk", disk.id) }, bdi(disk.claim || disk.name || disk.id)),
            !disk.persistentVolume && badge(UNNAMED, "warm"),
          ),
          cell(
            "note",
            "on ",
            datastore
              ? h(
                  "a",
                  { href: link("datastore", datastore.id) },
                  bdi(datastore.name ?? datastore.id),
                )
              : "an unknown datastore",
          ),
          cell(
            "note",
            vm
              ? ["attached to ", h("a", { href: link("vm", vm.id) }, bdi(vm.name ?? vm.id))]
              : "not attached",
          ),
          cell("figure", megabytes(disk.sizeMB)),
        ),
      ),
    );
  }
  return rows;
}

// A link that filters the volumes.
export function unnamedShortcut(store, { filter }) {
  const number = store.all("disks").filter((disk) => !disk.persistentVolume).length;
  if (filter) return { text: "Show all volumes", href: routeTo({ view: "volumes" }) };
  return (
    number > 0 && {
      text: `Show the ${count(number, "disk")} that no PersistentVolume names`,
      href: routeTo({ view: "volumes", filter: UNNAMED }),
    }
  );
}
