"""The values that a reconcile returns; `errors.py` has those that it raises."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Done:
    """The object is as desired: Ready becomes True, with this reason and message."""

    reason: str = "Reconciled"
    message: str = ""
    requeue_after_seconds: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Waiting:
    """The object is not ready yet because work is in progress: Ready becomes False.

    This is normal progress, not a fault, so no warning Event is recorded. Without
    `requeue_after_seconds`, the next reconcile is left to a watch.

    With `write_status_first` the reconcile has put into the status what it is about to do. The
    engine stores that status and reconciles the object again immediately. The action is then sent
    by a reconcile that has read the record, so a crash in between cannot lose track of it.
    """

    reason: str
    message: str
    requeue_after_seconds: float | None = field(default=None, kw_only=True)
    write_status_first: bool = field(default=False, kw_only=True)
