"""Inserts a thousand and a million tokens into two tables of an instance's database.

The table under test is named `tokens`, so that the same ltzd reads a small and a large index
in turn. The reads use `tokens` and `collections` alone, and the indexer finds rows anew only
where new facts come: so no facts are written with them.
"""

from dataclasses import dataclass

from ltzd.rules.perk_charges import SERIAL_BITS
from ltzd.store.database import Connection
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class Filled:
    """A collection of the brand's with this many tokens; the id is far from those on the chain."""

    collection_id: int
    count: int

    def token(self, serial: int) -> int:
        return self.collection_id << SERIAL_BITS | serial


FEW = Filled(1_001, 1_000)
MANY = Filled(1_002, 1_000_000)


class Tables:
    """The table named `tokens` has MANY rows beside the chain's tokens, or FEW rows only."""

    def __init__(self, database: Connection, brand: Address) -> None:
        self.database = database
        self._brand = brand
        self._current = MANY

    async def fill(self) -> None:
        await self._fill(MANY)
        await self.database.execute(
            "CREATE TABLE other_tokens (LIKE tokens INCLUDING ALL) WITH (fillfactor = 70)"
        )
        await self.show(FEW)
        await self._fill(FEW)
        # Otherwise the first reader would write the pages that the inserts left in memory.
        await self.database.execute("CHECKPOINT")

    async def fill_few(self) -> None:
        """Inserts the few tokens into the table of the chain's, for a read of any size."""
        await self._fill(FEW)

    async def show(self, which: Filled) -> None:
        if which == self._current:
            return
        await self.database.execute(
            """
            BEGIN;
            ALTER TABLE tokens RENAME TO tokens_aside;
            ALTER TABLE other_tokens RENAME TO tokens;
            ALTER TABLE tokens_aside RENAME TO other_tokens;
            COMMIT
            """
        )
        self._current = which

    async def _fill(self, which: Filled) -> None:
        """Inserts tokens with one holder each; a third of them have used one of three charges."""
        await self.database.execute(
            """
            INSERT INTO tokens (token_id, collection_id, holder, remaining, claimed_at,
                                last_redeemed_at, block_number)
            SELECT $1::bigint * 4294967296::numeric + n, $1,
                   substring(sha256(int8send(n)) FOR 20),
                   CASE WHEN n % 3 = 0 THEN 2 END,
                   now() - n * interval '1 second',
                   CASE WHEN n % 3 = 0 THEN now() END,
                   1
              FROM generate_series(1, $2::bigint) AS n
            """,
            which.collection_id,
            which.count,
        )
        await self.database.execute(
            """
            INSERT INTO collections (collection_id, brand, payout, price, max_supply, max_per_user,
                                     is_active, charges, requires_signature, uri, minted)
            VALUES ($1, $2, $2, 0, 0, 0, true, 3, false, '', $3)
            """,
            which.collection_id,
            self._brand,
            which.count,
        )
        await self.database.execute("VACUUM ANALYZE tokens")
