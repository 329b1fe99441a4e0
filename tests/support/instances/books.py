"""Compares ltzd's answers, its database, and the chain.

The chain is read directly, by logs and `balanceOf`, without ltzd's code.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from eth_hash.auto import keccak

from tests.support.chain.tester import Rpc
from tests.support.instances.instance import Answer, Instance
from tests.support.waiting import until

LTZ = 10**18
_REWARD_MINTED = "0x" + keccak(b"RewardMinted(address,bytes32,uint256)").hex()
_TRANSFER = "0x" + keccak(b"Transfer(address,address,uint256)").hex()
_BALANCES_AT_ONCE = 1_000
_NOBODY = "0x" + "00" * 20
_BALANCE_OF = "0x" + keccak(b"balanceOf(address)")[:4].hex()
_TOTAL_SUPPLY = "0x" + keccak(b"totalSupply()")[:4].hex()


@dataclass(frozen=True)
class Mint:
    """A RewardMinted log; the fields of its reference follow docs/contracts.md."""

    recipient: str
    reference: bytes
    amount: int
    transaction_hash: str
    block_hash: str

    @property
    def reward(self) -> UUID:
        return UUID(bytes=self.reference[:16])

    @property
    def kind(self) -> int:
        return self.reference[16]

    @property
    def seq(self) -> int:
        return int.from_bytes(self.reference[24:], "big")


async def mints_on_chain(instance: Instance) -> list[Mint]:
    return await _mints(instance.rpc, {"address": instance.ltz, "fromBlock": "0x0"})


async def mints_of_block(instance: Instance, block_hash: str) -> list[Mint]:
    return await _mints(instance.rpc, {"address": instance.ltz, "blockHash": block_hash})


async def _mints(rpc: Rpc, where: dict[str, str]) -> list[Mint]:
    logs = await rpc("eth_getLogs", where | {"topics": [_REWARD_MINTED]})
    return [mint_of(log) for log in logs]


def mint_of(log: dict[str, Any]) -> Mint:
    return Mint(
        recipient="0x" + log["topics"][1][-40:],
        reference=bytes.fromhex(log["topics"][2][2:]),
        amount=int(log["data"], 16),
        transaction_hash=log["transactionHash"],
        block_hash=log["blockHash"],
    )


async def mint_logs(rpc: Rpc, transaction_hash: str) -> list[Mint]:
    """The RewardMinted logs of a receipt."""
    receipt = await rpc.receipt(transaction_hash)
    return [mint_of(log) for log in receipt["logs"] if log["topics"][0] == _REWARD_MINTED]


async def balances_on_chain(instance: Instance, wallets: Iterable[str]) -> dict[str, int]:
    remaining = list(wallets)
    balances: dict[str, int] = {}
    while remaining:
        batch, remaining = remaining[:_BALANCES_AT_ONCE], remaining[_BALANCES_AT_ONCE:]
        balances |= await _balances(instance, batch)
    return balances


async def _balances(instance: Instance, wallets: list[str]) -> dict[str, int]:
    batch = [
        {
            "jsonrpc": "2.0",
            "id": number,
            "method": "eth_call",
            "params": [
                {"to": instance.ltz, "data": _BALANCE_OF + "00" * 12 + wallet[2:]},
                "latest",
            ],
        }
        for number, wallet in enumerate(wallets)
    ]
    replies = {reply["id"]: reply["result"] for reply in await instance.rpc.post(batch)}
    return {wallet: int(replies[number], 16) for number, wallet in enumerate(wallets)}


async def indexed_balances(instance: Instance) -> dict[str, int]:
    async with instance.database() as connection:
        rows = await connection.fetch("SELECT wallet, amount FROM balances")
    return {"0x" + row["wallet"].hex(): int(row["amount"]) for row in rows}


async def total_supply(instance: Instance) -> int:
    call = {"to": instance.ltz, "data": _TOTAL_SUPPLY}
    return int(await instance.rpc("eth_call", call, "latest"), 16)


async def minted_so_far(instance: Instance, seconds: float = 60.0) -> None:
    """Waits until every reward of this moment is minted, while a load goes on adding others."""
    owed = "SELECT coalesce(array_agg(id), '{}') FROM rewards WHERE mint_block_hash IS NULL"
    ids = await instance.ask(owed)

    async def none_owed() -> bool:
        return not await instance.ask(f"{owed} AND id = ANY($1)", ids)

    await until(none_owed, seconds)


async def all_minted(instance: Instance, seconds: float = 60.0) -> None:
    """Waits until every reward is minted."""

    async def none_owed() -> bool:
        owed = await instance.ask("SELECT count(*) FROM rewards WHERE mint_block_hash IS NULL")
        assert isinstance(owed, int)
        return owed == 0

    await until(none_owed, seconds)


async def assert_books_agree(instance: Instance, answers: Iterable[Answer] = ()) -> None:
    """Checks that every event, payment, check-in and milestone is minted exactly once, that nothing
    else is minted, and that all balances agree."""
    mints = await mints_on_chain(instance)
    times = Counter(mint.reward for mint in mints)
    assert not [reward for reward, count in times.items() if count > 1], "minted twice"
    by_reward = {mint.reward: mint for mint in mints}
    async with instance.database() as connection:
        rewards = await connection.fetch("SELECT * FROM rewards")
        facts = await connection.fetch("SELECT reference, amount, block_hash FROM mints")
        events = await connection.fetchval("SELECT count(*) FROM events WHERE ltz > 0")
        payments = await connection.fetchval("SELECT count(*) FROM payments")
        claims = await connection.fetchval(
            "SELECT (SELECT count(reward_id) FROM check_ins)"
            "     + (SELECT count(*) FROM milestone_claims)"
        )
        nonces = await connection.fetchval("SELECT count(*) FROM transactions")
    assert len(rewards) == events + payments + claims
    assert {row["id"] for row in rewards} == by_reward.keys(), "rewards and chain differ"
    for row in rewards:
        mint = by_reward[row["id"]]
        owed = (row["wallet"].hex(), row["ltz"] * LTZ, row["kind"], row["seq"])
        assert owed == (mint.recipient[2:], mint.amount, mint.kind, mint.seq)
        assert "0x" + row["mint_block_hash"].hex() == mint.block_hash
        assert "0x" + row["mint_transaction_hash"].hex() == mint.transaction_hash
    assert sorted(
        (row["reference"], row["amount"], row["block_hash"].hex()) for row in facts
    ) == sorted((mint.reference, Decimal(mint.amount), mint.block_hash[2:]) for mint in mints)
    for answer in answers:
        assert answer.status in {200, 202}
        assert UUID(answer.event_id) in by_reward, f"answered {answer.status}, never minted"
    await _assert_balances(instance)
    assert await _nonces_used(instance) == nonces, "a nonce without a transaction, or the reverse"


async def _assert_balances(instance: Instance) -> None:
    expected: Counter[str] = Counter()
    where = {"address": instance.ltz, "fromBlock": "0x0", "topics": [_TRANSFER]}
    for log in await instance.rpc("eth_getLogs", where):
        source, to = ("0x" + topic[-40:] for topic in log["topics"][1:3])
        expected[source] -= int(log["data"], 16)
        expected[to] += int(log["data"], 16)
    del expected[_NOBODY]
    indexed = {
        wallet: amount for wallet, amount in (await indexed_balances(instance)).items() if amount
    }
    assert indexed == {wallet: amount for wallet, amount in expected.items() if amount}
    assert indexed == await balances_on_chain(instance, indexed)
    assert sum(indexed.values()) == await total_supply(instance)


async def _nonces_used(instance: Instance) -> int:
    wallets = [instance.minter, *instance.dev_json["operators"]]
    counts = [await instance.rpc("eth_getTransactionCount", each, "latest") for each in wallets]
    return sum(int(count, 16) for count in counts)
