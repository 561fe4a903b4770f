"""Pods and PodDisruptionBudgets of the cluster, with the few fields that the topology shows.

They are watched only while the topology is served: the generated role of the manager has no
permission for budgets. The component `page` grants it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kubewright import Client, Object, Resource, kind, select
from kubewright.builtin import Event, Pod, StatusCondition
from kubewright.cache import Store
from kubewright.errors import Forbidden
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.permission import Permission
from kubewright.reflector import Reflector
from kubewright.selectors import LabelRequirement, LabelSelector

ROLE_COMPONENT = "config/components/page"
_NODE_INDEX = "node"


class _SelectorTerm(Struct, frozen=True, omit_defaults=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class _LabelSelector(Struct, frozen=True, omit_defaults=True, kw_only=True):
    matchLabels: dict[str, str] = {}
    matchExpressions: list[_SelectorTerm] = []


class BudgetSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    # Without a selector it selects no Pods; an empty one selects all of the namespace.
    selector: _LabelSelector | None = None


class BudgetStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    disruptionsAllowed: int = 0
    expectedPods: int = 0


@kind("policy/v1", external=True)
class PodDisruptionBudget(Resource[BudgetSpec, BudgetStatus]):
    """A PodDisruptionBudget."""


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def selector_of(budget: PodDisruptionBudget) -> LabelSelector | None:
    """None if the budget selects no Pods, or has an operator that this version does not know."""
    selector = budget.spec.selector
    if selector is None or any(
        term.operator not in _OPERATORS for term in selector.matchExpressions
    ):
        return None
    requirements: list[LabelRequirement] = [
        LabelRequirement(key, "=", (value,)) for key, value in selector.matchLabels.items()
    ]
    for term in selector.matchExpressions:
        operator: Any = _OPERATORS[term.operator]
        requirements.append(LabelRequirement(term.key, operator, tuple(term.values)))
    return LabelSelector(tuple(requirements))


def _keep_shown_fields(pod: Pod) -> Pod:
    metadata = replace(pod.metadata, annotations={}, finalizers=[])
    ready = [
        StatusCondition(type="Ready", status=condition.status)
        for condition in pod.status.conditions
        if condition.type == "Ready"
    ]
    status = replace(pod.status, podIP="", hostIP="", conditions=ready)
    spec = replace(pod.spec, serviceAccountName="")
    return replace(pod, metadata=metadata, spec=spec, status=status)


_PodSummary = select(Pod, transform=_keep_shown_fields)
# Beyond the permissions of the manager's role, which can list and watch Pods.
TOPOLOGY_PERMISSIONS = (
    Permission(PodDisruptionBudget, ("list", "watch")),
    Permission(Event, ("list",)),
)


class _OptionalReflector(Reflector[Any]):
    def describe_problem(self, error: Exception) -> str:
        problem = super().describe_problem(error)
        if isinstance(error, Forbidden):
            return f"{problem}. Grant it with the component {ROLE_COMPONENT}"
        return problem


class ClusterObjects:
    """The watched Pods and budgets. `reflectors` are runnables of the manager."""

    def __init__(
        self, client: Client, metrics: Metrics, log: Log, namespaces: Sequence[str] = ()
    ) -> None:
        """Without `namespaces`, those of the whole cluster are watched."""
        self._namespaces = tuple(namespaces)
        self.pods: Store[Pod] = Store(_PodSummary.definition, log, "pods of the topology")
        self.pods.add_index(_NODE_INDEX, lambda pod: pod.spec.nodeName)
        self.budgets: Store[PodDisruptionBudget] = Store(
            PodDisruptionBudget.definition, log, "poddisruptionbudgets.policy"
        )
        watched: Iterable[tuple[type[Object], Store[Any]]] = (
            (_PodSummary, self.pods),
            (PodDisruptionBudget, self.budgets),
        )
        self.reflectors = [
            _OptionalReflector(watched_kind, store, client, metrics, log, namespace=namespace)
            for watched_kind, store in watched
            for namespace in namespaces or ("",)
        ]

    def problems(self) -> list[str]:
        """Why Pods or budgets may be missing in what follows from them."""
        problems = sorted(
            {
                f"{reflector.kind.definition.name}s cannot be read: "
                f"{reflector.problem or 'they have not been listed yet'}"
                for reflector in self.reflectors
                if reflector.problem or not reflector.synced.is_set()
            }
        )
        if self._namespaces:
            problems.append(
                "Only Pods, PodDisruptionBudgets and VmGroups of the namespaces "
                f"{', '.join(self._namespaces)} are known (-watch-namespaces). To see all, start "
                "the manager without -watch-namespaces."
            )
        return problems

    def _pod_reflectors(self) -> list[Reflector[Any]]:
        return [reflector for reflector in self.reflectors if reflector.store is self.pods]

    async def wait_until_listed(self) -> None:
        for reflector in self._pod_reflectors():
            await reflector.synced.wait()

    def count_pods(self, node: str) -> int | None:
        """The Pods of a Node; None while they are not known."""
        is_synced = all(reflector.synced.is_set() for reflector in self._pod_reflectors())
        return len(self.pods.keys_by_index(_NODE_INDEX, node)) if is_synced else None

    def pods_of(self, node: str) -> list[Pod]:
        """The Pods of a Node, sorted by namespace and name."""
        keys = sorted(self.pods.keys_by_index(_NODE_INDEX, node))
        return [pod for key in keys if isinstance(pod := self.pods.objects.get(key), Pod)]

    def all_pods(self) -> list[Pod]:
        return [pod for pod in self.pods.objects.values() if isinstance(pod, Pod)]

    def all_budgets(self) -> list[PodDisruptionBudget]:
        return [
            budget
            for budget in self.budgets.objects.values()
            if isinstance(budget, PodDisruptionBudget)
        ]
