"""PostgreSQL refuses to change some rows, as it does for a constraint that only they violate."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ltzd.store.database import Pool, session


@asynccontextmanager
async def refusing(pool: Pool, table: str, when: str, on: str = "UPDATE") -> AsyncIterator[None]:
    """Refuses each statement that changes a row for which `when` holds, until the block ends."""
    async with session(pool) as connection:
        await connection.execute(
            f"""
            CREATE OR REPLACE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = 'check_violation'; END $$;
            CREATE TRIGGER refuse_row BEFORE {on} ON {table}
               FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse_row();
            """
        )
    try:
        yield
    finally:
        async with session(pool) as connection:
            await connection.execute(f"DROP TRIGGER refuse_row ON {table}")
