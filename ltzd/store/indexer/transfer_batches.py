"""Many transfers at once: rows for binary COPY, and what they move between the balances.

Amounts are in LTZ's smallest unit. The texts are checked by their lengths here and by PostgreSQL.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ltzd.store.binary_copy import copy_rows, numeric_hex
from ltzd.store.database import Connection
from ltzd.store.indexer import mint_facts

TransferTexts = tuple[str, int, int, str, str, str, int]
"""Block hash, log index, block number, transaction hash, sender, recipient and amount.

Hashes have 64 and addresses 40 hexadecimal digits, in small letters.
"""

COLUMNS: Final = mint_facts.TRANSFERS.all_columns


class TransferBatch(msgspec.Struct, frozen=True):
    """`deltas` holds the change of each wallet's balance, by its address in hexadecimal digits."""

    count: int
    rows: bytes
    deltas: dict[str, int]

    @property
    def held_bytes(self) -> int:
        return len(self.rows) + 200 * len(self.deltas)


def batch_of(transfers: Iterable[TransferTexts]) -> TransferBatch:
    """Raises ValueError for texts that are no hexadecimal digits."""
    parts: list[str] = []
    deltas: defaultdict[str, int] = defaultdict(int)
    count = 0
    for block_hash, index, number, transaction_hash, sender, recipient, amount in transfers:
        parts.append(
            f"000700000020{block_hash}00000004{index:08x}00000008{number:016x}00000020"
            f"{transaction_hash}00000014{sender}00000014{recipient}{numeric_hex(amount)}"
        )
        deltas[sender] -= amount
        deltas[recipient] += amount
        count += 1
    text = "".join(parts)
    rows = bytes.fromhex(text)
    if 2 * len(rows) != len(text):
        raise ValueError("there are blanks among the digits")  # fromhex skips them.
    return TransferBatch(count, rows, deltas)


async def insert(connection: Connection, batches: Sequence[TransferBatch]) -> None:
    """Insert transfers and apply them to the balances. Raises ImpossibleFact."""
    await copy_rows(
        connection, mint_facts.TRANSFERS.name, COLUMNS, (batch.rows for batch in batches)
    )
    total: defaultdict[str, int] = defaultdict(int)
    for batch in batches:
        for wallet, delta in batch.deltas.items():
            total[wallet] += delta
    await mint_facts.move_balances(
        connection, {bytes.fromhex(wallet): delta for wallet, delta in total.items()}
    )
