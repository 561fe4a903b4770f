"""Running `manager doctor` as a person does, and reading its report."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from simulator import SimulatedVCenter

METRICS_OFF = "-metrics-addr=0"
PASSWORD = "canary-4711"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    chapter: str
    level: str
    subject: str
    words: str
    fix: str = ""


@dataclass(frozen=True)
class DoctorReport:
    """What a run said."""

    exit_code: int
    findings: list[Finding]

    def findings_about(self, subject: str) -> list[Finding]:
        return [each for each in self.findings if each.subject == subject]

    def finding_about(self, subject: str) -> Finding:
        (found,) = self.findings_about(subject)
        return found

    @property
    def problems(self) -> list[Finding]:
        return [each for each in self.findings if each.level == "problem"]


async def run_doctor(*arguments: str, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code and output of the command, which sees nothing of the environment of the tests."""
    variables = [
        f"{name}={value}" for name, value in {"HOME": "/nonexistent", **(environ or {})}.items()
    ]
    program = [
        shutil.which("env") or "env",
        "-i",
        *variables,
        sys.executable,
        "-m",
        "vsphere_operators.main",
        "doctor",
    ]
    child = await asyncio.create_subprocess_exec(
        *program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(child.communicate(), 60)
    finally:
        if child.returncode is None:
            child.kill()
    text = output.decode()
    assert PASSWORD not in text
    assert "Traceback" not in text
    return child.returncode or 0, text


async def read_doctor_report(
    *arguments: str, environ: Mapping[str, str] | None = None
) -> DoctorReport:
    """The report of a run."""
    code, text = await run_doctor("-json", *arguments, environ=environ)
    answer = json.loads(text)
    report = DoctorReport(code, [Finding(**each) for each in answer["findings"]])
    assert answer["healthy"] == (not report.problems) == (code == 0)
    return report


def vcenter_environ(vcenter: SimulatedVCenter, **other: str) -> dict[str, str]:
    """The variables that name it."""
    given = {
        "GOVMOMI_URL": vcenter.url,
        "GOVMOMI_USERNAME": vcenter.user,
        "GOVMOMI_PASSWORD": vcenter.password,
    }
    return given | {"VC_CA_FILE": str(vcenter.certificate)} | other
