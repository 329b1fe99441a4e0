"""The brand that a person means: by id, or by its exact name if only one has it."""

from ltzd.errors import NotFound
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.records import BrandRecord
from ltzd.store.database import Connection
from ltzd.values import hex_of


async def find_brand(connection: Connection, text: str) -> BrandRecord:
    """Raises NotFound."""
    found = await brand_records.find(connection, text)
    if not found:
        raise NotFound(f"No brand has the id or the name {text!r}; `ltzd brand list` shows all.")
    if len(found) > 1:
        ids = ", ".join(hex_of(record.id) for record in found)
        raise NotFound(f"{len(found)} brands have the name {text!r}; give an id: {ids}.")
    return found[0]


def describe_brand(record: BrandRecord) -> str:
    """For sentences."""
    return f"Brand {hex_of(record.id)} ({record.name})"
