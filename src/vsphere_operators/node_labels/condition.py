"""The condition VSphereHostPressure of a Node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from kubewright.builtin import Node, NodeCondition

from ..vsphere.pressure import Pressure, PressureType

HOST_PRESSURE = "VSphereHostPressure"
# A figure that moves less than this is not written again: each write of a Node is sent to every
# kubelet and to the scheduler.
_MIN_FIGURE_CHANGE = 5.0


class Reason(StrEnum):
    """Reasons of VSphereHostPressure in addition to the types of pressure, and of Events."""

    NO_PRESSURE = "NoPressure"
    """VSphereHostPressure: False, the host has enough of everything for the VM of the Node."""
    HOST_DISCONNECTED = "HostDisconnected"
    """VSphereHostPressure: Unknown, the host is disconnected from vCenter."""
    MAINTENANCE_UNKNOWN = "MaintenanceUnknown"
    """VSphereHostPressure: Unknown, vCenter does not report whether the host is in maintenance
    mode."""
    VCENTER_UNAVAILABLE = "VCenterUnavailable"
    """VSphereHostPressure: Unknown, the vCenter cannot be read. The labels are kept."""
    VM_AMBIGUOUS = "VMAmbiguous"
    """VSphereHostPressure: Unknown, several VMs match the Node. Also an Event."""
    NODE_WRITE_FORBIDDEN = "NodeWriteForbidden"
    """Event on a Node: the manager is not allowed to label it or to set the condition."""
    LABEL_CONFLICT = "LabelConflict"
    """Event on a Node: another client has set one of the labels, or the condition."""
    NODE_LABEL_LEFT = "NodeLabelLeft"
    """Event on a Node: -label-nodes is off, but the manager may not remove what is left of it."""


class ConditionState(Struct, frozen=True):
    status: str
    reason: str
    message: str
    host: str = ""
    # In percent, by type.
    figures: Mapping[PressureType, float] = {}

    def is_about_same(self, other: ConditionState) -> bool:
        """Whether the two differ only in figures that have moved a little."""
        return (self.status, self.reason, self.host) == (
            other.status,
            other.reason,
            other.host,
        ) and (
            self.figures.keys() == other.figures.keys()
            and all(
                abs(figure - other.figures[type_]) < _MIN_FIGURE_CHANGE
                for type_, figure in self.figures.items()
            )
        )


def build_state(
    host: str, pressures: Sequence[Pressure], figures: Mapping[PressureType, float]
) -> ConditionState:
    """The condition of a Node on this host. Its reason is the most urgent type of pressure."""
    if not pressures:
        # Without the host's name, so that a vMotion does not write the condition.
        message = "The host runs the VM without contention, and is not in maintenance mode."
        return ConditionState("False", Reason.NO_PRESSURE, message)
    types = [pressure.type for pressure in pressures]
    return ConditionState(
        "True",
        types[0],
        " ".join(pressure.message for pressure in pressures),
        host,
        {type_: figures[type_] for type_ in types if type_ in figures},
    )


def find_stored(node: Node) -> NodeCondition | None:
    return next(
        (condition for condition in node.status.conditions if condition.type == HOST_PRESSURE), None
    )
