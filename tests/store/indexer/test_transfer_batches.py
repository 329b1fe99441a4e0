"""Transfers in bulk leave the same rows and balances as transfers that are decoded one by one."""

import pytest

from ltzd.chain.contracts import ltz
from ltzd.chain.contracts.ltz_transfers import transfer_texts
from ltzd.chain.node.log_entries import log_entries
from ltzd.errors import ImpossibleFact
from ltzd.rules.indexer.mint_facts import Transfer
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.indexer import mint_facts, transfer_batches
from ltzd.store.indexer.impossible import refused_as_impossible
from ltzd.values import ZERO_ADDRESS, hash_of
from tests.support.chain.fake_node import FakeNode, Log, logs_json, minted_log, transfer_log
from tests.support.rows.core import a_wallet, follow

ANN, BOB, CID = (a_wallet(number) for number in (1, 2, 3))
MOVES = [
    transfer_log(ZERO_ADDRESS, ANN, 10**27 + 1),
    minted_log(ANN, bytes(32), 10**27 + 1),
    transfer_log(ANN, BOB, 10_000),
    transfer_log(BOB, CID, 9_999),
    transfer_log(CID, CID, 5),
    transfer_log(CID, ANN, 9_999),
    transfer_log(BOB, ZERO_ADDRESS, 1),
    transfer_log(ANN, ANN, 0),
]


async def tables(connection: Connection) -> tuple[object, ...]:
    return (
        await connection.fetch("SELECT * FROM transfers ORDER BY block_number, log_index"),
        await connection.fetch("SELECT * FROM balances ORDER BY wallet"),
    )


async def test_bulk_and_single_inserts_leave_the_same_tables(pool: Pool) -> None:
    node = FakeNode()
    await follow(pool, node)
    block = node.mine(logs=MOVES)
    entries = log_entries(logs_json(block, None))

    texts, left = transfer_texts(entries, block.number, block.hash.hex())
    assert [entry.log_index for entry in left] == ["0x1"]  # the RewardMinted
    async with session(pool) as connection:
        bulk = connection.transaction()
        await bulk.start()
        halves = [transfer_batches.batch_of(half) for half in (texts[:3], texts[3:])]
        await transfer_batches.insert(connection, halves)
        in_bulk = await tables(connection)
        await bulk.rollback()
        facts = [fact for entry in entries if (fact := ltz.decode_log(entry)) is not None]  # type: ignore[arg-type]
        transfers = [fact for fact in facts if isinstance(fact, Transfer)]
        await mint_facts.insert_transfers(connection, transfers)
        assert await tables(connection) == in_bulk
    assert len(in_bulk[0]) == len(MOVES) - 1  # type: ignore[arg-type]


async def test_a_wallet_that_spends_more_than_it_has_is_impossible(pool: Pool) -> None:
    node = FakeNode()
    await follow(pool, node)
    block = node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5), transfer_log(BOB, ANN, 1)])
    texts, _ = transfer_texts(log_entries(logs_json(block, None)), block.number, block.hash.hex())
    with pytest.raises(ImpossibleFact), refused_as_impossible():
        async with transaction(pool) as connection:
            await transfer_batches.insert(connection, [transfer_batches.batch_of(texts)])


@pytest.mark.parametrize(
    "change",
    [
        {"data": "0x01"},
        {"data": f"0x{'zz' * 32}"},
        {"data": f"0x{'01' * 31}  "},
        {"logIndex": "-0x1"},
        {"logIndex": "0x80000000"},
        {"topics": [f"0x{ltz.TRANSFER_TOPIC.hex()}", "0x01", "0x02"]},
        {"transactionHash": "0x12"},
        {"removed": True},
        {"topics": []},
    ],
)
def test_an_unusual_log_is_left_to_the_decoder(change: dict[str, object]) -> None:
    block = FakeNode().mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5), Log([], b"")])
    entries = log_entries([each | change for each in logs_json(block, None)[:1]])
    assert transfer_texts(entries, block.number, block.hash.hex()) == ([], entries)


def test_logs_in_any_order_and_answered_twice_give_each_transfer_once_in_order() -> None:
    block = FakeNode().mine(logs=MOVES[:3])
    entries = log_entries(logs_json(block, None))
    removed = log_entries([{**each, "removed": True} for each in logs_json(block, None)])
    usual = transfer_texts(entries, block.number, block.hash.hex())
    assert len(usual[0]) == 2
    for answer in ([*entries, *entries], entries[::-1], [*entries, *removed]):
        assert transfer_texts(answer, block.number, block.hash.hex()) == usual


def test_logs_with_a_malformed_index_are_left_to_the_decoder() -> None:
    block = FakeNode().mine(logs=MOVES[:3])
    for index in ("nothing", "-0x1"):
        answer = logs_json(block, None)[::-1]
        answer[-1]["logIndex"] = index
        texts, left = transfer_texts(log_entries(answer), block.number, block.hash.hex())
        assert (texts, len(left)) == ([], len(answer)), index


def test_blanks_among_the_digits_are_refused() -> None:
    hash_text = hash_of("0x" + "ab" * 32).hex()
    blank = "  " + hash_text[2:]
    with pytest.raises(ValueError, match="blanks"):
        transfer_batches.batch_of([(blank, 0, 1, hash_text, "11" * 20, "22" * 20, 1)])
