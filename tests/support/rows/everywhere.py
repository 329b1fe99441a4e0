"""Looks for a text in every column of every table."""

from ltzd.store.database import Pool, session


async def places_of(pool: Pool, text: str) -> set[str]:
    """`table.column` of all cells that hold the text, in any letter case. A partition's cells are
    those of its table.
    """
    async with session(pool) as connection:
        columns = await connection.fetch(
            """
            SELECT table_name, c.column_name
              FROM information_schema.columns c
              JOIN information_schema.tables t USING (table_schema, table_name)
             WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE'
               AND NOT (SELECT relispartition FROM pg_class
                         WHERE oid = to_regclass(quote_ident(table_name)))
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
