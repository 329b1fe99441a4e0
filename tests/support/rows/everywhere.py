"""Looks for a text in every column of every table."""

from ltzd.store.database import Pool, session


async def places_of(pool: Pool, text: str) -> set[str]:
    """`table.column` of all cells that hold the text, in any letter case."""
    async with session(pool) as connection:
        columns = await connection.fetch(
            """
            SELECT c.table_name, c.column_name
              FROM information_schema.columns c
              JOIN information_schema.tables t USING (table_schema, table_name)
             WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'
            """
        )
        return {
            f"{table}.{column}"
            for table, column in columns
            if await connection.fetchval(
                f'SELECT EXISTS (SELECT FROM "{table}" WHERE "{column}"::text ILIKE $1)',
                f"%{text}%",
            )
        }
