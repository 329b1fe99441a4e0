"""Changes of brands: one at a time, each with the next revision and a wake-up to every process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ltzd.errors import NotFound
from ltzd.store import wakeups
from ltzd.store.database import Connection
from ltzd.values import Address, hex_of


@asynccontextmanager
async def brand_change(connection: Connection) -> AsyncIterator[None]:
    """A database transaction in which no other brand changes, so revisions commit in their order.

    Readers are not blocked.
    """
    async with connection.transaction():
        await connection.execute("LOCK TABLE brands IN SHARE ROW EXCLUSIVE MODE")
        yield


async def bump_revision(connection: Connection, brand_id: Address) -> None:
    """Give a changed brand its next revision. Raises NotFound."""
    revision = await connection.fetchval(
        """
        UPDATE brands
           SET revision = nextval('brand_revisions'), updated_at = now()
         WHERE id = $1
     RETURNING revision
        """,
        brand_id,
    )
    if revision is None:
        raise NotFound(f"There is no brand {hex_of(brand_id)}.")
    await wakeups.notify(connection, wakeups.BRANDS)
