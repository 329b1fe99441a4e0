"""`ltzd user show`, `export` and `erasures`."""

import asyncio
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from rich.console import Group
from rich.table import Table

from ltzd.cli.output import plain_text, print_json, print_keys, print_message, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.cli.user.lookup import find_person
from ltzd.store.retention import dossier, erasure
from ltzd.store.retention.dossier import Person, Row
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.values import checksummed, hex_of, iso

_ADDRESS_BYTES = 20
_WITHOUT_USER = {
    True: "none: a custodial wallet without an event",
    False: "none: an address that a token has proven, without an event",
}


def show(target: Target, user: str, *, as_json: bool) -> None:
    person, rows = asyncio.run(_read(target, user, "user show"))
    counts = {table: len(of_table) for table, of_table in rows.items()}
    if as_json:
        print_json(_summary(person) | {"rows": counts})
    else:
        print_page(_page(person, counts))


def export(target: Target, user: str) -> None:
    """The file that standard output is redirected to is made private: it holds personal data."""
    person, rows = asyncio.run(_read(target, user, "user export"))
    tables = {
        table: [{name: _json(cell) for name, cell in row.items()} for row in of_table]
        for table, of_table in rows.items()
        if of_table
    }
    print_keys(_summary(person) | {"tables": tables})


def list_erasures(target: Target, *, as_json: bool) -> None:
    recorded = asyncio.run(_read_erasures(target))
    if as_json:
        print_json([{"userId": str(user), "erasedAt": iso(at)} for user, at in recorded])
    elif not recorded:
        print_message("No user was erased by `ltzd user erase`.")
    for user, at in [] if as_json else recorded:
        print(f"{user}  {iso(at)}")


async def _read(target: Target, user: str, command: str) -> tuple[Person, dict[str, list[Row]]]:
    erased = ErasedAddresses(target.sealer())
    async with open_connection(target, command) as connection:
        person = await find_person(connection, erased, user)
        return person, await dossier.read(connection, person)


async def _read_erasures(target: Target) -> list[tuple[UUID, datetime]]:
    async with open_connection(target, "user erasures") as connection:
        return await erasure.recorded(connection)


def _summary(person: Person) -> dict[str, Any]:
    return {
        "userId": None if person.user_id is None else str(person.user_id),
        "addressErased": person.is_erased,
        "wallets": [checksummed(wallet) for wallet in person.wallets],
    }


def _page(person: Person, counts: dict[str, int]) -> Group:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("user", plain_text(person.user_id or _WITHOUT_USER[bool(person.wallets)]))
    table.add_row("e-mail address", "erased" if person.is_erased else "stored")
    for number, wallet in enumerate(person.wallets):
        table.add_row("former wallet" if number else "wallet", checksummed(wallet))
    for name, count in counts.items():
        if count:
            table.add_row(name.replace("_", " "), str(count))
    return Group(table)


def _json(cell: Any) -> Any:
    match cell:
        case bytes():
            return checksummed(cell) if len(cell) == _ADDRESS_BYTES else hex_of(cell)
        case datetime():
            return iso(cell)
        case date() | UUID() | Decimal():
            return str(cell)
        case list():
            return [_json(each) for each in cell]
        case _:
            return cell
