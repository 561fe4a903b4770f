"""Hosts, backups, permissions, sessions and managers come and go: never a VM too many.

`make test-long` runs more of the generated histories.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from support.sample import STATE_MACHINE_SETTINGS
from vsphere_operators.kinds.vmgroup.model import CloneState

from .missing_world import HOSTS, TIMEOUT_SECONDS, MissingWorld


def test_a_found_vm_is_kept_before_its_mark_is_read() -> None:
    world = MissingWorld(2)
    for _ in range(3):
        world.reconcile()
    kept = world.vms[0]
    world.back_up()
    world.scale(1)
    for _ in range(3):
        world.reconcile()
    assert world.vms == [kept]
    # The restore brings the deleted VM back, and does not show the current one.
    world.set_hidden(kept, True)
    world.restore()
    world.load()
    observed = world.reconcile().observed
    assert observed.clone_states[kept.mark.replica_name] is CloneState.MISSING
    world.delays_marks = True
    world.set_hidden(kept, False)
    observed = world.reconcile().observed
    assert observed.unread_vms == {kept.mark.replica_name}
    assert not any(record.terminating for record in world.records)
    world.read_marks()
    for _ in range(3):
        world.reconcile()
        world.advance_time(20.0)
    assert world.vms == [kept]


class MissingVmMachine(RuleBasedStateMachine):
    """Everything that is missing comes back in time; what is hidden may stay hidden."""

    world: MissingWorld

    @initialize(replicas=st.integers(1, 4))
    def create_group(self, replicas: int) -> None:
        self.world = MissingWorld(replicas)
        for _ in range(3):
            self.world.reconcile()

    @rule(times=st.integers(1, 3))
    def reconcile(self, times: int) -> None:
        for _ in range(times):
            self.world.reconcile()

    @rule(seconds=st.sampled_from([0.5, 3.0, 60.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.world.advance_time(seconds)
        self.world.reconcile()

    @rule()
    def restart_manager(self) -> None:
        self.world.start_manager()

    @rule()
    def end_session(self) -> None:
        self.world.end_session()

    @precondition(lambda self: not self.world.watching)
    @rule()
    def log_in(self) -> None:
        self.world.load()

    @rule(replicas=st.integers(1, 4))
    def scale(self, replicas: int) -> None:
        self.world.scale(replicas)

    @precondition(lambda self: self.world.vms)
    @rule(data=st.data(), change=st.sampled_from(["delete", "hide", "show"]))
    def change_vm(self, data: st.DataObject, change: str) -> None:
        vm = self.world.vms[data.draw(st.integers(0, len(self.world.vms) - 1))]
        if change == "delete":
            self.world.delete(vm)
        else:
            self.world.set_hidden(vm, change == "hide")

    @rule(host=st.sampled_from(HOSTS[1:]))
    def remove_or_add_host(self, host: str) -> None:
        if host in self.world.hosts:
            self.world.remove_host(host)
        else:
            self.world.add_host(host)

    @rule()
    def back_up(self) -> None:
        self.world.back_up()

    @rule()
    def restore(self) -> None:
        self.world.restore()

    def teardown(self) -> None:
        """Everything comes back, and the group has to recover."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for host in HOSTS:
            if host not in world.hosts:
                world.add_host(host)
        world.register_found_vms([vm for vm in world.vms if vm.missing_until])
        for vm in world.vms:
            world.set_hidden(vm, False)
        world.load()
        for _ in range(12):
            observation = world.reconcile()
            world.advance_time(TIMEOUT_SECONDS / 4)
        assert CloneState.MISSING not in observation.observed.clone_states.values()
        assert len(world.vms) == len(world.records) == world.replicas
        assert not any(record.terminating for record in world.records)


TestMissingVms = MissingVmMachine.TestCase
TestMissingVms.settings = STATE_MACHINE_SETTINGS
