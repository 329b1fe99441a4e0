"""Finds the brand that a command's argument names: by id, or by a name that only one brand has."""

from ltzd.errors import NotFound
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.records import BrandRecord
from ltzd.store.database import Connection
from ltzd.values import hex_of


async def find_brand(connection: Connection, text: str) -> BrandRecord:
    """Raises NotFound."""
    records = await brand_records.find(connection, text)
    if not records:
        raise NotFound(f"No brand has the id or the name {text!r}; `ltzd brand list` shows all.")
    if len(records) > 1:
        ids = ", ".join(hex_of(record.id) for record in records)
        raise NotFound(f"{len(records)} brands have the name {text!r}; give an id: {ids}.")
    return records[0]


def describe_brand(record: BrandRecord) -> str:
    """The brand's id and name at the start of a sentence."""
    return f"Brand {hex_of(record.id)} ({record.name})"
