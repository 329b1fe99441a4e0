"""`ltzd brand disable | enable | pause | resume`: switches that outlast the brand's file."""

import asyncio

from ltzd.cli.brand.lookup import describe_brand, find_brand
from ltzd.cli.output import print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.records import Switch
from ltzd.values import iso

DONE = {
    ("disabled", True): "is disabled: every surface treats it as unknown within a second. "
    "What it owes is still minted.",
    ("disabled", False): "is enabled: its events count again within a second.",
    ("paused", True): "is paused: its events are taken and queued, "
    "and none of its mints is signed any more, except one that is on its way.",
    ("paused", False): "goes on: what waited is minted now.",
}


def turn(target: Target, brand: str, switch: Switch, *, on: bool) -> None:
    asyncio.run(_turn(target, brand, switch, on=on))


async def _turn(target: Target, brand: str, switch: Switch, *, on: bool) -> None:
    async with open_connection(target, f"brand {switch}") as connection:
        record = await find_brand(connection, brand)
        if await brand_records.switch(connection, record.id, switch, on=on):
            print_message(f"{describe_brand(record)} {DONE[switch, on]}")
            return
        record = await find_brand(connection, brand)
    since = record.since(switch)
    print_message(
        f"{describe_brand(record)} is not {switch}: nothing changes."
        if since is None
        else f"{describe_brand(record)} is {switch} already, since {iso(since)}: nothing changes."
    )
