"""What a soak of replicas with shards has found, and how long the hand-overs took."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class HandOver:
    """An event, and how long it took until the running replicas held all shards in equal shares."""

    reason: str
    seconds: float
    limit: float

    @property
    def is_late(self) -> bool:
        return self.seconds > self.limit


@dataclass
class SoakResult:
    hand_overs: list[HandOver] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unexpected_exits: list[str] = field(default_factory=list)
    # Replicas that exited because the API server did not respond for 10 s, on a busy machine.
    exits_without_api: int = 0
    checked_writes: int = 0
    lease_changes: int = 0

    def print_summary(self) -> bool:
        print(
            f"{self.checked_writes} status writes checked against {self.lease_changes} changes of "
            f"Leases: {len(self.violations)} by a replica without the Lease, {len(self.lost)} lost"
        )
        for reason in sorted({entry.reason for entry in self.hand_overs}):
            entries = [entry for entry in self.hand_overs if entry.reason == reason]
            seconds = sorted(entry.seconds for entry in entries)
            late = sum(entry.is_late for entry in entries)
            print(
                f"{reason:12} {len(seconds):4} times, median {seconds[len(seconds) // 2]:5.2f} s, "
                f"longest {seconds[-1]:5.2f} s, limit {entries[0].limit:g} s, {late} late"
            )
        if self.exits_without_api:
            print(f"{self.exits_without_api} replicas exited: the API server did not respond")
        for line in (*self.violations[:10], *self.lost[:10], *self.unexpected_exits):
            print(line)
        return not (self.violations or self.lost or self.unexpected_exits)
