"""Builders of relays' rows, and a world in which relay lanes send them.

At the end of a block its lanes are cancelled, as by a kill; pauses are those of `mint_world`.
"""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest_asyncio
from msgspec.structs import replace

from ltzd.chain.contracts.artifacts import CONTRACTS
from ltzd.chain.signing import Signer, WalletSigner
from ltzd.operator.policy import LanePolicy, RelayTarget
from ltzd.operator.relays.lane import RelayLane
from ltzd.rules.operator.fees import GWEI
from ltzd.rules.relayer.admission import NewRelay
from ltzd.rules.relayer.calls import RelayPlan, RelayProgress, RequestedClaim
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.operator import lanes
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.leases import Leases, lane_lease
from ltzd.store.operator.transactions import Attempt, OpenTransaction
from ltzd.store.relayer import claims, relays
from ltzd.store.relayer.claims import ClaimedRelay
from ltzd.store.relayer.direct_lanes import DirectLanes
from ltzd.store.wakeups import RELAYS
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, OTHERS_AT, FakeNode
from tests.support.chain.mint_world import POLICY, World, true
from tests.support.rows.core import FEES, a_hash, a_wallet, running
from tests.support.waiting import until

TARGET = RelayTarget(CHAIN_ID, dict(zip(CONTRACTS, (LTZ_AT, *OTHERS_AT), strict=True)))
PERKS = OTHERS_AT[0]
USER, OTHER_USER = a_wallet(0xA1), a_wallet(0xA2)
RELAYER, OTHER_RELAYER = Signer(b"\x02" * 32), Signer(b"\x03" * 32)
MAX_COST_WEI = 100_000 * 3 * GWEI


def a_plan(
    data: bytes = b"\x01",
    user: Address = USER,
    *,
    claim: tuple[int, int] | None = None,
    serialized_per_user: bool = False,
    wallet: Address | None = None,
) -> RelayPlan:
    """A plan of one call; `claim` is a pair of collection id and expected claims."""
    return RelayPlan(
        to=PERKS,
        data=data,
        user=user,
        function="PerkNFT.claimFor" if claim else "PerkNFT.permitLTZ",
        serialized_per_user=serialized_per_user or claim is not None,
        wallet=wallet,
        claim=claim and RequestedClaim(*claim),
    )


def a_relay(
    plan: RelayPlan | None = None,
    *,
    key: str | None = None,
    failure: str | None = None,
    window_start: datetime | None = None,
    max_cost_wei: int = MAX_COST_WEI,
    identity: str | None = None,
) -> NewRelay:
    plan = plan or a_plan()
    start = window_start or datetime.now(UTC)
    return NewRelay(
        plan=plan,
        gas_limit=100_000,
        max_cost_wei=max_cost_wei,
        idempotency_key=key,
        fingerprint=hashlib.sha256(plan.data).digest(),
        window_start=None if failure else start,
        failure=failure,
        identity=identity,
    )


async def write(pool: Pool, *new_relays: NewRelay) -> list[int]:
    """Inserts relays, whatever was written for their users before."""
    async with transaction(pool) as connection:
        usages = await relays.read_usage(connection, [(new.plan.user, None) for new in new_relays])
        ids = await relays.insert(
            connection,
            [
                replace(new, version=usage.version)
                for new, usage in zip(new_relays, usages, strict=True)
            ],
        )
    return [id_ for id_ in ids if id_ is not None]


async def a_relay_lane(pool: Pool, signer: Signer = RELAYER) -> Lane:
    """Begins a term of the wallet's lane, which is served under a lease that never expires."""
    async with transaction(pool) as connection:
        lane = await lanes.begin_term(connection, CHAIN_ID, signer.address, "relay", 0)
        await lanes.report_working(connection, lane)
        await connection.execute(
            "INSERT INTO leases VALUES ($1, gen_random_uuid(), 'a test', 0, now(), now(), now(), "
            "'infinity') ON CONFLICT (name) DO UPDATE SET expires_at = 'infinity'",
            lane_lease(CHAIN_ID, signer.address),
        )
        return lane


def attempts_for(claimed: Sequence[ClaimedRelay]) -> list[Attempt]:
    """Returns an attempt for each relay, with hash and bytes derived from the relay's id."""
    return [Attempt(a_hash(f"{relay.id}"), f"{relay.id}".encode(), FEES) for relay in claimed]


async def store_signed(
    connection: Connection, lane: Lane, claimed: Sequence[ClaimedRelay], first_nonce: int = 0
) -> list[OpenTransaction]:
    return await claims.store_signed(connection, lane, claimed, attempts_for(claimed), first_nonce)


async def send(
    pool: Pool, lane: Lane, first_nonce: int = 0, limit: int = 100
) -> list[OpenTransaction]:
    """Signs the queued relays as a lane does."""
    async with session(pool) as connection:
        claimed = await claims.claim(connection, lane, limit)
        return await store_signed(connection, lane, claimed, first_nonce)


async def row_states(pool: Pool) -> list[str]:
    """Returns the states of all relays in the order of ids."""
    async with session(pool) as connection:
        rows = await connection.fetch("SELECT state FROM relays ORDER BY id")
    return [row["state"] for row in rows]


async def progress(pool: Pool, relay: int) -> RelayProgress:
    async with session(pool) as connection:
        return (await relays.progress(connection, [relay]))[relay]


class RelayWorld(World):
    """A world whose tests start relay lanes."""

    def __init__(self, url: str, pool: Pool, observer: Pool, node: FakeNode) -> None:
        super().__init__(url, pool, observer, node)
        self.direct_lanes = DirectLanes()
        self._calls = 0

    @asynccontextmanager
    async def relay_lane(
        self, policy: LanePolicy = POLICY, signer: WalletSigner = RELAYER
    ) -> AsyncIterator[RelayLane]:
        """Runs a lane, which is cancelled at the end of the block."""
        lane = RelayLane(
            self.pool,
            Leases(self.url),
            self.node.node,
            signer,
            TARGET,
            self.wakeups,
            policy,
            self.direct_lanes,
        )
        async with running(lane.run()):
            yield lane

    @asynccontextmanager
    async def relaying(
        self, policy: LanePolicy = POLICY, signer: WalletSigner = RELAYER
    ) -> AsyncIterator[RelayLane]:
        async with self.relay_lane(policy, signer) as lane:
            await until(lambda: true(lane.is_ready))
            yield lane

    async def ask(
        self, count: int = 1, user: Address = USER, wallet: Address | None = None
    ) -> list[int]:
        """Queues `count` different relays of one user."""
        first = self._calls
        self._calls += count
        new_relays = [
            a_relay(a_plan(number.to_bytes(4, "big"), user, wallet=wallet))
            for number in range(first, self._calls)
        ]
        ids = await write(self.observer, *new_relays)
        self.wakeups.notify(RELAYS)
        return ids

    async def relays_are(self, *wanted: str) -> None:
        async def is_reached() -> bool:
            return await row_states(self.observer) == list(wanted)

        await until(is_reached)

    async def executed_in_order(self) -> None:
        """Asserts that each relay was executed once, in order, with one transaction a nonce."""
        async with session(self.observer) as connection:
            rows = await connection.fetch("SELECT data FROM relays ORDER BY id")
        assert self.node.executed() == Counter(row["data"] for row in rows)
        order = [done.sent.data for block in self.node.blocks for done in block.transactions]
        assert order == [row["data"] for row in rows]
        assert all(len(contents) == 1 for contents in self.node.nonces().values())

    async def progress(self, relay: int) -> Any:
        return await progress(self.observer, relay)


@asynccontextmanager
async def a_relay_world(url: str, pool: Pool, observer: Pool) -> AsyncIterator[RelayWorld]:
    node = FakeNode()
    node.mine()
    node.final_depth = 3
    world = RelayWorld(url, pool, observer, node)
    async with running((await world.follow()).run()):
        yield world


@pytest_asyncio.fixture(name="world")
async def relay_world(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[RelayWorld]:
    async with a_relay_world(database_url, pool, observer) as world:
        yield world
