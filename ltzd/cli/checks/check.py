"""`ltzd check`: makes the checks of a start without the start, and asks brands' sites.

`ltzd doctor` makes all checks.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import typer

from ltzd.cli.checks.views import has_fault, print_findings
from ltzd.cli.output import only_errors_logged
from ltzd.daemon.checks import doctor, installation, sites
from ltzd.daemon.settings.settings import Settings, read_settings
from ltzd.errors import FileRejected, Misconfigured
from ltzd.rules.checks.findings import Finding, fault


def check(config: Path, roles: str | None, *, as_json: bool, also_running: bool = False) -> None:
    """Print the findings of the start's checks; exit with 1 on a fault.

    With `also_running` the findings of the doctor are added.
    """
    with only_errors_logged():
        settings = settings_or_faults(config, roles)
        findings = (
            asyncio.run(_findings(settings, also_running=also_running))
            if isinstance(settings, Settings)
            else settings
        )
    print_findings(findings, as_json=as_json)
    if has_fault(findings):
        raise typer.Exit(1)


def settings_or_faults(config: Path, roles: str | None) -> Settings | Sequence[Finding]:
    """The settings, or a finding for each fault of the file and the variables."""
    try:
        return read_settings(config, roles)
    except FileRejected as error:
        return [fault("settings", sentence) for sentence in error.faults]
    except Misconfigured as error:
        return [fault("settings", error.message)]


async def _findings(settings: Settings, *, also_running: bool) -> Sequence[Finding]:
    async with AsyncExitStack() as stack:
        findings = (await installation.examine(settings, stack)).findings
    findings = [*findings, *await sites.examine(settings)]
    return [*findings, *await doctor.examine(settings)] if also_running else findings
