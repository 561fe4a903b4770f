"""Calls of `plan` with names that are known before."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from vsphere_operators.kinds.vmgroup.model import (
    DesiredState,
    ObservedState,
    Plan,
)
from vsphere_operators.kinds.vmgroup.plan import plan


def make_name_generator() -> Callable[[], str]:
    serial = count(100)
    return lambda: f"r{next(serial)}"


def make_plan(desired: DesiredState, observed: ObservedState) -> Plan:
    return plan(desired, observed, make_name_generator())


def terminating_names(new_plan: Plan) -> set[str]:
    assert new_plan.write_status_first
    assert new_plan.actions == ()
    return {record.name for record in new_plan.records if record.terminating}
