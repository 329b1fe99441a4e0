"""`ltzd wallets list`, as a table or as JSON.

The names of accounts are personal data and are shown only on request.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from rich.table import Column, Table

from ltzd.cli.output import plain_text, print_json, print_message, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.store.users import custodial_users
from ltzd.store.users.custodial_users import ListedUser
from ltzd.values import checksummed, iso


def list_wallets(target: Target, limit: int, *, show_names: bool, as_json: bool) -> None:
    users, count = asyncio.run(_read(target, limit))
    if as_json:
        print_json([_summary(user, show_names=show_names) for user in users])
    elif users:
        print_page(_table(users, show_names=show_names))
    else:
        print_message("There is no custodial wallet.")
    if len(users) < count:
        print_message(f"These are the newest {len(users)} of {count}; --limit shows more.")


async def _read(target: Target, limit: int) -> tuple[list[ListedUser], int]:
    async with (
        open_connection(target, "wallets list") as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        return await custodial_users.list_newest(connection, limit), await custodial_users.count(
            connection
        )


def _summary(user: ListedUser, *, show_names: bool) -> dict[str, Any]:
    return {
        "subject": user.subject,
        "wallet": checksummed(user.wallet),
        "owner": user.owner,
        "masterKey": user.key_id,
        "createdAt": iso(user.created_at),
        "accounts": [
            {"kind": name.kind, "verified": proven} | ({"name": name.text} if show_names else {})
            for name, proven in user.names
        ],
    }


def _table(users: Sequence[ListedUser], *, show_names: bool) -> Table:
    table = Table(
        Column("subject", no_wrap=True),
        Column("wallet", no_wrap=True),
        Column("master key", no_wrap=True),
        Column("created", no_wrap=True),
        Column("accounts", overflow="fold"),
        box=None,
        padding=(0, 2, 0, 0),
    )
    for user in users:
        shown = [
            (f"{name.kind} {name.text}" if show_names else name.kind) + ("" if proven else "?")
            for name, proven in user.names
        ]
        table.add_row(
            user.subject,
            checksummed(user.wallet),
            user.key_id,
            iso(user.created_at),
            plain_text(", ".join(shown)),
        )
    return table
