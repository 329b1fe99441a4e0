"""`ltzd brand disable`, `enable`, `pause`, `resume`: switches that a brand file does not change."""

import asyncio

from ltzd.cli.brand.lookup import describe_brand, find_brand
from ltzd.cli.output import print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.records import Switch
from ltzd.values import iso

OUTCOMES = {
    ("disabled", True): "is disabled: within a second every surface treats it as unknown. "
    "Its queued rewards are still minted.",
    ("disabled", False): "is enabled: its events are accepted again within a second.",
    ("paused", True): "is paused: its events are accepted and queued, "
    "and no further mint of it is signed, except one that is being signed now.",
    ("paused", False): "is resumed: its queued rewards are minted now.",
}


def set_switch(target: Target, brand: str, switch: Switch, *, on: bool) -> None:
    asyncio.run(_set_switch(target, brand, switch, on=on))


async def _set_switch(target: Target, brand: str, switch: Switch, *, on: bool) -> None:
    async with open_connection(target, f"brand {switch}") as connection:
        record = await find_brand(connection, brand)
        if await brand_records.switch(connection, record.id, switch, on=on):
            print_message(f"{describe_brand(record)} {OUTCOMES[switch, on]}")
            return
        record = await find_brand(connection, brand)
    since = record.since(switch)
    print_message(
        f"{describe_brand(record)} is not {switch}: nothing changes."
        if since is None
        else f"{describe_brand(record)} is {switch} already, since {iso(since)}: nothing changes."
    )
