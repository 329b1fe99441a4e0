"""Blocks with PerkNFT's facts, written as the indexer writes them, without a chain."""

from collections.abc import Callable
from dataclasses import dataclass

from ltzd.rules.indexer.contract_facts import (
    ChargeRedeemed,
    CollectionCreated,
    PerkFact,
    TokenTransferred,
)
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.store.database import Pool, transaction
from ltzd.store.indexer import chains, perk_facts
from ltzd.store.indexer.chains import BlockRow
from ltzd.values import ZERO_ADDRESS, Address
from tests.support.rows.core import a_hash

BORN = 1_700_000_000
SERIAL_BITS = 32
Fact = Callable[[LogPosition], PerkFact]


def token_of(collection: int, serial: int) -> int:
    return collection << SERIAL_BITS | serial


def made(collection: int, brand: Address, charges: int = 3) -> Fact:
    terms = (collection, brand, brand, 0, 0, 0, charges, True, False, "")
    return lambda place: CollectionCreated(place, *terms)


def moved(token: int, sender: Address, recipient: Address) -> Fact:
    return lambda place: TokenTransferred(place, sender, recipient, token)


def claimed(token: int, user: Address) -> Fact:
    return moved(token, ZERO_ADDRESS, user)


def redeemed(token: int, holder: Address, reference: bytes, amount: int, remaining: int) -> Fact:
    values = (token, holder, reference, amount, remaining)
    return lambda place: ChargeRedeemed(place, *values)


@dataclass
class PerkLedger:
    pool: Pool
    number: int = 1

    async def block(self, *facts: Fact) -> int:
        """Commits the next block with these facts and returns its number."""
        self.number += 1
        name, parent = a_hash(f"block {self.number}"), a_hash(f"block {self.number - 1}")
        row = BlockRow(self.number, name, parent, BORN + self.number)
        rows = [
            fact(
                LogPosition(self.number, name, index, a_hash(f"transaction {self.number} {index}"))
            )
            for index, fact in enumerate(facts)
        ]
        async with transaction(self.pool) as connection:
            await chains.insert_blocks(connection, [row])
            await perk_facts.insert(connection, rows)
        return self.number

    async def undo_above(self, fork: int) -> None:
        """Removes the blocks above `fork` as a reorg does."""
        async with transaction(self.pool) as connection:
            await perk_facts.undo_above(connection, fork)
            await connection.execute("DELETE FROM blocks WHERE number > $1", fork)
        self.number = fork
