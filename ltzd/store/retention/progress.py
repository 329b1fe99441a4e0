"""How far a rule has walked a table, so that each call looks at the rows that follow.

Several processes may walk at once: a row that both look at is judged the same.
"""

from datetime import datetime

from ltzd.store.database import Connection


async def last_key(connection: Connection, rule: str) -> str | None:
    """The key after which the walk goes on, or None if it begins at the first row."""
    key: str | None = await connection.fetchval(
        "SELECT last_key FROM retention_progress WHERE rule = $1 AND brand_id = ''", rule
    )
    return key


async def done_to(connection: Connection, rule: str, brand: bytes, moment: datetime) -> None:
    """Record that the brand's rows before `moment` are done; rows of that moment may be left."""
    await connection.execute(
        """
        INSERT INTO retention_progress AS p (rule, brand_id, done_to) VALUES ($1, $2, $3)
            ON CONFLICT (rule, brand_id) DO UPDATE
           SET done_to = greatest(p.done_to, excluded.done_to)
        """,
        rule,
        brand,
        moment,
    )


async def move(connection: Connection, rule: str, key: str | None) -> None:
    """Go on after `key`. A walk that is at its end (None) begins again."""
    await connection.execute(
        """
        INSERT INTO retention_progress (rule, brand_id, last_key) VALUES ($1, '', $2)
            ON CONFLICT (rule, brand_id) DO UPDATE SET last_key = excluded.last_key
        """,
        rule,
        key,
    )
