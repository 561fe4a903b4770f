"""Backups of a database: one Job per interval, of which the last ones are kept.

The name of a Job has the time for which it is due. After a crash the next reconcile finds the Job,
and no backup is started twice. A backup that takes longer than the interval delays the next one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from kubewright import (
    Column,
    Controller,
    Doc,
    Done,
    ObjectMeta,
    Resource,
    Spec,
    Status,
    kind,
)
from kubewright.api import core_v1 as core
from kubewright.api.batch_v1 import Job, JobSpec


class BackupSpec(Spec):
    image: Annotated[str, Doc("Image with the backup command.")]
    command: Annotated[list[str], Doc("The backup command.", min_length=1)]
    credentialsSecret: Annotated[str, Doc("Secret that becomes the environment.")]
    intervalSeconds: Annotated[int, Doc("Time between two backups.", ge=1)] = 86400
    keep: Annotated[int, Doc("Number of ended Jobs to keep.", ge=1)] = 3


class BackupStatus(Status):
    lastSuccess: Annotated[datetime | None, Doc("When a backup last succeeded.")] = None
    running: Annotated[str | None, Doc("The Job that runs now.")] = None


@kind("examples.kubewright.dev/v1", columns=[Column("Last", ".status.lastSuccess")])
class Backup(Resource[BackupSpec, BackupStatus]):
    """Backups of one database."""


class BackupController(Controller[Backup]):
    def __init__(self) -> None:
        self.owns(Job)

    async def reconcile(self, backup: Backup) -> Done:
        interval, now = backup.spec.intervalSeconds, datetime.now(UTC)
        due = int(now.timestamp()) // interval * interval
        jobs = sorted(self.children_of(backup, Job), key=lambda job: job.metadata.name)
        ended = [job for job in jobs if end_of(job) is not None]
        running = next((job for job in jobs if job not in ended), None)
        new = build_job(backup, due)
        if running is None and new.metadata.name not in [job.metadata.name for job in jobs]:
            await self.apply(backup, new, prune=False)
            running = new
        for job in ended[: -backup.spec.keep]:
            await self.client.delete(Job, job.key, uid=job.metadata.uid)
        successes = [job.status.completionTime for job in ended if job.status.completionTime]
        backup.status = BackupStatus(
            lastSuccess=max(successes, default=backup.status.lastSuccess),
            running=running.metadata.name if running is not None else None,
        )
        # The end of a Job reconciles its Backup; this is for the next one.
        return Done(requeue_after_seconds=due + interval - now.timestamp())


def end_of(job: Job) -> datetime | None:
    """When the Job succeeded or failed."""
    for condition in job.status.conditions:
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            return condition.lastTransitionTime
    return None


def build_job(backup: Backup, due: int) -> Job:
    credentials = core.SecretEnvSource(name=backup.spec.credentialsSecret)
    container = core.Container(
        name="backup",
        image=backup.spec.image,
        command=backup.spec.command,
        envFrom=[core.EnvFromSource(secretRef=credentials)],
    )
    pod = core.PodSpec(restartPolicy="Never", containers=[container])
    return Job(
        metadata=ObjectMeta(name=f"{backup.metadata.name}-{due}"),
        spec=JobSpec(backoffLimit=2, template=core.PodTemplateSpec(spec=pod)),
    )
