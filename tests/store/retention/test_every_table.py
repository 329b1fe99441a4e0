"""docs/runbooks/personal-data.md says of every table how long rows are kept, or why for ever."""

import re
from pathlib import Path

from ltzd.store.database import Pool, session
from ltzd.store.retention import dossier

PAGE = Path(__file__).parents[3] / "docs/runbooks/personal-data.md"
ROW = re.compile(r"^\| `(\w+)` \| (bounded|rule|grows|chain): (.+) \|$", re.MULTILINE)
PARTITION = re.compile(r"_(from_\d+|default)$")


async def test_every_table_is_bounded_or_has_a_rule_or_a_reason(pool: Pool) -> None:
    listed = [name for name, *_ in ROW.findall(PAGE.read_text())]
    async with session(pool) as connection:
        rows = await connection.fetch(
            """
            SELECT table_name
              FROM information_schema.tables
             WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
            """
        )
    tables = {row[0] for row in rows if not PARTITION.search(row[0])}
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == tables, "add the table to the page: is it bounded, or what deletes rows?"


NOT_OF_USERS = {
    *("lanes", "operator_wallets", "transactions", "leases", "books_acknowledgements"),
    "relay_users",  # a counter
    "webhooks",  # of events and rewards, which are exported
    "custodial_users",  # the sealed keys, and wallets that are exported
}


async def test_every_table_about_a_user_is_exported(pool: Pool) -> None:
    """The chain's tables are left out: everybody can read them there."""
    chain = {name for name, kind, _ in ROW.findall(PAGE.read_text()) if kind == "chain"}
    async with session(pool) as connection:
        rows = await connection.fetch(
            """
            SELECT DISTINCT table_name
              FROM information_schema.columns c
              JOIN information_schema.tables t USING (table_schema, table_name)
             WHERE table_schema = 'public' AND t.table_type = 'BASE TABLE'
               AND column_name ~ 'wallet|user_|holder|subject|person|email|identity'
               AND column_name NOT LIKE '%per_user'
            """
        )
    tables = {row[0] for row in rows if not PARTITION.search(row[0])}
    assert tables - chain - NOT_OF_USERS <= set(dossier.STATEMENTS)


async def test_every_column_of_addresses_is_erased(pool: Pool) -> None:
    """A new column of addresses needs a place in erasure.py and in this list."""
    async with session(pool) as connection:
        rows = await connection.fetch(
            """
            SELECT table_name, column_name
              FROM information_schema.columns c
              JOIN information_schema.tables t USING (table_schema, table_name)
             WHERE table_schema = 'public' AND t.table_type = 'BASE TABLE'
               AND column_name ~ 'e?mail|username|user_identifier|metadata'
            """
        )
    assert {tuple(row) for row in rows if not PARTITION.search(row["table_name"])} == {
        ("events", "email"),
        ("events", "user_identifier"),
        ("events", "metadata"),
        ("event_claims", "email_key"),
        ("users", "email_key"),
        ("address_proofs", "email_key"),
        ("site_members", "email_key"),
        ("site_members", "username"),
        ("pregenerations", "oauth_username"),
        ("pregeneration_requests", "metadata"),
        ("items", "metadata"),  # of the chain
        ("item_settings", "metadata"),  # of the chain
    }
