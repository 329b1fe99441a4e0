"""A relay asks a node for its simulation, and for a permit's nonce; the index answers the rest."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest
import pytest_asyncio
from eth_abi.abi import encode
from msgspec import structs
from msgspec.structs import replace

from ltzd.actions.constraints.evaluation import PurchaseConstraints
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.relayer import Relayer, RelayPolicy
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.chain.contracts import perk_nft
from ltzd.chain.relayer.calls import decode_relay
from ltzd.concurrency.futures import done_future
from ltzd.errors import Unavailable, ValidationFailed
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.indexer.contract_facts import CollectionCreated, DealLocked
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.relayer.calls import RelayRequest
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import escrow_facts, perk_facts
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Address, hex_of
from tests.support.chain.counting_node import CountingClient
from tests.support.chain.fake_node import FakeNode
from tests.support.relays.allowed_calls import (
    AMOUNT,
    AT,
    CHARGING,
    CONTRACTS,
    DEADLINE,
    DEAL_ID,
    ROWS,
    SHOP,
    USER,
    USERS_DEAL,
    Chain,
    Person,
    a_permit,
    an_ask,
    multicall,
    permit,
    transfer_from,
)
from tests.support.relays.lanes import RELAYER, a_relay_lane
from tests.support.rows.core import a_hash, follow, running
from tests.support.waiting import until

BUSINESS = Person(0x3333)
COLLECTION = 7
CALLER = TokenUser("somebody", None)
GAS_LIMIT = 500_000
NOTHING: dict[str, int] = {}
SIMULATION = {"simulation": 1, "request": 1}
WITH_A_NONCE = {"header": 1, "view": 1, "simulation": 1, "request": 3}
"""A permit's nonce is read in the block of the simulation."""
WITH_AN_INNER_CALL = {"header": 1, "view": 1, "simulation": 2, "request": 4}
"""The permit inside must take effect, so it is simulated by itself."""

EXPECTED = {
    **dict.fromkeys(ROWS, SIMULATION),
    **{f"{contract}.permitLTZ": WITH_AN_INNER_CALL for contract in CHARGING},
    "LTZ.permit": WITH_A_NONCE,
    # The nonce and the allowance.
    "LTZ.transferFrom": {"header": 1, "view": 2, "simulation": 1, "request": 3},
}


_TERMS = (hex_of(SHOP), hex_of(SHOP), AMOUNT, 0, 5, 3, True, False)
PERK_VIEWS = {
    (AT["PerkNFT"], perk_nft.collection_call(COLLECTION)): encode(
        ["((address,address,uint96,uint32,uint16,uint16,bool,bool),uint32,string)"],
        [(_TERMS, 1, "")],
    ),
    (AT["PerkNFT"], perk_nft.claims_of_call(USER.address, COLLECTION)): encode(["uint256"], [2]),
}


TRANSFER = "LTZ.transferWithAuthorization"


async def truth(value: bool) -> bool:
    return value


class AllowAll:
    """Tokens and constraints that refuse no request."""

    async def require_wallet(self, _user: TokenUser, _wallet: Address) -> None: ...

    def begin_migration(self, _user: TokenUser) -> asyncio.Future[None]:
        return done_future(None)

    async def check(self, _user: Address, *_: object) -> None: ...


class AnsweringNode(FakeNode):
    """Answers the contracts' views as `allowed_calls.Chain` does, for the caller's deals."""

    views: dict[tuple[str, str], bytes]

    def __init__(self) -> None:
        super().__init__()
        self.views = {}

    def _call(self, call: dict[str, str], tag: str | dict[str, Any] = "latest") -> str:
        answer = self.views.get((call["to"], call["data"]))
        return super()._call(call, tag) if answer is None else hex_of(answer)


class CountedRelays:
    """A relayer whose relays no lane sends, with a collection and a deal in its index."""

    def __init__(self, pool: Pool, url: str) -> None:
        self.pool = pool
        self.node = AnsweringNode()
        self.node.mine()
        self.client = CountingClient(self.node)
        self.context = RelayContext.create(
            pool, WakeupHub(url), self.client.node, CONTRACTS, FeePolicy(cap=100 * GWEI)
        )
        self.relayer = Relayer(
            self.context,
            cast("TokenAuthenticator", AllowAll()),
            cast("PurchaseConstraints", AllowAll()),
            RelayPolicy(wait_seconds=0.3),
        )

    async def index(self) -> None:
        position = LogPosition(1, a_hash("block"), 0, a_hash("transaction"))
        created = CollectionCreated(
            position, COLLECTION, SHOP, SHOP, AMOUNT, 0, 5, 3, True, False, ""
        )
        async with transaction(self.pool) as connection:
            await connection.execute(
                "INSERT INTO blocks (number, hash, parent_hash, mined_at) "
                "VALUES (1, $1, $2, now())",
                a_hash("block"),
                self.node.blocks[0].hash,
            )
            await perk_facts.insert(connection, [created])

    async def index_deal(self, business: Address) -> None:
        position = LogPosition(1, a_hash("block"), 1, a_hash("transaction"))
        locked = DealLocked(position, DEAL_ID, USER.address, business, AMOUNT, DEADLINE)
        async with transaction(self.pool) as connection:
            await escrow_facts.insert(connection, [locked])

    async def age(self, sql: str) -> None:
        async with session(self.pool) as connection:
            await connection.execute(f"UPDATE chains SET {sql}")

    async def submit(
        self, request: RelayRequest, views: Mapping[tuple[Address, bytes], bytes] | None = None
    ) -> dict[str, int]:
        """Submits a request that waits for a lane in vain; returns what the node was asked."""
        decoded = decode_relay(request, CONTRACTS)
        answers = dict(zip(decoded.required_views, Chain().answers(decoded), strict=True))
        self.node.views = {
            (hex_of(to), hex_of(data)): answer
            for (to, data), answer in (answers | dict(views or {})).items()
        }
        # The first relay of a second reads the prices for all relays of the second.
        await self.context.simulator.fees()
        await self.context.simulator.l1_costs()
        self.client.questions.clear()
        begun = await self.relayer.begin(CALLER, request)
        with pytest.raises(Unavailable, match="No relay wallet could send"):
            await self.relayer.submit(CALLER, request, begun)
        return dict(self.client.questions)


@pytest_asyncio.fixture
async def world(pool: Pool, database_url: str) -> AsyncIterator[CountedRelays]:
    world = CountedRelays(pool, database_url)
    await follow(pool, world.node)
    await a_relay_lane(pool, RELAYER)
    await world.index()
    async with running(world.context.waiters.run(), world.relayer.run()):
        yield world


def an_example(name: str, user: Person = USER) -> RelayRequest:
    contract = name.partition(".")[0]
    if name == "LTZ.transferFrom":
        data = multicall(permit(a_permit(RELAYER.address)), transfer_from())
        return an_ask(contract, data, gas_limit=GAS_LIMIT)
    return an_ask(contract, ROWS[name](user), user.address, gas_limit=GAS_LIMIT)


@pytest.mark.parametrize("name", ROWS)
async def test_a_relay_asks_a_node_for_what_the_index_does_not_know(
    world: CountedRelays, name: str
) -> None:
    user = BUSINESS if name == "BusinessEscrow.refundWithSig" else USER
    await world.index_deal(BUSINESS.address)

    assert await world.submit(an_example(name, user)) == EXPECTED[name]


async def test_a_permit_beside_a_call_costs_one_view(world: CountedRelays) -> None:
    request = structs.replace(an_example("PerkNFT.claimFor"), permit=a_permit(AT["PerkNFT"]))
    assert await world.submit(request) == WITH_A_NONCE


@pytest.mark.parametrize(
    "sql",
    [
        "head_number = cursor_number + 100",
        "stopped_reason = 'A test. Run: ltzd index repair', stopped_at = now()",
    ],
    ids=["behind", "stopped"],
)
async def test_with_an_old_index_claims_and_deals_are_read_on_chain(
    world: CountedRelays, sql: str
) -> None:
    await world.index_deal(BUSINESS.address)
    await world.age(sql)

    released = await world.submit(an_example("BusinessEscrow.releaseWithSig"))
    claimed = await world.submit(an_example("PerkNFT.claimFor"), views=PERK_VIEWS)

    assert released == WITH_A_NONCE
    # The collection and the user's claims, in one batch.
    assert claimed == {"header": 1, "view": 2, "simulation": 1, "request": 3}


async def test_a_deal_that_is_not_indexed_is_read_on_chain(world: CountedRelays) -> None:
    assert await world.submit(an_example("BusinessEscrow.reclaim")) == WITH_A_NONCE


async def test_a_stranger_to_an_indexed_deal_is_refused_without_a_node(
    world: CountedRelays,
) -> None:
    await world.index_deal(BUSINESS.address)
    request = an_example("BusinessEscrow.reclaim", BUSINESS)
    begun = await world.relayer.begin(CALLER, request)
    world.client.questions.clear()

    with pytest.raises(ValidationFailed, match="the deal's user must be the authenticated user"):
        await world.relayer.submit(CALLER, request, begun)
    assert dict(world.client.questions) == NOTHING


async def test_a_lone_call_is_simulated_once_while_its_users_relays_are_read(
    world: CountedRelays,
) -> None:
    await world.context.simulator.fees()
    await world.context.simulator.l1_costs()
    world.client.questions.clear()

    begun = await world.relayer.begin(CALLER, an_example(TRANSFER))
    await until(lambda: truth(world.client.questions["simulation"] == 1))
    with pytest.raises(Unavailable):
        await world.relayer.submit(CALLER, an_example(TRANSFER), begun)

    assert dict(world.client.questions) == SIMULATION


async def test_a_call_that_was_relayed_before_is_simulated_after_its_users_relays_are_read(
    world: CountedRelays,
) -> None:
    begun = await world.relayer.begin(CALLER, an_example(TRANSFER))
    await until(lambda: truth(world.client.questions["simulation"] == 1))
    again = replace(begun, usage=structs.replace(begun.usage, was_relayed=True))

    with pytest.raises(Unavailable):
        await world.relayer.submit(CALLER, an_example(TRANSFER), again)

    assert world.client.questions["simulation"] == 2


def test_every_kind_of_relay_is_counted() -> None:
    assert EXPECTED.keys() == ROWS.keys()
    assert USERS_DEAL.user == USER.address
