"""Examines a running installation beyond the checks of a start; changes nothing.

Each part reads facts and lets `rules/checks/advice.py` judge them. A part that cannot read its
facts says so in a warning, and the others go on.
"""

import asyncio
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import asyncpg

from ltzd import __version__
from ltzd.chain.contracts import ltz
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.chain.pool.pool import NodePool
from ltzd.daemon.certificates import Certificates
from ltzd.daemon.checks.brands import active_brands
from ltzd.daemon.settings.settings import Settings
from ltzd.errors import DatabaseUnavailable, Misconfigured, NodeUnavailable
from ltzd.rules.checks import advice
from ltzd.rules.checks.advice import WalletMintLimit
from ltzd.rules.checks.findings import Finding, ok, warning
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.rules.relayer import gas_budgets
from ltzd.store import database, doctor_facts, processes
from ltzd.store.connection_errors import lacks_privilege, reason_of
from ltzd.store.database import Connection
from ltzd.store.indexer import chains
from ltzd.store.operator import wallets
from ltzd.store.operator.wallets import WalletState
from ltzd.values import LTZ, checksummed

_SERVICE_SECONDS = 5.0


async def examine(settings: Settings) -> list[Finding]:
    """The findings beside those of `installation.examine`."""
    findings = [*_secret_folders(settings), *_budgets(settings), *_providers(settings)]
    findings += _certificates(settings)
    findings += [finding async for finding in _services(settings)]
    try:
        connection = await database.connect(settings.database_url.get_secret_value(), "doctor")
    except (Misconfigured, DatabaseUnavailable):
        return findings  # `installation` has said it.
    try:
        findings += await _database(connection, settings)
    except (*database.LOST, asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError) as error:
        sentence = f"The database could not be examined: {reason_of(error)}. Run `ltzd migrate`."
        findings.append(warning("database", sentence))
    except asyncpg.InsufficientPrivilegeError as error:
        url = settings.database_url.get_secret_value()
        findings.append(warning("database", lacks_privilege(error, url)))
    finally:
        connection.terminate()
    return findings


async def _database(connection: Connection, settings: Settings) -> list[Finding]:
    archive = await doctor_facts.archive(connection)
    findings = [
        advice.on_backups(
            archives=archive.archives,
            seconds_since_archived=archive.seconds_since_archived,
            has_failed=archive.has_failed_since,
            standbys=archive.standbys,
        )
    ]
    server = await doctor_facts.server(connection)
    findings.append(advice.on_postgresql(server.version, server.version_text))
    findings += _disks(server.data_directory)
    findings += await _processes(connection)
    findings += await _statements(connection)
    brands = await active_brands(connection)
    findings += advice.on_brands(brands)
    limits = await _mint_limits(connection, settings)
    findings += advice.on_mint_limits(
        limits, {each.name: each.daily_mint_budget for each in brands}
    )
    return findings


async def _processes(connection: Connection) -> list[Finding]:
    """Versions, and each condition that a running process reports.

    `ltzd status` tells of a process that no longer reports.
    """
    within = ConditionPolicy().missing_after_seconds
    rows = [row for row in await processes.list_all(connection) if row.seen_seconds <= within]
    if not rows:
        return [warning("processes", "No process of ltzd reports itself: start `ltzd run`.")]
    versions = {row.identity.name: row.identity.version for row in rows}
    return [
        advice.on_versions(__version__, versions),
        *(
            warning("processes", f"{row.identity.name}: {condition.sentence}")
            for row in rows
            for condition in row.report.conditions
        ),
    ]


async def _statements(connection: Connection) -> list[Finding]:
    slow = await doctor_facts.slow_statements(connection)
    if not slow:
        return [ok("statements", "No statement of ltzd lasts longer than 10 s.")]
    return [
        warning(
            "statements",
            f"A session of {each.application} is {each.state} for {each.seconds:.0f} s"
            f"{' and waits for a lock' if each.wait == 'Lock' else ''} ({each.text}): the line "
            "`locks` names the session that holds its lock, and pg_stat_activity what else it "
            "waits for.",
        )
        for each in slow
    ]


async def _mint_limits(connection: Connection, settings: Settings) -> list[WalletMintLimit]:
    """The limits of the wallets that mint; empty while no node answers."""
    chain = await chains.identity(connection)
    if chain is None:
        return []
    rows = await wallets.list_wallets(connection, chain.chain_id)
    limits: list[WalletMintLimit] = []
    async with NodePool(settings.node.plain_urls()) as pool:
        node = Node(pool.client("http"))
        for row in rows:
            if row.kind != "mint" or row.state is not WalletState.ACTIVE:
                continue
            try:
                async with asyncio.timeout(_SERVICE_SECONDS):
                    (answer,) = await node.views([(chain.ltz, ltz.mint_limit_call(row.wallet))])
                capacity, window, _ = ltz.decode_mint_limit(answer)
            except (NodeUnavailable, RpcError, ValueError, TimeoutError):
                return []
            limits.append(WalletMintLimit(checksummed(row.wallet), capacity // LTZ, window))
    return limits


def _secret_folders(settings: Settings) -> Iterator[Finding]:
    """Folders of secret files in which others may exchange a file; the files were checked."""
    files: list[Path | None] = [settings.master_key_file, *settings.old_master_key_files]
    for wallet in settings.operator.named_wallets():
        files += [wallet.signer.key_file, wallet.signer.password_file]
    folders = {file.absolute().parent for file in files if file is not None}
    is_open = False
    for folder in sorted(folders):
        mode = folder.stat().st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
            is_open = True
            yield warning(
                "secret_files",
                f"Others can exchange the files in {folder}: run `chmod go-w {folder}`.",
            )
    if not is_open:
        yield ok("secret_files", "Only their owner can read or exchange the files of secrets.")


def _budgets(settings: Settings) -> Iterator[Finding]:
    budgets = settings.relay.budgets()
    sentences = gas_budgets.warnings_of(budgets, settings.operator.max_fee_wei)
    for sentence in sentences:
        yield warning("gas_budgets", f"{sentence} Set it in [relay].")
    if not sentences:
        yield ok("gas_budgets", "Relays have a daily gas budget.")


def _providers(settings: Settings) -> Iterator[Finding]:
    unchecked = settings.accounts.unchecked_providers()
    if unchecked:
        yield warning(
            "accounts",
            f"Accounts at {', '.join(unchecked)} are not looked up, so that only the form of "
            "their ids is checked: give the providers' credentials in [accounts].",
        )
    if settings.payments is None:
        yield ok("payments", "No LTZ are sold: there is no section [payments].")


def _certificates(settings: Settings) -> Iterator[Finding]:
    try:
        loaded = Certificates.of(settings)
    except Misconfigured:
        return  # `installation` has said it.
    for certificate in (loaded.public, loaded.admin):
        if certificate is not None:
            left = (certificate.expires_at - datetime.now(UTC)).total_seconds()
            yield advice.on_certificate(certificate.server, left)


def _disks(data_directory: str | None) -> Iterator[Finding]:
    """The disk of the working directory, and the database's if it is on this machine."""
    places = {"the working directory": "."}
    if data_directory is not None:
        places["the database"] = data_directory
    for name, path in places.items():
        with suppress(OSError):  # elsewhere, or in a folder that only its owner may enter
            usage = shutil.disk_usage(path)
            yield advice.on_disk(name, usage.free, usage.total)


async def _services(settings: Settings) -> AsyncIterator[Finding]:
    """Whether the outside services answer at all; no credential is sent."""
    urls: dict[str, str] = settings.identity.urls()
    if settings.payments is not None:
        urls["payments.base_url"] = settings.payments.base_url
    timeout = aiohttp.ClientTimeout(total=_SERVICE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        answers = await asyncio.gather(*(_answers(session, url) for url in urls.values()))
    for name, url, fault in zip(urls, urls.values(), answers, strict=True):
        if fault is None:
            yield ok("services", f"{name} answers.")
        else:
            yield warning("services", f"{name}, {url}, does not answer: {fault}.")


async def _answers(session: aiohttp.ClientSession, url: str) -> str | None:
    """Why the server of a URL does not answer, or None."""
    try:
        async with session.get(url, allow_redirects=False):
            return None
    except TimeoutError:
        return f"no answer within {_SERVICE_SECONDS:g} s"
    except aiohttp.ClientConnectorError as error:
        return reason_of(error.os_error)
    except (aiohttp.ClientError, OSError):
        return "the connection broke"
