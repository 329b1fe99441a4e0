"""The checks that `ltzd run` makes before it starts; `ltzd check` prints the same list.

Nothing is changed: no schema is made, no row is written, no transaction is sent.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import msgspec
import structlog

from ltzd.daemon.certificates import Certificates
from ltzd.daemon.checks import chain, database, redis
from ltzd.daemon.checks.chain import ChainPolicy
from ltzd.daemon.operator import try_wallets
from ltzd.daemon.settings.settings import Settings
from ltzd.errors import FileRejected, Misconfigured
from ltzd.operator.fleet.fleet import SettingsWallet
from ltzd.rules.checks.findings import Finding, fault, faults_in, ok, warnings_in
from ltzd.store.encryption.sealing import Sealer

log = structlog.get_logger()

DEFAULT_CHAIN_POLICY = ChainPolicy()


class Examination(msgspec.Struct, frozen=True):
    """The findings in the order of the checks, and the wallets of the settings that opened."""

    findings: Sequence[Finding]
    wallets: Sequence[SettingsWallet]


async def examine(
    settings: Settings, stack: AsyncExitStack, policy: ChainPolicy = DEFAULT_CHAIN_POLICY
) -> Examination:
    """Make all checks. `stack` closes the wallets' signers."""
    findings = list(_local(settings))
    sealer: Sealer | None = None
    try:
        sealer = Sealer.from_file(settings.master_key_file, *settings.old_master_key_files)
    except Misconfigured as error:
        findings.append(fault("master_key", error.message))
    wallets: list[SettingsWallet] = []
    if "operator" in settings.roles:
        wallets, faults = await try_wallets(settings.operator, stack)
        findings += [fault("wallets", sentence) for sentence in faults]
        if not faults:
            findings.append(ok("wallets", f"{len(wallets)} wallets of the settings can sign."))
    addresses = [wallet.address for wallet in wallets if wallet.address is not None]
    examination = await database.examine(settings, sealer, addresses)
    findings += examination.findings
    findings += await chain.examine(settings, examination, wallets, policy)
    findings += await redis.examine(settings)
    return Examination(findings, wallets)


async def require_at_start(settings: Settings, stack: AsyncExitStack) -> Sequence[SettingsWallet]:
    """Make all checks, log the warnings, and return the wallets that were opened.

    Raises Misconfigured with the fault, and FileRejected with all faults if there are several.
    """
    examination = await examine(settings, stack)
    for finding in warnings_in(examination.findings):
        log.warning("start.warning", check=finding.check, reason=finding.sentence)
    faults = faults_in(examination.findings)
    if len(faults) == 1:
        raise Misconfigured(faults[0])
    if faults:
        raise FileRejected(faults)
    return examination.wallets


def _local(settings: Settings) -> Sequence[Finding]:
    """The checks that need only this machine."""
    findings = []
    try:
        settings.refuse_dev_providers()
    except FileRejected as error:
        findings += [fault("services", sentence) for sentence in error.faults]
    try:
        Certificates.of(settings)
    except Misconfigured as error:
        findings.append(fault("certificates", error.message))
    return findings or [ok("settings", "The settings are complete.")]
