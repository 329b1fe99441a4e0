"""`ltzd migrate`: upgrades the schema, or shows the upgrade that is missing."""

import asyncio
from typing import Any

from ltzd import __version__
from ltzd.cli.output import logged_to_stderr, print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import Misconfigured
from ltzd.store import background_migrations, processes, schema_revisions
from ltzd.store.background_migrations import BackgroundMigration, BackgroundMigrations
from ltzd.store.indexer import chains
from ltzd.store.migrations import describe_revision, known_revisions
from ltzd.store.operator import leases
from ltzd.store.operator.leases import indexer_lease
from ltzd.store.schema_revisions import Schema


def migrate(target: Target, *, converts: bool, as_json: bool) -> None:
    """Upgrade the schema; with `converts` also convert large tables, however long it takes.

    Raises Misconfigured, also before a conversion beside an indexer of another version, and
    DatabaseUnavailable.
    """
    before = asyncio.run(schema_revisions.read_schema(target.database_url))
    with logged_to_stderr():
        asyncio.run(schema_revisions.migrate(target.database_url, in_child=True))
        if converts and asyncio.run(_unconverted(target)):
            asyncio.run(_require_no_other_indexer(target))
            asyncio.run(BackgroundMigrations(target.database_url, lambda: True).run())
    left = asyncio.run(_unconverted(target))
    if as_json:
        print_json(_as_json(before, left, applied=True))
        return
    count = len(before.pending)
    print_message(
        f"The schema has revision {known_revisions()[-1]}; {count} "
        f"{'revision was' if count == 1 else 'revisions were'} new."
    )
    _print_unconverted(left)


def preview(target: Target, *, as_json: bool) -> None:
    """Print the revisions that the database lacks, and change nothing.

    Raises Misconfigured and DatabaseUnavailable.
    """
    schema = asyncio.run(schema_revisions.read_schema(target.database_url))
    left = [] if schema.revision is None else asyncio.run(_unconverted(target))
    if as_json:
        print_json(_as_json(schema, left, applied=False))
        return
    print_message(_heading(schema))
    for revision in schema.pending:
        print(f"{revision}  {describe_revision(revision)}", flush=True)
    _print_unconverted(left)


async def _unconverted(target: Target) -> list[BackgroundMigration]:
    async with open_connection(target, "migrate") as connection:
        if await connection.fetchval("SELECT to_regclass('background_migrations')") is None:
            return []
        return list(await background_migrations.list_pending(connection))


async def _require_no_other_indexer(target: Target) -> None:
    """Raises Misconfigured if an indexer of another version holds the lease.

    An earlier version does not know the layout of the converted tables.
    """
    async with open_connection(target, "migrate") as connection:
        chain = await chains.identity(connection)
        name = None if chain is None else indexer_lease(chain.chain_id)
        holders = {
            lease.process
            for lease in await leases.list_all(connection)
            if lease.is_held and lease.name == name
        }
        rows = await processes.list_all(connection)
    # Containers may share a name, and keep it: of several indexers of a name, the last one runs.
    versions = {
        row.identity.name: row.identity.version for row in rows if "indexer" in row.identity.roles
    }
    for holder in sorted(holders):
        if versions.get(holder) == __version__:
            continue
        raise Misconfigured(
            f"The process {holder} indexes this database with another version of ltzd, which may "
            "not know the converted tables: stop it, or replace it by this version, and run the "
            "command again. The schema is upgraded, and no table was converted."
        )


def _heading(schema: Schema) -> str:
    newest = known_revisions()[-1]
    if not schema.pending:
        return f"The schema has revision {newest} of this version: nothing would change."
    if schema.revision is None:
        return f"The database has no schema: `ltzd migrate` would make revision {newest}:"
    return (
        f"The schema has revision {schema.revision}, this version's is {newest}. `ltzd migrate` "
        "would run:"
    )


def _print_unconverted(left: list[BackgroundMigration]) -> None:
    if left:
        tables = ", ".join(sorted({migration.table for migration in left}))
        print_message(
            f"A running indexer converts these tables in the background: {tables}. "
            "`ltzd migrate --complete` converts them now."
        )


def _as_json(schema: Schema, left: list[BackgroundMigration], *, applied: bool) -> dict[str, Any]:
    return {
        "revision": known_revisions()[-1] if applied else schema.revision,
        "newest": known_revisions()[-1],
        "applied": applied,
        "revisions": [
            {"revision": revision, "meaning": describe_revision(revision)}
            for revision in schema.pending
        ],
        "unconvertedTables": sorted({migration.table for migration in left}),
    }
