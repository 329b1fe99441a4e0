"""Hand-made rows of binary COPY; PostgreSQL reads back the numbers that were written."""

from decimal import Decimal

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ltzd.store.binary_copy import copy_rows, numeric_hex
from ltzd.store.database import Pool, session


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20
)
@given(st.lists(st.integers(0, 2**256 - 1) | st.integers(0, 10**6), min_size=1, max_size=40))
@example([0, 1, 9_999, 10_000, 10_001, 10**8, 10**18, 10**27, 2**256 - 1])
async def test_postgresql_reads_the_numbers_that_were_written(
    pool: Pool, amounts: list[int]
) -> None:
    rows = bytes.fromhex(
        "".join(
            f"000200000004{place:08x}{numeric_hex(amount)}" for place, amount in enumerate(amounts)
        )
    )
    async with session(pool) as connection:
        await connection.execute("CREATE TEMP TABLE numbers (place integer, amount numeric(78, 0))")
        await copy_rows(connection, "numbers", ("place", "amount"), [rows])
        written = await connection.fetch("SELECT amount FROM numbers ORDER BY place")
        await connection.execute("DROP TABLE numbers")
    assert [row["amount"] for row in written] == list(map(Decimal, amounts))
