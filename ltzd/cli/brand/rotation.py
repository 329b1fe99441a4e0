"""`ltzd brand rotate-key`: one new key, shown once."""

import asyncio

from ltzd.cli.brand.lookup import find_brand, named
from ltzd.cli.output import print_keys, tell
from ltzd.cli.targets import Place, connected
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.keys import FIELDS, KeyName, Rotation
from ltzd.values import hex_of, iso


def rotate(place: Place, brand: str, key: KeyName, *, revoke: bool) -> None:
    asyncio.run(_rotate(place, brand, key, revoke=revoke))


async def _rotate(place: Place, brand: str, key: KeyName, *, revoke: bool) -> None:
    sealer = place.sealer()
    async with connected(place, "brand rotate-key") as connection:
        record = await find_brand(connection, brand)
        rotation = await brand_keys.rotate(connection, record.id, key, sealer, revoke=revoke)
    # Shown after the commit: a key that might not count must not be given to anybody.
    shown = {"brandId": hex_of(record.id), FIELDS[key]: rotation.key}
    print_keys(shown)
    tell(f"{named(record)} has a new {key}, in force within a second. {_end_of_old(rotation)}")
    tell("The key is shown only now: keep it.")
    if place.data_dir is not None:
        from ltzd.dev import rotated_keys  # noqa: PLC0415 - production does without dev mode

        rotated_keys.keep(place.data_dir, shown)


def _end_of_old(rotation: Rotation) -> str:
    if rotation.previous_until is not None:
        return f"The one before still counts until {iso(rotation.previous_until)}."
    if rotation.lost is not None:
        return f"The one before counts no more: {rotation.lost}"
    return "The ones before count no more."
