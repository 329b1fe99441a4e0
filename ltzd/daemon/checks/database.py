"""Checks the database: that it answers, its durability, schema and clock, and the master key."""

import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

import asyncpg
import msgspec

from ltzd.daemon.checks import pooler_and_replica
from ltzd.daemon.settings.settings import Settings
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.rules.checks import clocks
from ltzd.rules.checks.findings import Finding, fault, ok, warning
from ltzd.store import database, doctor_facts, durability, start_facts
from ltzd.store.connection_errors import behind_pooler, lacks_privilege, reason_of, server_of
from ltzd.store.database import Connection
from ltzd.store.doctor_facts import BlockingSession
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.migrations import known_revisions
from ltzd.store.pooler import IDLE_TIMEOUT, keeps_settings
from ltzd.store.start_facts import DatabaseFacts, ServerIdentity
from ltzd.values import Address, hex_of

_REBUILDS_REVISION = "0025"
_COMMITS_HANG = fault(
    "database",
    "Commits wait for a synchronous standby that does not answer, so nothing is written: start the "
    "standby; or let commits go on without it, in psql as a superuser: ALTER SYSTEM SET "
    "synchronous_standby_names = ''; SELECT pg_reload_conf();",
)


class DatabaseExamination(msgspec.Struct):
    """`chain` is the chain that the database follows, None for a new or absent database."""

    findings: list[Finding] = msgspec.field(default_factory=list)
    chain: ChainIdentity | None = None
    has_worked: set[Address] = msgspec.field(default_factory=set)
    """The given wallets that have sent a transaction."""
    retired: dict[Address, datetime] = msgspec.field(default_factory=dict)
    """The given wallets that ltzd never signs with again, with the time of their retirement."""


async def examine(
    settings: Settings, sealer: Sealer | None, wallets: list[Address]
) -> DatabaseExamination:
    """Reads only; `sealer` is None if the master key's file is itself at fault."""
    examination = DatabaseExamination()
    url = settings.database_url.get_secret_value()
    try:
        connection = await database.connect(url, "check", settings=IDLE_TIMEOUT)
    except (Misconfigured, DatabaseUnavailable) as error:
        examination.findings.append(fault("database", error.message))
        return examination
    try:
        if not await keeps_settings(connection):
            examination.findings.append(fault("database", behind_pooler(url)))
            return examination
        await _examine(connection, examination, settings, sealer, wallets)
    except database.LOST as error:
        sentence = f"The connection to {server_of(url)} broke: {reason_of(error)}."
        examination.findings.append(fault("database", sentence))
    except asyncpg.InsufficientPrivilegeError as error:
        examination.findings.append(fault("database", lacks_privilege(error, url)))
    finally:
        connection.terminate()
    return examination


async def _examine(
    connection: Connection,
    examination: DatabaseExamination,
    settings: Settings,
    sealer: Sealer | None,
    wallets: list[Address],
) -> None:
    findings = examination.findings
    server = await start_facts.server_identity(connection)
    if not server.takes_writes:
        findings.append(_takes_no_writes(server))
    if await database.commits_hang(connection):
        findings.append(_COMMITS_HANG)
    reason = durability.fault(await durability.read(connection))
    findings.append(
        ok("durability", "Confirmed commits survive a crash of PostgreSQL.")
        if reason is None
        else fault("durability", reason)
    )
    findings += map(_holds_up, await doctor_facts.blocking_sessions(connection))
    findings += await pooler_and_replica.examine(connection, settings)
    facts = await start_facts.read(connection)
    findings.append(clocks.judge_database(time.time(), facts.now.timestamp()))
    hidden = await start_facts.hidden_tables(connection) if facts.revision is None else None
    findings.append(_schema(facts, settings) if hidden is None else fault("schema", hidden))
    if sealer is not None:
        sealed_with = await start_facts.sealing_key_ids(connection)
        findings.append(
            _foreign_key(sealed_with, sealer) or _old_key(sealed_with, sealer, settings)
        )
    if facts.revision == known_revisions()[-1]:
        findings += _sequences(await start_facts.sequences_behind(connection))
    if facts.revision is not None:
        examination.chain = await chains.identity(connection)
        if "indexer" not in settings.roles and _has_rebuilds(facts.revision):
            findings += _contracts(settings, await chains.contracts_in_use(connection))
        examination.has_worked = await start_facts.wallets_with_transactions(connection, wallets)
        examination.retired = await start_facts.retired_wallets(connection, wallets)


def _takes_no_writes(server: ServerIdentity) -> Finding:
    if server.is_standby:
        return fault(
            "database",
            "database_url leads to a standby, which takes no writes: give the primary, or name "
            "both servers and add target_session_attrs=primary.",
        )
    return fault(
        "database",
        "PostgreSQL gives ltzd's sessions default_transaction_read_only = on, so that they can "
        "write nothing: end it, and look for ALTER ROLE … SET and ALTER DATABASE … SET (\\drds in "
        "psql). A provider may set it while a disk is full.",
    )


def _holds_up(session: BlockingSession) -> Finding:
    program = session.application or "a program without a name"
    since = "" if session.seconds is None else f" for {session.seconds:.0f} s"
    does = "" if session.text is None else f" ({session.state}{since}: {session.text})"
    return warning(
        "locks",
        f"Session {session.pid} of {program}, user {session.user}{does}, holds locks for which "
        f"{session.held_up} of ltzd's sessions wait: wait for its end, or end it, in psql: "
        f"SELECT pg_terminate_backend({session.pid});",
    )


def _schema(facts: DatabaseFacts, settings: Settings) -> Finding:
    known = known_revisions()
    if facts.revision == known[-1]:
        if "indexer" in settings.roles and not facts.may_create_tables:
            return fault("schema", f"The indexer makes new partitions. {_grants(facts)}")
        return ok("schema", f"The schema has this version's revision, {known[-1]}.")
    if facts.revision is not None and facts.revision not in known:
        return fault(
            "schema",
            f"The database has schema revision {facts.revision}, which this ltzd does not know; "
            "run the newer ltzd that made it, or use another database.",
        )
    if not (facts.may_create_tables and facts.may_create_schemas):
        return fault("schema", _grants(facts))
    if not facts.owns_tables:
        return fault(
            "schema",
            f"The user {facts.user} may not change the tables of database {facts.name}: start ltzd "
            "once, or run `ltzd migrate`, as the user that owns them.",
        )
    at = "no schema yet" if facts.revision is None else f"the older revision {facts.revision}"
    return ok("schema", f"The database has {at}: the start brings it to {known[-1]}.")


def _sequences(behind: Mapping[str, int]) -> list[Finding]:
    """A copy of the tables without their sequences, as logical replication makes it.

    Lanes and relays could write no row, and processes would miss changes of brands.
    """
    if not behind:
        return []
    statements = " ".join(f"SELECT setval('{name}', {number});" for name, number in behind.items())
    return [
        fault(
            "schema",
            f"The sequences {', '.join(behind)} are behind the rows of their tables, as after a "
            "logical replication, which copies no sequence: stop every process of ltzd, and run "
            f"as the tables' owner in psql: {statements}",
        )
    ]


def _has_rebuilds(revision: str) -> bool:
    """Whether the schema has the table of rebuilds, as far as this version knows the revision."""
    return revision in known_revisions() and revision >= _REBUILDS_REVISION


def _contracts(settings: Settings, in_use: Sequence[Sequence[Address]]) -> list[Finding]:
    """Compare `[contracts]` with the index, which a process without an indexer cannot change."""
    addresses = settings.contracts.addresses()
    if not in_use or any(set(addresses.values()) <= set(contracts) for contracts in in_use):
        return []
    indexed = {address for contracts in in_use for address in contracts}
    others = [
        f"contracts.{setting} {hex_of(address)}"
        for setting, address in addresses.items()
        if address not in indexed
    ]
    return [
        fault(
            "contracts",
            f"The index does not hold the facts of {' and '.join(others or addresses)}: give all "
            "processes the same [contracts]. If the contracts have changed, start the process "
            "with the role indexer first, which rebuilds the index for them.",
        )
    ]


def _grants(facts: DatabaseFacts) -> str:
    """PostgreSQL 15 and later let only the database's owner create tables in `public`."""
    user, name, schema = (_quoted(text) for text in (facts.user, facts.name, facts.schema or ""))
    statements = []
    if not facts.may_create_schemas:
        statements.append(f"GRANT CREATE ON DATABASE {name} TO {user};")
    if facts.schema is None:
        statements.append(f"CREATE SCHEMA {user} AUTHORIZATION {user};")
    elif not facts.may_create_tables:
        statements.append(f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {user};")
    return (
        f"The user {facts.user} may not create ltzd's schema in the database {facts.name}. Run "
        f"there as its owner or a superuser: {' '.join(statements)}"
    )


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


async def require_master_key(connection: Connection, sealer: Sealer) -> None:
    """Raises Misconfigured if the sealer does not open what the database holds.

    A command that seals calls this first: what a wrong key seals, no other process can open.
    """
    finding = _foreign_key(await start_facts.sealing_key_ids(connection), sealer)
    if finding is not None:
        raise Misconfigured(finding.sentence)


def _foreign_key(sealed_with: set[str], sealer: Sealer) -> Finding | None:
    foreign = sorted(sealed_with - sealer.key_ids)
    if not foreign:
        return None
    return fault(
        "master_key",
        f"master_key_file does not decrypt this database's rows, which were sealed with master "
        f"key {', '.join(foreign)} (this file's is {sealer.key_id}): give the file of that "
        "key, or add its file to old_master_key_files.",
    )


def _old_key(sealed_with: set[str], sealer: Sealer, settings: Settings) -> Finding:
    if not sealed_with - {sealer.key_id}:
        return ok("master_key", "The master key decrypts the rows of the database.")
    key_file = shlex.quote(str(settings.master_key_file))
    return warning(
        "master_key",
        "Some rows are sealed with an old master key: run "
        f"`ltzd wallets rotate-master-key --new-key-file {key_file}` before you take its file out "
        "of old_master_key_files.",
    )
