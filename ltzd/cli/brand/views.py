"""`ltzd brand list` and `ltzd brand show`, as text or as JSON.

The only key shown is the verification token, which is meant to be published. `show` prints a brand
file, with everything that such a file does not contain in comments.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.table import Column, Table

from ltzd.cli.brand.lookup import find_brand
from ltzd.cli.output import plain_text, print_json, print_message, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import NotFound
from ltzd.rules.brands.configuration import FIRST_CATALOGUE, Brand
from ltzd.rules.brands.toml_writer import toml_of
from ltzd.rules.brands.warnings import warnings
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.keys import FIELDS, KeyAge, KeyName
from ltzd.store.brands.records import BrandRecord
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import hex_of, iso

DNS_LABEL = "_ltz"


class View(msgspec.Struct, frozen=True):
    """A brand as `show` prints it. `token` is its verification token, if it has one."""

    record: BrandRecord
    brand: Brand
    keys: Mapping[KeyName, KeyAge]
    token: str | None

    def dns(self) -> list[dict[str, str]]:
        """The TXT record that verifies each domain."""
        if self.token is None:
            return []
        value = f"brand_id={self.brand.id};api_key={self.token}"
        names = [f"{DNS_LABEL}.{domain}" for domain in self.brand.domains]
        return [{"name": name, "type": "TXT", "value": value} for name in names]


def list_brands(target: Target, *, as_json: bool) -> None:
    records = asyncio.run(_every_brand(target))
    if as_json:
        print_json(list(map(_summary, records)))
    elif records:
        print_page(_table(records))
    else:
        print_message("There is no brand yet: `ltzd brand apply FILE` creates one.")


def show_brand(target: Target, brand: str, *, as_json: bool) -> None:
    view = asyncio.run(_view(target, brand))
    if as_json:
        print_json(_as_json(view))
        return
    print(*(f"# {line}".rstrip() for line in _heading(view)), "", sep="\n")
    print(toml_of(view.brand), end="", flush=True)


async def _every_brand(target: Target) -> list[BrandRecord]:
    async with open_connection(target, "brand list") as connection:
        return await brand_records.list_all(connection)


async def _view(target: Target, text: str) -> View:
    sealer = target.sealer()
    async with (
        open_connection(target, "brand show") as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        return await _read(connection, await find_brand(connection, text), sealer)


async def _read(connection: Connection, record: BrandRecord, sealer: Sealer) -> View:
    brand = await brands.load(connection, record.id)
    if brand is None:
        raise NotFound(f"Brand {hex_of(record.id)} was deleted meanwhile.")
    keys = await brand_keys.read_ages(connection, record.id)
    tokens = await brand_keys.secrets_of(connection, record.id, "verification_token", sealer)
    return View(record, brand, keys, tokens[0].text if tokens else None)


def _summary(record: BrandRecord) -> dict[str, Any]:
    return {
        "id": hex_of(record.id),
        "name": record.name,
        "domains": record.domains,
        "state": record.state,
        "revision": record.revision,
        "updatedAt": iso(record.updated_at),
    }


def _as_json(view: View) -> dict[str, Any]:
    """The fields of `configuration` have the names of the brand file."""
    disabled_at, paused_at = view.record.disabled_at, view.record.paused_at
    return {
        **_summary(view.record),
        "createdAt": iso(view.record.created_at),
        "disabledAt": disabled_at and iso(disabled_at),
        "pausedAt": paused_at and iso(paused_at),
        "configuration": view.brand.model_dump(),
        "keys": {
            FIELDS[name]: {
                "createdAt": iso(age.created_at),
                "retiredUntil": list(map(iso, age.retired_until)),
            }
            for name, age in view.keys.items()
        },
        "dns": view.dns(),
        "warnings": warnings(view.brand),
    }


def _table(records: Sequence[BrandRecord]) -> Table:
    table = Table(
        Column("id", no_wrap=True),
        Column("name", overflow="fold"),
        Column("domains", overflow="fold"),
        "state",
        Column("revision", justify="right"),
        "updated",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for record in records:
        table.add_row(
            hex_of(record.id),
            plain_text(record.name),
            plain_text(" ".join(record.domains)),
            record.state,
            str(record.revision),
            iso(record.updated_at),
        )
    return table


def _heading(view: View) -> Iterator[str]:
    record = view.record
    id_ = hex_of(record.id)
    yield f"{record.name}: {record.state}; revision {record.revision} of {iso(record.updated_at)}."
    if record.disabled_at is not None:
        yield f"Disabled since {iso(record.disabled_at)}: `ltzd brand enable {id_}` changes that."
    if record.paused_at is not None:
        yield f"Paused since {iso(record.paused_at)}: `ltzd brand resume {id_}` changes that."
    yield ""
    yield "Keys; only `ltzd brand rotate-key` prints one, when it makes a new one:"
    for name, age in view.keys.items():
        yield f"  {name:<18}  created {iso(age.created_at)}{_retired(age)}"
    yield ""
    yield "DNS records that verify the brand's domains; they may be public:"
    for entry in view.dns():
        yield f'  {entry["name"]}  TXT  "{entry["value"]}"'
    yield ""
    own = {rule.type for rule in view.brand.events}
    rest = [f"{kind} {ltz}" for kind, ltz in FIRST_CATALOGUE.items() if kind not in own]
    if rest:
        yield f"Events of the first catalogue count too, in LTZ: {', '.join(rest)}."
    for warning in warnings(view.brand):
        yield f"Warning: {warning}"


def _retired(age: KeyAge) -> str:
    if not age.retired_until:
        return ""
    return f"; earlier keys remain valid until {', '.join(map(iso, age.retired_until))}"
