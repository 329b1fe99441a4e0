"""`ltzd tx speed-up` and `cancel`, carried out by lanes: once, also across crashes."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.errors import SignerUnavailable
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.operator.requests import Action, RequestOutcome
from ltzd.rules.relayer.calls import RelayStatus
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import requests, wallets
from ltzd.store.operator.requests import TransactionRequest
from ltzd.store.operator.wallets import WalletState
from ltzd.store.wakeups import WALLETS
from tests.support.chain.fake_node import CHAIN_ID, SentTransaction
from tests.support.chain.mint_world import POLICY, true
from tests.support.chain.signers import UnreliableSigner
from tests.support.relays.lanes import RelayWorld, a_relay_world
from tests.support.rows.core import MINTER, states, value
from tests.support.waiting import until

PATIENT = replace(POLICY, replace_after_seconds=3600.0)
"""The lane makes nothing dearer by itself, except what cannot pay."""
KINDS = ("mint", "relay")


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[RelayWorld]:
    async with a_relay_world(database_url, pool, observer) as world:
        yield world


async def ask(
    world: RelayWorld, action: Action, nonce: int = 0, seconds: float | None = None
) -> int:
    """Writes a request as the command does; returns its id."""
    tx = await value(world.observer, "SELECT id FROM transactions WHERE nonce = $1", nonce)
    async with transaction(world.observer) as connection:
        written, _ = await requests.ask(connection, tx, action, expires_in_seconds=seconds)
    world.wakeups.notify(WALLETS)
    return written.id


async def request(world: RelayWorld, id_: int) -> TransactionRequest:
    async with session(world.observer) as connection:
        written = await requests.find(connection, id_)
    assert written is not None
    return written


async def outcome(world: RelayWorld, id_: int) -> RequestOutcome:
    async def is_handled() -> RequestOutcome | None:
        return (await request(world, id_)).outcome

    handled = await until(is_handled)
    assert handled is not None
    return handled


def reserved_wei() -> float:
    shown = telemetry.REGISTRY.get_sample_value("ltzd_operator_reserved_wei", {"kind": "mint"})
    assert shown is not None
    return shown


async def attempts(world: RelayWorld) -> int:
    count: int = await value(world.observer, "SELECT count(*) FROM attempts")
    return count


async def in_pool(world: RelayWorld, count: int) -> SentTransaction:
    """Waits until the node holds only the newest of so many attempts, and returns it."""
    newest = "SELECT hash FROM attempts ORDER BY is_cancellation DESC, max_fee_per_gas DESC LIMIT 1"

    async def is_there() -> bool:
        hash_ = await value(world.observer, newest)
        return await attempts(world) == count and list(world.node.pool) == [hash_]

    await until(is_there)
    (sent,) = world.node.pool.values()
    return sent


async def begin(world: RelayWorld, kind: str) -> None:
    """Gives the lane one piece of work, and waits until a node has it."""
    await (world.queue() if kind == "mint" else world.ask())
    await world.settled("published")


async def all_minted_by_now(world: RelayWorld) -> bool:
    """Mines one more block, since requeued rewards may be signed only now."""
    world.node.mine()
    return await world.unminted() == 0


async def mint_once(world: RelayWorld) -> None:
    await until(lambda: all_minted_by_now(world))
    assert set(world.node.minted().values()) == {1}
    assert sorted(world.node.minted()) == sorted(await world.references())


# --- speed-up ---------------------------------------------------------------------------------


async def test_a_request_is_signed_once_however_long_the_signer_takes(world: RelayWorld) -> None:
    world.signer = signer = UnreliableSigner(MINTER)
    async with world.serving(PATIENT):
        await begin(world, "mint")
        signer.holds = lambda _transaction: True
        id_ = await ask(world, Action.SPEED_UP)
        await until(lambda: true(signer.requests == 2))
        for _ in range(3):
            world.node.mine(takes_pool=False)
            await world.some_polls()
        assert signer.requests == 2
        signer.holds = lambda _transaction: False
        assert await outcome(world, id_) is RequestOutcome.DONE
        await in_pool(world, 2)
        await mint_once(world)
    assert await attempts(world) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_speed_up_is_the_same_call_a_tenth_dearer(world: RelayWorld, kind: str) -> None:
    async with world.serving(PATIENT) if kind == "mint" else world.relaying(PATIENT):
        await begin(world, kind)
        first = await in_pool(world, 1)

        id_ = await ask(world, Action.SPEED_UP)

        assert await outcome(world, id_) is RequestOutcome.DONE
        second = await in_pool(world, 2)
        assert (second.call, second.nonce) == (first.call, first.nonce)
        assert second.max_fee_per_gas * 10 >= first.max_fee_per_gas * 11
        assert second.tip * 10 >= first.tip * 11
        assert (await request(world, id_)).attempt == second.hash
        world.node.mine(4)
        await world.settled("confirmed")
    assert await attempts(world) == 2


async def test_a_speed_up_pays_at_least_todays_price(world: RelayWorld) -> None:
    patient = replace(PATIENT, repeat_seconds=3600.0)
    async with world.serving(patient):
        await begin(world, "mint")
        world.node.base_fee, world.node.tip = 20 * GWEI, 2 * GWEI
        world.node.mine()
        await world.some_polls()

        assert await outcome(world, await ask(world, Action.SPEED_UP)) is RequestOutcome.DONE
        sent = await in_pool(world, 2)
    assert sent.max_fee_per_gas >= 42 * GWEI
    assert sent.tip >= 2 * GWEI


@pytest.mark.parametrize("action", Action)
async def test_the_cap_holds_for_people_too(world: RelayWorld, action: Action) -> None:
    async with world.serving(replace(PATIENT, fees=FeePolicy(cap=2_200_000_000))):
        await begin(world, "mint")
        await until(lambda: nearly_at_the_cap(world))

        assert await outcome(world, await ask(world, action)) is RequestOutcome.FEES
        assert (await in_pool(world, await attempts(world))).max_fee_per_gas <= 2_200_000_000


async def nearly_at_the_cap(world: RelayWorld) -> bool:
    """Asks for speed-ups until one is refused."""
    return await outcome(world, await ask(world, Action.SPEED_UP)) is RequestOutcome.FEES


async def test_without_funds_nothing_is_made_dearer(world: RelayWorld) -> None:
    async with world.serving(PATIENT):
        await begin(world, "mint")
        world.node.balance = 1
        await world.some_polls()

        assert await outcome(world, await ask(world, Action.SPEED_UP)) is RequestOutcome.FUNDS
    assert await attempts(world) == 1


async def test_what_is_mined_is_not_made_dearer(world: RelayWorld) -> None:
    async with world.serving(PATIENT):
        await begin(world, "mint")
        world.node.mine()
        await world.settled("mined")

        for action in Action:
            assert await outcome(world, await ask(world, action)) is RequestOutcome.MINED
    assert await attempts(world) == 1


# --- cancel -----------------------------------------------------------------------------------


async def test_a_cancelled_mints_rewards_are_minted_anew_once_that_is_final(
    world: RelayWorld,
) -> None:
    async with world.serving(PATIENT):
        await world.queue(3)
        await world.settled("published")
        mint = await in_pool(world, 1)

        assert await outcome(world, await ask(world, Action.CANCEL)) is RequestOutcome.DONE
        empty = await in_pool(world, 2)
        assert empty.is_self_transfer
        assert empty.max_fee_per_gas * 10 >= mint.max_fee_per_gas * 11
        world.node.mine()
        await world.settled("mined")
        await world.some_polls()
        assert await states(world.observer) == ["mined"], "a reorg could restore the mint"
        assert await value(world.observer, "SELECT count(seq) FROM rewards") == 3

        world.node.mine(4)
        await world.settled("cancelled", "published")
        await mint_once(world)
    assert await value(world.observer, "SELECT max(cancelled_mints) FROM rewards") == 0
    assert len(world.node.self_transfers()) == 1


async def test_a_cancelled_relay_fails_once_that_is_final(world: RelayWorld) -> None:
    (relay,) = await world.ask()
    async with world.relaying(PATIENT):
        await world.settled("published")
        assert await outcome(world, await ask(world, Action.CANCEL)) is RequestOutcome.DONE
        await in_pool(world, 2)
        world.node.mine()
        await world.settled("mined")
        assert (await world.progress(relay)).status is RelayStatus.PENDING
        world.node.mine(4)
        await world.settled("cancelled")
        assert (await world.progress(relay)).status is RelayStatus.FAILED
    assert world.node.executed().total() == 0


async def test_a_cancelled_mint_that_is_mined_all_the_same_is_not_minted_again(
    world: RelayWorld,
) -> None:
    async with world.serving(PATIENT):
        await begin(world, "mint")
        mint = await in_pool(world, 1)
        assert await outcome(world, await ask(world, Action.CANCEL)) is RequestOutcome.DONE
        await in_pool(world, 2)
        world.node.pool = {mint.hash: mint}
        world.node.mine(4)
        await world.settled("confirmed")
    assert world.node.minted().total() == 1
    assert world.node.self_transfers() == []


async def test_a_cancelled_transaction_is_made_dearer_as_its_self_transfer(
    world: RelayWorld,
) -> None:
    async with world.serving(PATIENT):
        await begin(world, "mint")
        assert await outcome(world, await ask(world, Action.CANCEL)) is RequestOutcome.DONE
        first = await in_pool(world, 2)
        assert await outcome(world, await ask(world, Action.CANCEL)) is RequestOutcome.CANCELLED
        assert await outcome(world, await ask(world, Action.SPEED_UP)) is RequestOutcome.DONE
        second = await in_pool(world, 3)
    assert first.is_self_transfer
    assert second.is_self_transfer
    assert second.max_fee_per_gas * 10 >= first.max_fee_per_gas * 11


# --- lanes that do not sign -------------------------------------------------------------------


@pytest.mark.parametrize("action", Action)
async def test_a_lane_paused_by_hand_still_carries_requests_out(
    world: RelayWorld, action: Action
) -> None:
    async with world.serving(PATIENT) as lane:
        await begin(world, "mint")
        async with session(world.observer) as connection:
            await wallets.add(connection, CHAIN_ID, MINTER.address, "mint")
            await wallets.set_paused(connection, CHAIN_ID, MINTER.address, "night shift")
        world.wakeups.notify(WALLETS)
        await until(lambda: true(lane.pause.reason == "by_hand"))
        await world.queue()

        assert await outcome(world, await ask(world, action)) is RequestOutcome.DONE
        await in_pool(world, 2)
        assert await states(world.observer) == ["published"], "a paused lane signed new work"


async def test_a_retired_wallets_transactions_are_not_replaced(world: RelayWorld) -> None:
    async with world.serving(PATIENT):
        await begin(world, "mint")
        async with session(world.observer) as connection:
            await wallets.add(connection, CHAIN_ID, MINTER.address, "mint")
            await wallets.set_state(connection, CHAIN_ID, MINTER.address, WalletState.RETIRED)
        world.wakeups.notify(WALLETS)

        async def is_retired() -> bool:
            handled = await outcome(world, await ask(world, Action.SPEED_UP))
            return handled is RequestOutcome.NO_KEY

        await until(is_retired)


async def test_a_signer_that_is_away_is_the_outcome(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.serving(PATIENT):
        await begin(world, "mint")

        async def refuse(*_: object) -> None:
            raise SignerUnavailable("The signer does not answer")

        with monkeypatch.context() as patch:
            patch.setattr(type(MINTER), "sign_all", refuse)
            assert await outcome(world, await ask(world, Action.SPEED_UP)) is RequestOutcome.SIGNER
        assert await attempts(world) == 1

        async def is_done() -> bool:
            handled = await outcome(world, await ask(world, Action.SPEED_UP))
            return handled is RequestOutcome.DONE

        await until(is_done)


async def test_a_request_without_a_lane_is_withdrawn_for_good(world: RelayWorld) -> None:
    async with world.serving(PATIENT):
        await begin(world, "mint")
    withdrawn = await ask(world, Action.CANCEL)
    lapsed = await ask(world, Action.SPEED_UP, seconds=0.0)
    async with session(world.observer) as connection:
        assert await requests.withdraw(connection, withdrawn)
    async with world.serving(PATIENT):
        assert await outcome(world, lapsed) is RequestOutcome.EXPIRED
        world.node.mine(4)
        await world.settled("confirmed")
    assert await outcome(world, withdrawn) is RequestOutcome.WITHDRAWN
    assert await attempts(world) == 1


async def test_a_request_that_was_left_is_carried_out_by_the_next_term(world: RelayWorld) -> None:
    async with world.serving(PATIENT):
        await begin(world, "mint")
    id_ = await ask(world, Action.CANCEL)
    async with world.serving(PATIENT):
        assert await outcome(world, id_) is RequestOutcome.DONE
        assert (await in_pool(world, 2)).is_self_transfer


# --- crashes between two steps ----------------------------------------------------------------


async def fail(*_: object) -> None:
    raise ConnectionResetError("connection lost")


async def nothing_stored(world: RelayWorld) -> bool:
    return await attempts(world) == 1


async def stored(world: RelayWorld) -> bool:
    return await attempts(world) == 2


async def taken(world: RelayWorld) -> bool:
    return len(world.node.sent()) >= 2


STEPS: dict[str, Callable[[RelayWorld], Awaitable[bool]]] = {
    "before the attempt is stored": nothing_stored,
    "after the attempt, before the outcome": nothing_stored,
    "after both, before a node has the bytes": stored,
    "after a node has the bytes, before that is written down": taken,
}


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", STEPS)
async def test_a_crash_between_any_two_steps_carries_a_request_out_once(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch, kind: str, step: str, action: Action
) -> None:
    lane = world.serving if kind == "mint" else world.relaying
    async with lane(PATIENT):
        await begin(world, kind)
    with monkeypatch.context() as patch:
        match step:
            case "before the attempt is stored":
                patch.setattr("ltzd.store.operator.transactions.store_attempt", fail)
            case "after the attempt, before the outcome":
                patch.setattr("ltzd.store.operator.requests.carry_out", fail)
            case "after both, before a node has the bytes":
                patch.setattr(world.node, "refuses", lambda sent: "full")
            case _:
                patch.setattr("ltzd.store.operator.transactions.mark_published", fail)
        dying = world.lane if kind == "mint" else world.relay_lane
        async with dying(PATIENT):
            id_ = await ask(world, action)
            await until(lambda: STEPS[step](world))
            await world.some_polls()
    async with lane(PATIENT):
        assert await outcome(world, id_) is RequestOutcome.DONE
        newest = await in_pool(world, 2)
        await world.some_polls()
        assert newest.is_self_transfer == (action is Action.CANCEL)
        assert (await request(world, id_)).attempt == newest.hash
        world.node.mine(5)
        if kind == "mint":
            await mint_once(world)
        else:
            await world.settled("cancelled" if action is Action.CANCEL else "confirmed")
    expected = 3 if (kind, action) == ("mint", Action.CANCEL) else 2
    assert await attempts(world) == expected, "a request was carried out twice"


async def test_a_request_withdrawn_while_it_is_carried_out_changes_nothing(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a process that is frozen between reading the request and storing the attempt."""
    sign_all = type(MINTER).sign_all

    async def withdraw_first(*arguments: Any) -> Any:
        async with session(world.observer) as connection:
            for each in await value(
                world.observer, "SELECT array_agg(id) FROM transaction_requests"
            ):
                await requests.withdraw(connection, each)
        return await sign_all(*arguments)

    async with world.serving(PATIENT):
        await begin(world, "mint")
        with monkeypatch.context() as patch:
            patch.setattr(type(MINTER), "sign_all", withdraw_first)
            id_ = await ask(world, Action.CANCEL)
            assert await outcome(world, id_) is RequestOutcome.WITHDRAWN
            await world.some_polls()
        assert await attempts(world) == 1
        world.node.mine(4)
        await world.settled("confirmed")


async def test_a_speed_up_withdrawn_while_its_signature_is_late_holds_back_no_funds(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C: else its cost would be reserved until a person asks something again."""
    monkeypatch.setattr("ltzd.operator.resubmission.attempt_signing._PATIENCE_SECONDS", 0)
    world.signer = signer = UnreliableSigner(MINTER)
    async with world.serving(PATIENT) as lane:
        await begin(world, "mint")
        signer.holds = lambda _transaction: True
        id_ = await ask(world, Action.SPEED_UP)
        await until(lambda: true(signer.requests == 2))
        async with session(world.observer) as connection:
            assert await requests.withdraw(connection, id_)
            await wallets.add(connection, CHAIN_ID, MINTER.address, "mint")
            await wallets.set_paused(connection, CHAIN_ID, MINTER.address, "night shift")
        world.wakeups.notify(WALLETS)
        await until(lambda: true(lane.pause.reason == "by_hand"))  # The lane has read both.
        signer.holds = lambda _transaction: False
        async with session(world.observer) as connection:
            await wallets.set_paused(connection, CHAIN_ID, MINTER.address, None)
        world.wakeups.notify(WALLETS)
        await world.queue()
        await world.settled("published", "published")

        costs = [sent.gas_limit * sent.max_fee_per_gas for sent in world.node.pool.values()]
        assert len(costs) == 2
        await until(lambda: true(reserved_wei() == sum(costs)))


# --- anything in any order --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
async def test_requests_kills_and_blocks_in_any_order_mint_each_reward_once(
    world: RelayWorld, seed: int
) -> None:
    """Nodes take or lose what they like, lanes die, and people ask for everything at once."""
    dice = random.Random(seed)
    world.node.refuses_cheap = True
    for _ in range(6):
        async with world.serving(PATIENT):
            for _ in range(5):
                await _one_event(world, dice)
                await _two_rounds(world)
    async with world.serving(PATIENT):
        world.node.refuses = lambda sent: False
        await mint_once(world)

        async def all_handled() -> bool:
            return bool(
                await value(
                    world.observer,
                    "SELECT count(*) FROM transaction_requests WHERE handled_at IS NULL",
                )
                == 0
            )

        await until(all_handled)
    doubled = await value(
        world.observer,
        "SELECT count(*) - count(DISTINCT attempt) FROM transaction_requests "
        "WHERE outcome = 'done'",
    )
    assert doubled == 0, "two requests share an attempt"
    assert await value(world.observer, "SELECT max(max_fee_per_gas) FROM attempts") <= 100 * GWEI


async def _two_rounds(world: RelayWorld) -> None:
    before = world.node.call_counts["eth_getBlockByNumber"]
    await until(lambda: true(world.node.call_counts["eth_getBlockByNumber"] > before + 6))


async def _one_event(world: RelayWorld, dice: random.Random) -> None:
    match dice.randrange(6):
        case 0:
            await world.queue(dice.randrange(1, 4))
        case 1:
            world.node.mine()
        case 2:
            world.node.mine(takes_pool=False)
        case 3:
            if world.node.pool:
                del world.node.pool[dice.choice(list(world.node.pool))]
        case _:
            await _ask_for_any(world, dice)


async def _ask_for_any(world: RelayWorld, dice: random.Random) -> None:
    async with transaction(world.observer) as connection:
        ids = [row["id"] for row in await connection.fetch("SELECT id FROM transactions")]
        if not ids:
            return
        action, seconds = dice.choice(list(Action)), dice.choice([None, 0.0, 0.05])
        written, _ = await requests.ask(
            connection, dice.choice(ids), action, expires_in_seconds=seconds
        )
    world.wakeups.notify(WALLETS)
    if dice.random() < 0.3:
        async with session(world.observer) as connection:
            await requests.withdraw(connection, written.id)
