"""The answers of /relay: waiting, failures, and callers who give up."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import pytest_asyncio
from msgspec import structs
from msgspec.structs import replace

from ltzd.actions.constraints.evaluation import PurchaseConstraints
from ltzd.actions.relayer import admission
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.relayer import Relayer, RelayPolicy
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.chain.contracts import contract_abi
from ltzd.concurrency.clock import loop_time
from ltzd.concurrency.futures import done_future
from ltzd.errors import (
    DatabaseUnavailable,
    InvalidFields,
    NodeUnavailable,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    Refused,
    RelayPending,
    TransactionFailed,
    Unavailable,
    ValidationFailed,
)
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.operator.requests import Action
from ltzd.rules.relayer import limits
from ltzd.rules.relayer.calls import (
    RelayProgress,
    RelayRequest,
    RelayStatus,
    RelayWindow,
    SignedPermit,
)
from ltzd.rules.relayer.gas_budgets import GasBudgets
from ltzd.store.database import Connection, Pool, open_pool, session, transaction
from ltzd.store.operator import requests
from ltzd.store.relayer import relays
from ltzd.values import Address
from tests.support.chain.chain_kinds import OpStackNode
from tests.support.chain.fake_node import CHAIN_ID, ETHER
from tests.support.relays.allowed_calls import CONTRACTS
from tests.support.relays.lanes import RelayWorld, a_relay_world, row_states
from tests.support.rows.core import running, value
from tests.support.waiting import until

USER = Address(b"\xa1" * 20)
PATIENT = RelayPolicy(wait_seconds=60.0)
SHORT = RelayPolicy(wait_seconds=0.6)
"""For callers who are answered before their relay has ended."""


class AllowAll:
    """Tokens and constraints that refuse no request. `checked` are the claims' constraints."""

    def __init__(self) -> None:
        self.checked: list[tuple[object, ...]] = []

    async def require_wallet(self, _user: TokenUser, _wallet: Address) -> None: ...

    def begin_migration(self, _user: TokenUser) -> asyncio.Future[None]:
        return done_future(None)

    async def wallets_of(self, _user: TokenUser) -> list[Address]:
        return [USER]

    async def check(self, *claim: object) -> None:
        self.checked.append(claim)


CALLER = TokenUser("somebody", None)


class RelayerProcess:
    """The relayer of one http process, and requests of its users."""

    def __init__(self, world: RelayWorld) -> None:
        self.world = world
        self._numbers = iter(range(1, 1_000))
        self.allow_all = AllowAll()
        self._context = RelayContext.create(
            world.pool,
            world.wakeups,
            world.node.node,
            replace(CONTRACTS, chain_id=CHAIN_ID),
            FeePolicy(cap=100 * GWEI),
        )
        self._relayers: list[Relayer] = []

    @property
    def loops(self) -> list[Coroutine[Any, Any, None]]:
        return [self._context.waiters.run(), *(relayer.run() for relayer in self._relayers)]

    def relayer(self, policy: RelayPolicy = PATIENT) -> Relayer:
        relayer = Relayer(
            self._context,
            cast("TokenAuthenticator", self.allow_all),
            cast("PurchaseConstraints", self.allow_all),
            policy,
        )
        self._relayers.append(relayer)
        return relayer

    def request(
        self,
        key: str | None = None,
        user: Address = USER,
        **changes: Any,
    ) -> RelayRequest:
        """Builds a `lockFor` of a new deal: not serialized, and checked without chain reads."""
        deal = next(self._numbers).to_bytes(32, "big")
        data = contract_abi.encode_call(
            "BusinessEscrow", "lockFor", user, b"\xb5" * 20, 5, 2**39, deal
        )
        request = RelayRequest(
            CONTRACTS.business_escrow,
            data,
            user,
            gas_limit=90_000,
            idempotency_key=key,
            fingerprint=deal,
        )
        return structs.replace(request, **changes)


@pytest_asyncio.fixture
async def process(database_url: str, pool: Pool) -> AsyncIterator[RelayerProcess]:
    async with a_relay_world(database_url, pool, pool) as world:
        yield RelayerProcess(world)


async def submit(
    relayer: Relayer, request: RelayRequest, caller: TokenUser = CALLER
) -> tuple[RelayProgress, RelayWindow]:
    begun = await relayer.begin(caller, request)
    return await relayer.submit(caller, request, begun)


async def relayed(
    relayer: Relayer, request: RelayRequest, caller: TokenUser = CALLER
) -> RelayProgress:
    relay, _ = await submit(relayer, request, caller)
    return relay


async def sent_in_time(relayer: Relayer, request: RelayRequest) -> RelayProgress | None:
    """Returns None if the lane has signed nothing in time, as on a machine that stands still."""
    try:
        return await relayed(relayer, request)
    except RelayPending:
        raise
    except Unavailable:
        return None


async def is_written(process: RelayerProcess, *wanted: str) -> None:
    async def is_reached() -> bool:
        return await row_states(process.world.observer) == list(wanted)

    await until(is_reached)


async def test_a_relay_is_answered_when_it_is_mined(process: RelayerProcess) -> None:
    relayer = process.relayer()
    async with running(*process.loops), process.world.relaying():
        process.world.node.mines_at_once = True
        relay, window = await submit(relayer, process.request())
    assert (relay.status, window.remaining) == (RelayStatus.CONFIRMED, 34)
    assert relay.gas_used == 50_000


async def test_an_expired_permit_is_refused_by_name_before_anything_is_simulated(
    process: RelayerProcess,
) -> None:
    relayer, node = process.relayer(), process.world.node
    deadline = int(time.time()) - 1
    expired = SignedPermit(USER, CONTRACTS.business_escrow, 5, deadline, bytes(65))
    async with running(*process.loops), process.world.relaying():
        with pytest.raises(InvalidFields) as refused:
            await relayed(relayer, process.request(permit=expired, gas_limit=None))
        assert refused.value.details == {
            "errors": ["metadata.permit.deadline: must not have passed"]
        }
        assert node.call_counts["eth_estimateGas"] == 0


async def test_a_relay_is_answered_again_after_its_permit_has_expired(
    process: RelayerProcess,
) -> None:
    relayer = process.relayer()
    expired = SignedPermit(USER, CONTRACTS.business_escrow, 5, 1, bytes(65))
    async with running(*process.loops), process.world.relaying():
        process.world.node.mines_at_once = True
        request = process.request(key="k")
        first = await relayed(relayer, request)
        again = await relayed(relayer, structs.replace(request, permit=expired))
    assert again.transaction_hash == first.transaction_hash


async def test_a_published_relay_that_is_not_mined_in_time_is_pending_and_stays_in_flight(
    process: RelayerProcess,
) -> None:
    relayer, patient = process.relayer(SHORT), process.relayer()
    async with running(*process.loops), process.world.relaying():
        request = process.request(key="k")
        relay = await until(lambda: sent_in_time(relayer, request))
        assert relay is not None
        assert relay.status is RelayStatus.PENDING
        assert relay.transaction_hash in process.world.node.pool
        process.world.node.mine()
        again = await relayed(patient, request)
    assert again.status is RelayStatus.CONFIRMED
    assert again.transaction_hash == relay.transaction_hash
    assert len(process.world.node.executed()) == 1


async def test_a_replay_that_began_before_its_relay_was_stored_is_answered_with_it(
    process: RelayerProcess,
) -> None:
    """Mined meanwhile, the call itself would be refused: a permit is used once, fees have risen."""
    relayer, elsewhere = process.relayer(), RelayerProcess(process.world)
    replaying = elsewhere.relayer()
    async with running(*process.loops, *elsewhere.loops), process.world.relaying() as lane:
        process.world.node.mines_at_once = True
        request = process.request(key="k")
        before = await relayer.begin(CALLER, request)
        relay = await relayed(relayer, request)
        process.world.node.base_fee = 300 * GWEI
        process.world.node.mine()
        await until(lambda: _true(not lane.is_ready))
        with pytest.raises(ValidationFailed, match="gas price"):
            await relayed(replaying, process.request())

        again, window = await replaying.submit(CALLER, request, before)

    assert (again, window.remaining) == (relay, 34)


async def test_a_relays_hash_is_returned_only_after_a_node_accepted_the_transaction(
    process: RelayerProcess,
) -> None:
    """Until then the relay is unavailable, and a repeated request joins the signed one."""
    relayer, node = process.relayer(SHORT), process.world.node
    node.refuses = lambda _sent: True
    async with running(*process.loops), process.world.relaying():
        request = process.request(key="k")
        with pytest.raises(RelayPending):
            await until(lambda: sent_in_time(relayer, request))
        assert await row_states(process.world.observer) == ["sent"]
        hash_ = node.sent()[0].hash
        with pytest.raises(NotFound):
            await relayer.find(CALLER, hash_)

        node.refuses = lambda _sent: False
        await until(lambda: is_taken(process))
        relay = await relayed(relayer, request)
        assert (relay.status, relay.transaction_hash) == (
            RelayStatus.PENDING,
            hash_,
        )
        assert (await relayer.find(CALLER, hash_))[0] == relay
    assert len({sent.hash for sent in node.sent()}) == 1


async def is_taken(process: RelayerProcess) -> bool:
    return bool(process.world.node.pool)


async def test_a_relay_that_the_network_refuses_fails_once_its_cancellation_is_final(
    process: RelayerProcess,
) -> None:
    relayer, node = process.relayer(), process.world.node
    node.refuses = lambda sent: "exceeds block gas limit" if sent.data else False
    async with running(*process.loops), process.world.relaying():
        request = process.request(key="k")
        waiting = asyncio.create_task(relayed(relayer, request))
        await until(lambda: is_taken(process))
        node.mine(2)
        await process.world.settled("mined")
        await process.world.some_polls()
        assert not waiting.done()
        node.mine(3)
        failed = await waiting
        assert (failed.status, failed.is_cancelled) == (RelayStatus.FAILED, True)
        assert failed.reason == "the network refused the transaction"
        again = await relayed(relayer, request)
    assert again == failed
    assert node.executed().total() == 0


async def test_a_relay_that_a_person_cancels_fails_with_that_reason(
    process: RelayerProcess,
) -> None:
    relayer, world = process.relayer(), process.world
    async with running(*process.loops), world.relaying():
        waiting = asyncio.create_task(relayed(relayer, process.request(key="k")))
        await world.settled("published")
        async with transaction(world.observer) as connection:
            tx = await connection.fetchval("SELECT id FROM transactions")
            await requests.ask(connection, tx, Action.CANCEL, expires_in_seconds=None)

        async def is_replaced() -> bool:
            return any(sent.is_self_transfer for sent in world.node.pool.values())

        await until(is_replaced)
        world.node.mine(5)
        failed = await waiting
    assert (failed.status, failed.is_cancelled) == (RelayStatus.FAILED, True)
    assert failed.reason == "the operator cancelled the transaction"
    assert world.node.executed().total() == 0


async def test_a_relay_that_cannot_be_signed_fails_at_once_and_does_not_block_others(
    process: RelayerProcess,
) -> None:
    """The block gas limit fell below the relay's gas limit after it was admitted."""
    relayer, node = process.relayer(), process.world.node
    node.block_gas_limit, node.mines_at_once = 80_000, True
    node.mine()
    async with running(*process.loops), process.world.relaying():
        with pytest.raises(TransactionFailed, match="above the 80000 that a block holds"):
            await relayed(relayer, process.request())
        relay, window = await submit(relayer, process.request(gas_limit=70_000))
    assert relay.status is RelayStatus.CONFIRMED
    assert window.remaining == 34, "a relay that was not sent does not count"


async def test_a_relay_that_no_lane_signs_in_time_is_withdrawn_and_never_sent(
    process: RelayerProcess,
) -> None:
    relayer, patient = process.relayer(SHORT), process.relayer()
    process.world.node.balance = 1
    async with running(*process.loops), process.world.relaying():
        with pytest.raises(Unavailable, match="in time"):
            await relayed(relayer, process.request())
        assert await row_states(process.world.observer) == []
        process.world.node.balance = 1_000 * ETHER
        process.world.node.mines_at_once = True
        await relayed(patient, process.request())
    assert len(process.world.node.executed()) == 1


async def test_a_joining_caller_withdraws_the_relay_that_its_first_caller_left(
    process: RelayerProcess,
) -> None:
    relayer, patient = process.relayer(SHORT), process.relayer()
    request = process.request(key="k")
    process.world.node.balance = 1
    async with running(*process.loops), process.world.relaying():
        first = asyncio.create_task(relayed(patient, request))
        await is_written(process, "queued")
        first.cancel()
        with pytest.raises(Unavailable, match="in time"):
            await relayed(relayer, request)
        assert await row_states(process.world.observer) == []


async def test_the_caller_of_a_relay_whose_commit_was_not_answered_learns_that_it_may_be_sent(
    process: RelayerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other 503 says that nothing was sent, and its caller signs the call again."""
    insert = relays.insert

    async def insert_without_answer(connection: Any, new: Any) -> list[int | None]:
        await insert(connection, new)
        raise ConnectionResetError

    relayer, request = process.relayer(), process.request(key="k")
    async with running(*process.loops), process.world.relaying():
        process.world.node.mines_at_once = True
        with monkeypatch.context() as patch:
            patch.setattr(relays, "insert", insert_without_answer)
            with pytest.raises(OutcomeUnknown):
                await relayed(relayer, request)
        again = await relayed(relayer, request)
    assert again.status is RelayStatus.CONFIRMED
    assert len(process.world.node.executed()) == 1


async def test_a_relay_that_gets_no_connection_is_answered_as_one_that_will_never_be_sent(
    process: RelayerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller without an idempotency key could not tell whether to sign the call anew."""

    @asynccontextmanager
    async def session_in_a_crowd(_pool: Pool) -> AsyncIterator[Connection]:
        crowded = await open_pool(process.world.url, size=1, open_at_start=1, wait_seconds=0.01)
        try:
            async with session(crowded), session(crowded) as connection:
                yield connection
        finally:
            crowded.terminate()

    relayer = process.relayer()
    monkeypatch.setattr(admission, "session", session_in_a_crowd)
    async with running(*process.loops), process.world.relaying():
        with pytest.raises(DatabaseUnavailable, match="No database connection became free"):
            await relayed(relayer, process.request())
    assert await row_states(process.world.observer) == []


async def test_a_caller_learns_that_a_relay_may_be_sent_if_the_database_is_lost_at_the_deadline(
    process: RelayerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(*_: object) -> bool:
        raise ConnectionResetError

    relayer, patient = process.relayer(SHORT), process.relayer()
    request = process.request(key="k")
    async with running(*process.loops), process.world.relaying():
        with monkeypatch.context() as patch:
            patch.setattr(relays, "withdraw", lose)
            with pytest.raises(OutcomeUnknown):
                await relayed(relayer, request)
        await until(lambda: _true(bool(process.world.node.pool)))
        process.world.node.mine()
        again = await relayed(patient, request)
    assert again.status is RelayStatus.CONFIRMED
    assert len(process.world.node.executed()) == 1


async def test_a_relay_held_back_by_the_gas_price_is_refused_with_that_price(
    process: RelayerProcess,
) -> None:
    relayer = process.relayer()
    async with running(*process.loops), process.world.relaying() as lane:
        process.world.node.base_fee = 300 * GWEI
        process.world.node.mine()
        await until(lambda: _true(not lane.is_ready))
        with pytest.raises(ValidationFailed) as refused:
            await relayed(relayer, process.request())
    assert refused.value.details["maxGwei"] == 100
    assert await row_states(process.world.observer) == []


async def test_a_request_whose_simulation_took_too_long_is_not_admitted(
    process: RelayerProcess,
) -> None:
    relayer = process.relayer(RelayPolicy(wait_seconds=0.0))
    async with running(*process.loops), process.world.relaying():
        with pytest.raises(Unavailable, match="in time"):
            await relayed(relayer, process.request())
    assert await row_states(process.world.observer) == []


async def test_a_call_that_failed_on_chain_is_answered_as_failed_and_counts(
    process: RelayerProcess,
) -> None:
    relayer = process.relayer()
    async with running(*process.loops), process.world.relaying():
        request = process.request(key="k")
        waiting = asyncio.create_task(submit(relayer, request))
        await until(lambda: _true(bool(process.world.node.pool)))
        process.world.node.fails = lambda _data: True
        process.world.node.mine()
        relay, window = await waiting
        assert (relay.status, window.remaining) == (RelayStatus.FAILED, 34)
        assert await relayed(relayer, request) == relay
        with pytest.raises(TransactionFailed):
            await relayed(relayer, process.request())
    assert await row_states(process.world.observer) == ["mined"]


async def test_no_more_failures_of_a_user_are_kept_than_the_limit(
    process: RelayerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEPT_FAILURES", 2)
    relayer, node = process.relayer(), process.world.node
    async with running(*process.loops), process.world.relaying():
        node.fails, node.mines_at_once = lambda _data: True, True
        first, second, third = (process.request(key=key) for key in "abc")
        for request in (first, second, first):
            with pytest.raises(TransactionFailed):
                await relayed(relayer, request)
        with pytest.raises(RateLimited) as refused:
            await relayed(relayer, third)
        assert refused.value.details["reason"] == "failed_calls"
        retry_after: Any = refused.value.details["retryAfterSeconds"]
        assert 1 < retry_after <= 86_400
        with pytest.raises(TransactionFailed):
            await relayed(relayer, process.request())
        assert await row_states(process.world.observer) == ["failed", "failed"]
        node.fails = lambda _data: False
        assert (await relayed(relayer, third)).status is RelayStatus.CONFIRMED


async def test_a_malformed_answer_about_a_collection_makes_the_chain_unavailable(
    process: RelayerProcess,
) -> None:
    relayer = process.relayer()
    data = contract_abi.encode_call("PerkNFT", "claimFor", USER, 7, 0, 0, bytes(32))
    async with running(*process.loops), process.world.relaying():
        with pytest.raises(NodeUnavailable):
            await relayed(relayer, process.request(to=CONTRACTS.perk_nft, data=data))


async def test_a_claim_of_an_indexed_collection_asks_a_node_for_its_simulation_alone(
    process: RelayerProcess,
) -> None:
    relayer, node = process.relayer(), process.world.node
    columns = "'\\x01', '\\x01', 0, 0, 1, true, 3, false, '', 0"
    await value(process.world.observer, f"INSERT INTO collections VALUES (7, {columns})")
    data = contract_abi.encode_call("PerkNFT", "claimFor", USER, 7, 0, 0, bytes(32))
    async with running(*process.loops), process.world.relaying():
        node.mines_at_once = True
        relay = await relayed(relayer, process.request(to=CONTRACTS.perk_nft, data=data))
    assert (relay.status, node.simulated) == (RelayStatus.CONFIRMED, 1)
    assert process.allow_all.checked == [(USER, 7, CALLER, 1)], "the user's first claim"


async def _true(value: bool) -> bool:
    return value


# --- the day's gas ----------------------------------------------------------------------------

ANN, BOB = TokenUser("did:privy:ann", None), TokenUser("did:privy:bob", None)
OTHER_WALLET = Address(b"\xa2" * 20)


def budgeted(budgets: GasBudgets) -> RelayPolicy:
    return replace(PATIENT, gas_budgets=budgets)


async def reserved_wei(process: RelayerProcess) -> int:
    """Returns the wei that a relay of these tests reserves."""
    relayer = process.relayer(budgeted(GasBudgets()))
    async with running(*process.loops), process.world.relaying():
        await relayed(relayer, process.request(), TokenUser("first", None))
    reserved: int = await value(
        process.world.observer, "SELECT max(max_cost_wei)::bigint FROM relays"
    )
    return reserved


def later() -> float:
    return loop_time() + PATIENT.wait_seconds


async def reason_of(
    relayer: Relayer, request: RelayRequest, caller: TokenUser | None = None
) -> object:
    with pytest.raises(Refused) as refused:
        await relayer.send(caller, request, later())
    return type(refused.value), refused.value.details["reason"]


async def test_an_identity_has_one_budget_over_all_its_wallets_and_over_tokens_and_sessions(
    process: RelayerProcess,
) -> None:
    """A site session uses the second wallet without a token; its user's row names the identity."""
    process.world.node.mines_at_once = True
    reserved = await reserved_wei(process)
    async with session(process.world.observer) as connection:
        await connection.execute(
            "INSERT INTO users (id, email_key, identity_subject, wallet) "
            "VALUES (gen_random_uuid(), 'ann@shop.example', $1, $2)",
            ANN.subject,
            OTHER_WALLET,
        )
        cost = await connection.fetchval("SELECT max(gas_wei)::bigint FROM relays")
    relayer = process.relayer(budgeted(GasBudgets(reserved + cost)))
    async with running(*process.loops), process.world.relaying():
        await relayed(relayer, process.request(), ANN)
        session_of_ann = process.request(user=OTHER_WALLET)
        await relayer.send(None, session_of_ann, later())
        spent = (RateLimited, "gas_budget_exhausted")
        assert await reason_of(relayer, process.request(), ANN) == spent
        assert await reason_of(relayer, process.request(user=OTHER_WALLET)) == spent
        stranger = Address(b"\xa3" * 20)
        assert await reason_of(relayer, process.request(user=stranger), ANN) == spent
        await relayed(relayer, process.request(), BOB)


async def test_a_spent_total_budget_refuses_relays_before_any_request_to_a_node(
    process: RelayerProcess,
) -> None:
    process.world.node.mines_at_once = True
    await reserved_wei(process)
    relayer = process.relayer(budgeted(GasBudgets(total_wei=1)))
    methods = ("eth_call", "eth_estimateGas")
    before = [process.world.node.call_counts[method] for method in methods]
    async with running(*process.loops):
        for caller in (ANN, None):
            reason = await reason_of(relayer, process.request(), caller)
            assert reason == (ValidationFailed, "total_gas_budget_exhausted")
        with pytest.raises(ValidationFailed):
            await relayer.precheck(USER, None, ANN)
    assert [process.world.node.call_counts[method] for method in methods] == before
    assert await row_states(process.world.observer) == ["mined"]


async def test_a_relay_reserves_a_rollups_fee_for_its_data(process: RelayerProcess) -> None:
    node = process.world.node
    node.mines_at_once = True
    plain = 90_000 * (2 * node.base_fee + node.tip)
    rollup = OpStackNode()
    node._methods["eth_getCode"] = rollup._code
    node.run_call = rollup.run_call  # type: ignore[method-assign]
    data_bytes = len(process.request().data)
    l1_fee = rollup.l1_fee(data_bytes + 200)
    assert plain + l1_fee < await reserved_wei(process) < plain + 3 * l1_fee
