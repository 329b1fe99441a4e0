"""Reads the brands that the checks read."""

from contextlib import suppress

from ltzd.errors import Misconfigured
from ltzd.rules.brands.configuration import Brand
from ltzd.store.brands import configurations, records
from ltzd.store.database import Connection


async def active_brands(connection: Connection) -> list[Brand]:
    """The brands that are not disabled and whose configuration this version can read."""
    brands = []
    for record in await records.list_all(connection):
        if record.state != "disabled":
            with suppress(Misconfigured):
                brand = await configurations.load(connection, record.id)
                if brand is not None:
                    brands.append(brand)
    return brands
