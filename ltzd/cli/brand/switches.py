"""`ltzd brand disable`, `enable`, `pause`, `resume`: switches that a brand file does not change."""

import asyncio

from ltzd.cli.brand.lookup import describe_brand, find_brand
from ltzd.cli.output import print_json, print_message
from ltzd.cli.targets import Target, open_connection
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.records import BrandRecord, Switch
from ltzd.values import hex_of, iso

OUTCOMES = {
    ("disabled", True): "is disabled: within a second every surface treats it as unknown. "
    "Its queued rewards are still minted.",
    ("disabled", False): "is enabled: its events are accepted again within a second.",
    ("paused", True): "is paused: its events are accepted and queued, "
    "and no further mint of it is signed, except one that is being signed now.",
    ("paused", False): "is resumed: its queued rewards are minted now.",
}


def set_switch(target: Target, brand: str, switch: Switch, *, on: bool, as_json: bool) -> None:
    """Print the outcome as a message, or the brand's state as JSON."""
    changed, record = asyncio.run(_set_switch(target, brand, switch, on=on))
    if as_json:
        print_json(
            {
                "brandId": hex_of(record.id),
                "name": record.name,
                "state": record.state,
                "changed": changed,
            }
        )
    elif changed:
        print_message(f"{describe_brand(record)} {OUTCOMES[switch, on]}")
    else:
        print_message(f"{describe_brand(record)} {_unchanged(record, switch)}: nothing changes.")


async def _set_switch(
    target: Target, brand: str, switch: Switch, *, on: bool
) -> tuple[bool, BrandRecord]:
    """Whether this call changed the switch, and the brand as it is now."""
    async with open_connection(target, f"brand {switch}") as connection:
        record = await find_brand(connection, brand)
        changed = await brand_records.switch(connection, record.id, switch, on=on)
        return changed, await find_brand(connection, brand)


def _unchanged(record: BrandRecord, switch: Switch) -> str:
    since = record.since(switch)
    return f"is not {switch}" if since is None else f"is {switch} already, since {iso(since)}"
