"""Balances equal a naive ledger through undos, and a mint is recorded only for its own reward."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import RewardMinted, Transfer
from ltzd.rules.operator.transactions import Inclusion, State, Transaction
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer import mint_facts as facts
from ltzd.store.indexer.chains import BlockRow
from ltzd.store.operator import rewards, transactions
from ltzd.values import LTZ, ZERO_ADDRESS, Address, Reference, reward_reference
from tests.support.chain.fake_node import CHAIN_ID, FakeNode
from tests.support.rows import reorgs
from tests.support.rows.core import (
    a_hash,
    a_lane,
    a_wallet,
    an_attempt,
    an_intent,
    follow,
    queue_reward,
    save,
    states,
    value,
)

WALLETS = [ZERO_ADDRESS, a_wallet(1), a_wallet(2), a_wallet(3)]

amounts = st.one_of(st.integers(0, 5), st.integers(0, 10**24))
moves = st.tuples(st.integers(0, 3), st.integers(0, 3), amounts)
blocks = st.lists(moves, max_size=4)
commits = st.lists(blocks, min_size=1, max_size=3)
"""Blocks that are written together, as the indexer does far from the head."""
steps = st.lists(st.one_of(commits, st.integers(1, 6)), max_size=12)
"""The facts to commit, or the number of blocks to undo."""


class Ledger:
    """The naive model: all transfers, from which every balance is summed."""

    def __init__(self) -> None:
        self.blocks: list[list[Transfer]] = []
        self._branch = 0

    def balances(self) -> dict[Address, int]:
        expected: Counter[Address] = Counter()
        for transfer in (each for block in self.blocks for each in block):
            expected[transfer.sender] -= transfer.amount
            expected[transfer.recipient] += transfer.amount
        return {wallet: amount for wallet, amount in expected.items() if wallet != ZERO_ADDRESS}

    def add(self, wanted: list[tuple[int, int, int]]) -> list[Transfer]:
        """Adds a block; transfers above the sender's balance are left out."""
        self._branch += 1
        block: list[Transfer] = []
        self.blocks.append(block)
        for index, (sender, recipient, amount) in enumerate(wanted):
            held = self.balances().get(WALLETS[sender], 0) if sender else amount
            block.append(
                Transfer(
                    LogPosition(
                        len(self.blocks),
                        a_hash(f"{len(self.blocks)} of {self._branch}"),
                        index,
                        a_hash("transaction"),
                    ),
                    WALLETS[sender],
                    WALLETS[recipient],
                    min(amount, held),
                )
            )
        return block


async def stored_balances(pool: Pool) -> dict[Address, int]:
    async with session(pool) as connection:
        rows = await connection.fetch("SELECT wallet, amount FROM balances")
    return {Address(row["wallet"]): int(row["amount"]) for row in rows}


@given(steps)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_balances_equal_the_ledger_through_commits_and_undos(
    pool: Pool, wanted: list[list[list[tuple[int, int, int]]] | int]
) -> None:
    ledger = Ledger()
    async with session(pool) as connection:
        await connection.execute("TRUNCATE transfers, balances, blocks, chains")
    for step in wanted:
        async with transaction(pool) as connection:
            if isinstance(step, int):
                del ledger.blocks[-step:]
                await reorgs.undo_above(connection, len(ledger.blocks))
            else:
                added = [transfer for block in step for transfer in ledger.add(block)]
                await facts.insert_transfers(connection, added)
        expected = ledger.balances()
        stored = await stored_balances(pool)
        assert {wallet: amount for wallet, amount in stored.items() if amount} == {
            wallet: amount for wallet, amount in expected.items() if amount
        }
        assert ZERO_ADDRESS not in stored
        assert all(amount >= 0 for amount in stored.values())
    assert await value(pool, "SELECT count(*) FROM transfers") == sum(map(len, ledger.blocks))


async def test_amounts_up_to_the_whole_range_of_uint256_are_kept_exactly(pool: Pool) -> None:
    huge = 2**256 - 1
    transfer = Transfer(
        LogPosition(1, a_hash("1"), 0, a_hash("t")), ZERO_ADDRESS, a_wallet(1), huge
    )
    async with transaction(pool) as connection:
        await facts.insert_transfers(connection, [transfer])
    assert await stored_balances(pool) == {a_wallet(1): huge}


WALLET = a_wallet(0xA11CE)
SEQ = 41


@pytest.fixture
async def reward(pool: Pool) -> UUID:
    """A reward of 100 LTZ with SEQ in a published transaction; the cursor is at block 9."""
    node = FakeNode()
    await follow(pool, node)
    async with transaction(pool) as connection:
        reward = await queue_reward(connection, WALLET, 100)
    lane = await a_lane(pool, first_seq=SEQ)
    async with transaction(pool) as connection:
        await transactions.store_signed(
            connection, lane, an_intent(0, [reward], SEQ), an_attempt("mint")
        )
        await transactions.mark_published(connection, [a_hash("mint")])
    return reward


def the_mint_of(reward: UUID) -> RewardMinted:
    reference = reward_reference(reward, 1, SEQ)
    return RewardMinted(
        LogPosition(7, a_hash("7"), 3, a_hash("mint")), WALLET, reference, 100 * LTZ
    )


def at_position(mint: RewardMinted, **changes: Any) -> RewardMinted:
    return replace(mint, position=replace(mint.position, **changes))


async def insert_mints(pool: Pool, *mints: RewardMinted) -> int:
    async with transaction(pool) as connection:
        return await facts.insert_mints(connection, mints)


async def mint_of(pool: Pool, reward: UUID) -> tuple[Any, ...]:
    async with session(pool) as connection:
        return tuple(
            await connection.fetchrow(
                "SELECT mint_block_number, mint_block_hash, mint_transaction_hash "
                "FROM rewards WHERE id = $1",
                reward,
            )
        )


async def test_a_mint_is_recorded_in_its_rewards_row(pool: Pool, reward: UUID) -> None:
    assert await insert_mints(pool, the_mint_of(reward)) == 1
    assert await mint_of(pool, reward) == (7, a_hash("7"), a_hash("mint"))


def _changed(reference: bytes, at: int) -> Reference:
    changed = bytearray(reference)
    changed[at] ^= 1
    return Reference(bytes(changed))


_FULL = b"\xff" * 16
DIFFERENCES: dict[str, Callable[[RewardMinted], RewardMinted]] = {
    "wallet": lambda mint: replace(mint, recipient=a_wallet(0xBAD)),
    "less": lambda mint: replace(mint, amount=99 * LTZ),
    "dust": lambda mint: replace(mint, amount=100 * LTZ + 1),
    "huge": lambda mint: replace(mint, amount=2**255),
    "uuid": lambda mint: replace(mint, reference=_changed(mint.reference, 0)),
    "kind": lambda mint: replace(mint, reference=_changed(mint.reference, 16)),
    "padding": lambda mint: replace(mint, reference=_changed(mint.reference, 17)),
    "end of padding": lambda mint: replace(mint, reference=_changed(mint.reference, 23)),
    "seq": lambda mint: replace(mint, reference=_changed(mint.reference, 31)),
    "largest seq": lambda mint: replace(mint, reference=Reference(mint.reference[:24] + _FULL[:8])),
    "all but uuid": lambda mint: replace(mint, reference=Reference(mint.reference[:16] + _FULL)),
}


async def test_a_mint_that_differs_in_any_field_belongs_to_no_reward(
    pool: Pool, reward: UUID
) -> None:
    for index, (name, change) in enumerate(DIFFERENCES.items()):
        foreign = at_position(change(the_mint_of(reward)), log_index=index)
        assert await insert_mints(pool, foreign) == 0, name
        assert await mint_of(pool, reward) == (None, None, None), name
    assert await value(pool, "SELECT count(*) FROM mints") == len(DIFFERENCES), (
        "the facts are stored"
    )
    assert await insert_mints(pool, at_position(the_mint_of(reward), log_index=99)) == 1


async def seq_of(pool: Pool, reward: UUID) -> int | None:
    seq: int | None = await value(pool, "SELECT seq FROM rewards WHERE id = $1", reward)
    return seq


@pytest.mark.parametrize("own", [None, SEQ + 9])
async def test_a_queued_reward_is_marked_by_a_mint_whose_signing_the_database_has_lost(
    pool: Pool, own: int | None
) -> None:
    """The reward must not be minted again, under its own reference or under a new one."""
    async with transaction(pool) as connection:
        reward = await queue_reward(connection, WALLET, 100)
        await connection.execute("UPDATE rewards SET seq = $1", own)
    assert await insert_mints(pool, the_mint_of(reward)) == 1
    assert await mint_of(pool, reward) == (7, a_hash("7"), a_hash("mint"))
    assert await seq_of(pool, reward) == SEQ
    async with session(pool) as connection:
        assert await rewards.queued(connection, 10) == []

    async with transaction(pool) as connection:
        await reorgs.undo_above(connection, 6)
    assert await mint_of(pool, reward) == (None, None, None)
    assert await seq_of(pool, reward) == SEQ, "its next mint has the reference of the lost one"


@pytest.mark.parametrize("seq", [SEQ, 2**64 - 1])
async def test_a_lost_mint_whose_seq_another_reward_has_marks_its_reward_all_the_same(
    pool: Pool, seq: int
) -> None:
    async with transaction(pool) as connection:
        reward, other = [await queue_reward(connection, WALLET, 100) for _ in range(2)]
        await connection.execute("UPDATE rewards SET seq = $1 WHERE id = $2", SEQ, other)
    reference = Reference(the_mint_of(reward).reference[:24] + seq.to_bytes(8, "big"))
    assert await insert_mints(pool, replace(the_mint_of(reward), reference=reference)) == 1
    assert await mint_of(pool, reward) == (7, a_hash("7"), a_hash("mint"))
    assert (await seq_of(pool, reward), await seq_of(pool, other)) == (None, SEQ)


async def test_of_many_mints_only_the_matching_ones_are_counted(pool: Pool, reward: UUID) -> None:
    right = the_mint_of(reward)
    foreign = [
        replace(
            at_position(right, log_index=index),
            recipient=a_wallet(index),
            reference=Reference(bytes(32)),
        )
        for index in range(10, 15)
    ]

    assert await insert_mints(pool, *foreign[:2], right, *foreign[2:]) == 1


async def test_an_undone_mints_reward_is_unminted_until_the_new_branch_mints_it(
    pool: Pool, reward: UUID
) -> None:
    await insert_mints(pool, the_mint_of(reward))
    async with transaction(pool) as connection:
        await reorgs.undo_above(connection, 6)
    assert await mint_of(pool, reward) == (None, None, None)
    assert await value(pool, "SELECT count(*) FROM mints") == 0

    again = at_position(the_mint_of(reward), block_number=8, block_hash=a_hash("8'"))
    assert await insert_mints(pool, again) == 1
    assert await mint_of(pool, reward) == (8, a_hash("8'"), a_hash("mint"))


async def test_an_undo_resets_exactly_the_rewards_of_undone_mints(pool: Pool, reward: UUID) -> None:
    async with transaction(pool) as connection:
        others = [await queue_reward(connection, WALLET, 100) for _ in range(2)]
        lane = await a_lane(pool)
        intent = an_intent(1, others, SEQ + 1)
        await transactions.store_signed(connection, lane, intent, an_attempt("later"))
    at_7 = the_mint_of(reward)
    at_8, at_9 = (
        replace(
            at_position(at_7, block_number=number, block_hash=a_hash(f"{number}")),
            reference=reward_reference(other, 1, SEQ + number - 7),
        )
        for number, other in enumerate(others, 8)
    )
    somebody_elses = replace(
        at_position(at_9, log_index=4), recipient=a_wallet(0xBAD), reference=at_7.reference
    )
    assert await insert_mints(pool, at_7, at_8, at_9, somebody_elses) == 3

    async with transaction(pool) as connection:
        await reorgs.undo_above(connection, 8)

    assert await mint_of(pool, reward) == (7, a_hash("7"), a_hash("mint"))
    assert await mint_of(pool, others[0]) == (8, a_hash("8"), a_hash("mint"))
    assert await mint_of(pool, others[1]) == (None, None, None)
    assert await value(pool, "SELECT count(*) FROM mints") == 2


async def test_an_undone_reward_that_has_no_transaction_is_queued_again(
    pool: Pool, reward: UUID
) -> None:
    """The lane may have marked its transaction displaced before it saw the mint."""
    await insert_mints(pool, the_mint_of(reward))
    async with transaction(pool) as connection:
        await connection.execute("UPDATE rewards SET transaction_id = NULL")
        assert await rewards.queued(connection, 9) == []

        await reorgs.undo_above(connection, 6)

        (again,) = await rewards.queued(connection, 9)
    assert (again.id, again.seq) == (reward, SEQ)


async def test_an_undo_above_a_mint_keeps_the_mint(pool: Pool, reward: UUID) -> None:
    await insert_mints(pool, the_mint_of(reward))
    async with transaction(pool) as connection:
        await reorgs.undo_above(connection, 7)
    assert await mint_of(pool, reward) == (7, a_hash("7"), a_hash("mint"))


@pytest.mark.parametrize(
    ("final", "fork", "state"),
    [(7, 6, "mined"), (9, 6, "mined"), (7, 7, "confirmed"), (6, 6, "confirmed")],
)
async def test_a_deep_undo_puts_a_confirmed_transaction_back_to_mined(
    pool: Pool, reward: UUID, final: int, fork: int, state: str
) -> None:
    place = Inclusion(7, a_hash("7"), succeeded=True)
    lane = await a_lane(pool)
    async with transaction(pool) as connection:
        epoch = await chains.begin_term(connection, CHAIN_ID)
        base = (await chains.cursor(connection, CHAIN_ID)).hash
        await chains.move_cursor(connection, CHAIN_ID, epoch, base, (9, a_hash("9")), 9)
        await chains.raise_finality(connection, CHAIN_ID, epoch, final)
        row = await connection.fetchval("SELECT id FROM transactions")
        await save(connection, lane, row, State.PUBLISHED, Transaction(State.MINED, place))
        await save(connection, lane, row, State.MINED, Transaction(State.CONFIRMED, place))

        await reorgs.undo_above(connection, fork)

    assert await states(pool) == [state]
    settled = await value(pool, "SELECT settled_at IS NOT NULL FROM transactions")
    assert settled == (state == "confirmed")


async def test_an_undo_returns_the_number_of_removed_blocks(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await chains.insert_blocks(
            connection,
            [BlockRow(number, a_hash(f"{number}"), a_hash(""), 0) for number in (1, 2, 5, 9)],
        )
        assert await reorgs.undo_above(connection, 2) == 2
        assert await reorgs.undo_above(connection, 2) == 0
