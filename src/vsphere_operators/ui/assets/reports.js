// What the manager is asked for on demand: what stops if a host goes, and an object with its
// conditions, Events and YAML.

import { badge, bdi, h } from "./dom.js";
import { ago, clock, count, dateAndClock } from "./format.js";
import { linkTo, listOf, podLink, problems, section } from "./sections.js";

export function whatIf(result, host, context) {
  const pods = [...(result.pods ?? [])].sort((left, right) => podRank(left) - podRank(right));
  const alone = pods.filter((pod) => podRank(pod) === 0).length;
  const budgets = result.podDisruptionBudgets ?? [];
  const volumes = result.volumes ?? [];
  const groups = result.vmGroups ?? [];
  const vms = result.vms ?? [];
  const figure = (number, text, isBad, target) => {
    const content = [h("b", null, number.toLocaleString("en")), ` ${text}`];
    return h(
      "li",
      { class: isBad ? "bad" : "" },
      number > 0 && target
        ? h("button", { type: "button", "data-action": "jump", "data-key": target }, content)
        : content,
    );
  };
  return [
    h(
      "ul",
      { class: "figures" },
      figure(pods.length, pods.length === 1 ? "Pod stops" : "Pods stop", false, "Pods"),
      figure(alone, "without a ready replica elsewhere", alone > 0, "Pods"),
      figure(
        budgets.length,
        budgets.length === 1 ? "disruption budget at risk" : "disruption budgets at risk",
        budgets.length > 0,
        "PodDisruptionBudgets",
      ),
      figure(volumes.length, volumes.length === 1 ? "volume" : "volumes", false, "Volumes"),
      figure(
        (result.nodes ?? []).length,
        (result.nodes ?? []).length === 1 ? "Node" : "Nodes",
        false,
      ),
    ),
    problems(result),
    h(
      "p",
      { class: "muted" },
      `As of ${clock(result.time)}. `,
      h(
        "button",
        { type: "button", "data-action": "load", "data-kind": "what-if", "data-key": host.id },
        "Refresh",
      ),
    ),
    pods.length + vms.length === 0 &&
      h(
        "p",
        null,
        result.problems?.length
          ? "Nothing is known to run on this host."
          : "Nothing of this cluster runs on this host.",
      ),
    result.stoppedVMs > 0 &&
      h("p", { class: "muted" }, `${count(result.stoppedVMs, "VM")} on it not running already.`),
    budgets.length > 0 &&
      section(
        "PodDisruptionBudgets at risk",
        listOf(
          budgets,
          (item) => [
            h(
              "span",
              null,
              h("span", { class: "muted" }, bdi(item.namespace), "/"),
              bdi(item.name),
            ),
            h(
              "span",
              null,
              `allows ${count(item.disruptionsAllowed, "disruption")}, ` +
                `${count(item.podsOnHost, "Pod")} on this host`,
            ),
          ],
          "budgets",
          context,
        ),
      ),
    pods.length > 0 &&
      section(
        `Pods (${pods.length})`,
        listOf(
          pods,
          (pod) => [
            podLink(pod, context),
            podRank(pod) === 0 && badge("no ready replica elsewhere", "hot"),
            pod.isBoundToNode && badge("belongs to the Node"),
            pod.ready === false && badge("not ready", "warm"),
            h(
              "span",
              { class: "muted" },
              pod.controller,
              pod.controller ? ", " : "",
              "on ",
              bdi(pod.node),
            ),
          ],
          "pods",
          context,
        ),
      ),
    volumes.length > 0 &&
      section(
        `Volumes (${volumes.length})`,
        listOf(
          volumes,
          (item) => [
            linkTo(context, "disk", item.disk, item.claim || item.persistentVolume),
            h("span", { class: "muted" }, "on ", bdi(item.datastore ?? "")),
          ],
          "volumes",
          context,
        ),
      ),
    groups.length > 0 &&
      section(
        "VmGroups",
        listOf(
          groups,
          (item) => [
            linkTo(context, "vmgroup", item.id),
            h(
              "span",
              null,
              `${item.replicasOnHost} of ${count(item.replicas, "replica")} on this host`,
            ),
          ],
          "groups",
          context,
        ),
      ),
    vms.length > 0 &&
      section(
        `VMs (${vms.length})`,
        listOf(
          vms,
          (vm) => [linkTo(context, "vm", vm.id, vm.name), vm.node && badge("Node")],
          "vms",
          context,
        ),
      ),
  ];
}

// Pods without a replica first, then those with one, then those that belong to their Node.
function podRank(pod) {
  if (pod.isBoundToNode) return 2;
  return pod.hasReadyReplicaElsewhere ? 1 : 0;
}

export function objectSections(object, context) {
  const conditions = object.conditions ?? [];
  const events = object.events ?? [];
  return [
    problems(object),
    section(
      "Conditions",
      conditions.length === 0
        ? h("p", { class: "muted" }, "No conditions yet.")
        : listOf(
            conditions,
            (item) => [
              h("span", null, h("b", null, item.type), ` ${item.status}`),
              item.reason && badge(item.reason),
              h("span", { class: "message" }, item.message),
              item.lastTransitionTime &&
                h("span", { class: "muted" }, `since ${dateAndClock(item.lastTransitionTime)}`),
            ],
            "conditions",
            context,
          ),
    ),
    section(
      "Events",
      events.length === 0
        ? h("p", { class: "muted" }, "No Events.")
        : listOf(
            events,
            (item) => [
              badge(
                item.reason ?? item.type ?? "Event",
                item.type === "Warning" ? "warm" : "plain",
              ),
              h("span", { class: "message" }, item.message ?? item.note),
              h("span", { class: "muted" }, eventTime(item)),
            ],
            "events",
            context,
          ),
      object.omittedEvents > 0 &&
        h("p", { class: "muted" }, `${count(object.omittedEvents, "older Event")} not listed.`),
    ),
    object.yaml !== undefined &&
      h(
        "details",
        { "data-key": "yaml" },
        h("summary", null, "YAML"),
        object.isPartial &&
          h("p", { class: "muted" }, "Only the fields that the manager reads."),
        h("button", { type: "button", "data-action": "copy" }, "Copy"),
        h("pre", { class: "yaml", tabindex: "0", "aria-label": "YAML" }, object.yaml),
      ),
  ];
}

function eventTime(event) {
  const time = event.lastTimestamp ?? event.time ?? event.eventTime;
  if (!time) return "";
  return event.count > 1 ? `${ago(time)}, ${event.count} times` : ago(time);
}
