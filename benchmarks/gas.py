"""Gas of a reward that is minted alone, in a batch of 100, and among 200 concurrent users.

Batches of 100 are also measured with several rewards of each wallet, which LTZ pays once.

The mints are real, their cost is read from receipts, and nothing is timed. Batches of 100
form while the brand is paused. The batches of 200 concurrent users are those that ltzd makes
of it.
"""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import instance, load, results
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Plan
from benchmarks.harness.results import Measurement, Ratio
from benchmarks.harness.sides import CLIENTS
from ltzd.chain.contracts.ltz import MAX_BATCH, REWARD_MINTED_TOPIC
from ltzd.chain.node.rpc import Rpc
from ltzd.values import hex_of

FIRST = range(1)
"""The first mint sets the slots of supply and limit from zero, which no later mint pays for."""
LONE = range(1, 101)
BATCHED = range(101, 601)
CONCURRENT = range(601, 801)
WITH_WALLETS = range(801)
NEW_USERS = range(801, 1_001)
"""Users whose wallets are created by the measured event."""
RUNS = (2, 4, 10)
"""Rewards of each wallet in batches of 100."""


@dataclass(frozen=True, slots=True)
class Mint:
    """A mint transaction."""

    rewards: int
    gas: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The mints of an event for each of several users (`new`), and of a second event for each."""

    new: Sequence[Mint]
    existing: Sequence[Mint]

    def as_json(self) -> dict[str, Any]:
        return {"new": _as_json(self.new), "existing": _as_json(self.existing)}


async def run(*, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with instance.started(Path(name)) as ltzd, Rpc(ltzd.dev_json["rpcUrl"]) as rpc:
            await _send(ltzd, WITH_WALLETS, CLIENTS, instance.UNREWARDED)
            await _mints(ltzd, rpc, FIRST, 1)
            lone = Cost(await _mints(ltzd, rpc, LONE, 1), await _mints(ltzd, rpc, LONE, 1))
            batched = Cost(await _batches(ltzd, rpc, BATCHED), await _batches(ltzd, rpc, BATCHED))
            at_once = len(CONCURRENT)
            concurrent = Cost(
                await _mints(ltzd, rpc, CONCURRENT, at_once),
                await _mints(ltzd, rpc, CONCURRENT, at_once),
            )
            new_users = await _mints(ltzd, rpc, NEW_USERS, len(NEW_USERS))
            runs = {
                each: await _batches(ltzd, rpc, BATCHED[: MAX_BATCH // each], each) for each in RUNS
            }
    details = {
        "lone": lone.as_json(),
        "batched": batched.as_json(),
        "concurrent": concurrent.as_json(),
        "new_users": _as_json(new_users),
        "runs": {str(each): _as_json(mints) for each, mints in runs.items()},
    }
    measurements = _measurements(lone, batched, concurrent, new_users)
    measurements += [_run_ratio(each, mints, batched.existing) for each, mints in runs.items()]
    results.record("gas", measurements, details, in_document=in_document)


async def _mints(ltzd: Instance, rpc: Rpc, users: range, clients: int) -> list[Mint]:
    """The mints of an event for each user, sent by one client in sequence."""
    before = await _head(rpc)
    await _send(ltzd, users, clients, instance.MINTED)
    return await _mints_since(ltzd, rpc, before, len(users))


async def _batches(ltzd: Instance, rpc: Rpc, users: range, each: int = 1) -> list[Mint]:
    """The mints of `each` events for each user that are all queued before the first is minted."""
    before = await _head(rpc)
    async with ltzd.paused():
        for _ in range(each):
            await _send(ltzd, users, CLIENTS, instance.MINTED)
    return await _mints_since(ltzd, rpc, before, each * len(users))


async def _send(ltzd: Instance, users: range, clients: int, kind: str) -> None:
    requests = ltzd.events(users, kind)
    plan = Plan(ltzd.port, requests, clients=clients, must_hold=instance.RECORDED)
    sent = await load.measure(plan)
    if sent.recorded != len(users):
        raise SystemExit(f"{sent.recorded} of {len(users)} recorded: {sent.first_error}")


async def _head(rpc: Rpc) -> int:
    return int(await rpc.call("eth_blockNumber"), 16)


async def _mints_since(ltzd: Instance, rpc: Rpc, block: int, rewards: int) -> list[Mint]:
    await ltzd.settle()
    where = {
        "address": ltzd.dev_json["contracts"]["LTZ"],
        "topics": [hex_of(REWARD_MINTED_TOPIC)],
        "fromBlock": hex(block + 1),
        "toBlock": "latest",
    }
    counts = Counter(log["transactionHash"] for log in await rpc.call("eth_getLogs", where))
    if counts.total() != rewards:
        raise SystemExit(f"{counts.total()} of {rewards} rewards were minted")
    receipts = await rpc.batch(
        [("eth_getTransactionReceipt", (transaction_hash,)) for transaction_hash in counts]
    )
    mints = [
        Mint(count, int(receipt["gasUsed"], 16))
        for count, receipt in zip(counts.values(), receipts, strict=True)
    ]
    sizes = Counter(mint.rewards for mint in mints)
    shown = ", ".join(f"{count} of {size}" for size, count in sizes.items())
    print(f"  {_each(mints):9,.0f} gas a reward, transactions: {shown}", flush=True)
    return mints


def _each(mints: Sequence[Mint]) -> float:
    """The mean gas of a reward."""
    return sum(mint.gas for mint in mints) / sum(mint.rewards for mint in mints)


def _as_json(mints: Sequence[Mint]) -> dict[str, Any]:
    return {
        "gas_per_reward": _each(mints),
        "transactions": [{"rewards": mint.rewards, "gas": mint.gas} for mint in mints],
    }


def _measurements(
    lone: Cost, batched: Cost, concurrent: Cost, new_users: Sequence[Mint]
) -> list[Measurement]:
    new, existing = _of(lone.new, 1), _of(lone.existing, 1)
    batch = f"gas of a reward in a batch of {MAX_BATCH}"
    many = f"gas of a reward of {len(CONCURRENT)} users at once"
    return [
        _ratio(f"{batch}, new holders", _of(batched.new, MAX_BATCH), new, 0.45, 0.434),
        _ratio(
            f"{batch}, existing holders", _of(batched.existing, MAX_BATCH), existing, 0.25, 0.239
        ),
        _ratio(f"{many}, new holders", concurrent.new, new),
        _ratio(f"{many}, existing holders", concurrent.existing, existing),
        _ratio(f"{many}, whose wallets are made for it", new_users, new),
    ]


def _run_ratio(each: int, mints: Sequence[Mint], existing: Sequence[Mint]) -> Measurement:
    name = f"gas of a reward in a batch of {MAX_BATCH}, {each} rewards of each wallet"
    ours, others = _of(mints, MAX_BATCH), _of(existing, MAX_BATCH)
    figures = f"{_each(ours):,.0f} ÷ {_each(others):,.0f} gas; {len(ours)} transaction"
    return Ratio(
        name=f"{name} ÷ wallets that differ",
        rounds=(_each(ours) / _each(others),),
        is_lower_better=True,
        figures=figures,
    )


def _of(mints: Sequence[Mint], rewards: int) -> list[Mint]:
    """The mints with exactly `rewards` rewards."""
    alike = [mint for mint in mints if mint.rewards == rewards]
    if not alike:
        raise SystemExit(f"no transaction minted {rewards} rewards")
    return alike


def _ratio(
    name: str,
    ours: Sequence[Mint],
    lone: Sequence[Mint],
    must: float | None = None,
    aim: float | None = None,
) -> Ratio:
    transactions = f"{len(ours)} transaction{'s' if len(ours) > 1 else ''}"
    return Ratio(
        name=f"{name} ÷ minted alone",
        rounds=(_each(ours) / _each(lone),),
        must=must,
        aim=aim,
        is_lower_better=True,
        figures=f"{_each(ours):,.0f} ÷ {_each(lone):,.0f} gas; {transactions}",
    )
