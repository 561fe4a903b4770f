"""Runs `manager doctor` as a user does, and reads its report."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator import SimulatedVCenter
from support.manager_process import ManagerProcess

METRICS_OFF = "-metrics-addr=0"
PASSWORD = "canary-4711"


@dataclass(frozen=True)
class Finding:
    section: str
    level: str
    subject: str
    message: str
    fix: str = ""


@dataclass(frozen=True)
class DoctorReport:
    exit_code: int
    findings: list[Finding]

    def findings_about(self, subject: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.subject == subject]

    def finding_about(self, subject: str) -> Finding:
        (finding,) = self.findings_about(subject)
        return finding

    @property
    def permissions(self) -> list[Finding]:
        return self.findings_about("rights")

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "problem"]


async def run_doctor(
    *arguments: str, environ: Mapping[str, str] | None = None, new_interpreter: bool = False
) -> tuple[int, str]:
    """Exit code and output of the command, without the environment of the tests.

    As a `ManagerProcess`, it is forked from a process that has imported the manager.
    """
    variables = {"HOME": "/nonexistent", **(environ or {})}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output")
        doctor = ManagerProcess(
            output, "doctor", *arguments, environ=variables, new_interpreter=new_interpreter
        )
        try:
            doctor.start()
            code = await doctor.wait_for_exit()
        finally:
            await doctor.kill()
        text = await asyncio.to_thread(output.read_text)
    assert PASSWORD not in text
    assert "Traceback" not in text
    return code, text


async def read_doctor_report(
    *arguments: str, environ: Mapping[str, str] | None = None
) -> DoctorReport:
    code, text = await run_doctor("-json", *arguments, environ=environ)
    answer = json.loads(text)
    report = DoctorReport(code, [parse_finding(entry) for entry in answer["findings"]])
    assert answer["healthy"] == (not report.problems) == (code == 0)
    return report


def parse_finding(entry: Mapping[str, str]) -> Finding:
    return Finding(
        entry["chapter"], entry["level"], entry["subject"], entry["words"], entry.get("fix", "")
    )


def vcenter_environ(vcenter: SimulatedVCenter, **other: str) -> dict[str, str]:
    """The manager's variables for this vCenter."""
    login = {
        "GOVMOMI_URL": vcenter.url,
        "GOVMOMI_USERNAME": vcenter.user,
        "GOVMOMI_PASSWORD": vcenter.password,
    }
    return login | {"VC_CA_FILE": str(vcenter.certificate)} | other
