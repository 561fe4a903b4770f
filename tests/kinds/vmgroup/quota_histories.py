"""Random histories of several groups that share a quota: what exists never exceeds it.

`make quota-histories` runs 10,000 of them.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from .quota_simulation import QUOTA, History


def run_event(history: History) -> bool:
    """One random event; returns whether a user made VMs outside of the manager."""
    chance = history.random
    uids = sorted(history.stored)
    uid = chance.choice(uids) if uids else ""
    match chance.randint(0, 99):
        case roll if roll < 4 and len(uids) < 4:
            history.create_group()
        case roll if roll < 45 and uid:
            if uid in history.writes and chance.random() < 0.6:
                history.answer_write(uid, "stored")
            history.step(uid)
        case roll if roll < 60 and history.writes:
            outcome = chance.choice(["stored", "stored", "stored", "unanswered", "lost"])
            history.answer_write(chance.choice(sorted(history.writes)), outcome)
        case roll if roll < 64 and uid:
            history.refresh(uid)
        case roll if roll < 78:
            history.advance_time(chance.choice([0.5, 1.0, 3.0, 12.0]))
        case roll if roll < 88 and uid:
            history.edit_some_fields(uid)
        case roll if roll < 90 and uid:
            policy = chance.choice(["Destroy", "Orphan"])
            history.edit_spec(uid, deleting=True, deletion_policy=policy)
        case 90 if uid and history.is_known_to_manager(uid):
            history.wipe_group(uid)
        case roll if roll < 93 and not history.is_any_task_without_group():
            history.restart_manager()
        case roll if roll < 95:
            # The session ended, and the inventory was loaded again.
            history.watching_since = history.now
        case roll if roll < 97 and history.vms:
            vm = history.vms[chance.choice(sorted(history.vms))]
            vm.power = chance.choice(["suspended", "poweredOff", "poweredOn"])
        case 97 if history.vms:
            history.destroyed.append(history.vms.pop(chance.choice(sorted(history.vms))))
        case 98 if history.destroyed:
            # vCenter was restored from a backup: VMs that were destroyed are back.
            vm = history.destroyed.pop()
            names = {other.record.name for other in history.vms.values()}
            if vm.record.name not in names:
                history.vms[vm.ref] = vm
                return True
    return False


def run_history(seed: int, events: int = 250) -> History:
    """One history; raises AssertionError if the quota is exceeded, or a group does not recover."""
    history = History(random.Random(seed))
    history.create_group()
    for number in range(events):
        before = history.measure()
        made_by_user = run_event(history)
        after, allowed = history.measure(), before
        # Above the quota, as after a restore, nothing may be added either.
        limits = {name: getattr(QUOTA, name) or 0 for name in QUOTA.__struct_fields__}
        exceeded = {
            name: getattr(after, name)
            for name, limit in limits.items()
            if getattr(after, name) > max(limit, getattr(allowed, name)) and not made_by_user
        }
        assert not exceeded, f"seed {seed}, event {number}: {exceeded} exceed {limits}"
    recover(history, seed)
    return history


def recover(history: History, seed: int) -> None:
    """All faults end, and users request what fits: every group has to get it."""
    history.advance_time(60)
    history.restart_manager()
    for uid, group in list(history.stored.items()):
        size = {} if group.desired.deleting else {"replicas": 1, "cpus": 1, "memory_mb": 1024}
        history.edit_spec(uid, paused=False, **size)
        history.refresh(uid)
    phases: dict[str, str] = {}
    for _ in range(400):
        for uid in list(history.cached):
            if uid in history.writes:
                history.answer_write(uid, "stored")
            new_plan = history.step(uid, faults=False)
            if new_plan is not None:
                phases[uid] = f"{new_plan.phase} {new_plan.message}"
        # Users delete the VMs of groups that no longer exist.
        for ref in [ref for ref, vm in history.vms.items() if vm.uid not in history.stored]:
            del history.vms[ref]
        history.advance_time(1.0)
        if all(phases.get(uid, "").startswith("RUNNING") for uid in history.stored):
            return
    raise AssertionError(f"seed {seed}: { ({uid: phases.get(uid) for uid in history.stored}) }")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args(arguments)
    started_at, growing_calls = time.monotonic(), 0
    for seed in range(options.first_seed, options.first_seed + options.histories):
        growing_calls += run_history(seed).grown
    print(
        f"{options.histories} histories, {growing_calls} clones and resizes: the quota was never "
        f"exceeded, and every group recovered ({time.monotonic() - started_at:.0f} s)"
    )


if __name__ == "__main__":
    main()
