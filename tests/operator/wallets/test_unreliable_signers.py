"""A signer that is away, or slow, holds up nothing but what only it can do."""

import pytest
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.operator.policy import PauseBackoff
from ltzd.rules.operator.fees import GWEI
from tests.support.chain.fake_node import SentTransaction
from tests.support.chain.mint_world import PAUSES, POLICY, true
from tests.support.chain.signers import UnreliableSigner
from tests.support.relays.lanes import RELAYER, RelayWorld, row_states
from tests.support.rows.core import MINTER, states, value
from tests.support.waiting import until

FOR_GOOD = "tx fee (1.20 ether) exceeds the configured cap (1.00 ether)"
SOON = replace(PAUSES, signer=PauseBackoff(0.02, 0.05))
PATIENT = replace(POLICY, replace_after_seconds=3600.0, pauses=SOON)


@pytest.fixture
def minter(world: RelayWorld) -> UnreliableSigner:
    signer = UnreliableSigner(MINTER)
    world.signer = signer
    return signer


def paused_for(kind: str, reason: str) -> float:
    labels = {"kind": kind, "reason": reason}
    return telemetry.REGISTRY.get_sample_value("ltzd_operator_lanes_paused", labels) or 0.0


async def requested(signer: UnreliableSigner, times: int = 3) -> None:
    before = signer.requests
    await until(lambda: true(signer.requests >= before + times))


async def in_the_pool(world: RelayWorld, nonce: int, after: SentTransaction | None = None) -> None:
    """Waits for a transaction with this nonce, other than `after`."""

    def is_wanted(sent: SentTransaction) -> bool:
        return sent.nonce == nonce and (after is None or sent.hash != after.hash)

    await until(lambda: true(any(map(is_wanted, world.node.pool.values()))))


async def attempts(world: RelayWorld) -> int:
    count: int = await value(world.observer, "SELECT count(*) FROM attempts")
    return count


async def shown_reason(world: RelayWorld, reason: str | None) -> None:
    """Waits until the lane's row names this reason."""

    async def is_shown() -> bool:
        shown: str | None = await value(world.observer, "SELECT paused_for FROM lanes")
        return shown == reason

    await until(is_shown)


# --- away -------------------------------------------------------------------------------------


async def test_a_lane_without_its_signer_waits_and_resumes_by_itself(
    world: RelayWorld, minter: UnreliableSigner
) -> None:
    async with world.serving(PATIENT) as lane:
        minter.is_away = True
        await world.queue(3)
        await requested(minter)
        assert await states(world.observer) == []
        assert paused_for("mint", "signer") == 1
        assert lane.is_serving
        await shown_reason(world, "signer")

        minter.is_away = False
        await world.settled("published")
        assert paused_for("mint", "signer") == 0
        await shown_reason(world, None)
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_relays_wait_for_the_signer_in_their_order(world: RelayWorld) -> None:
    signer = UnreliableSigner(RELAYER)
    async with world.relaying(PATIENT, signer):
        signer.is_away = True
        await world.ask(3)
        await requested(signer)
        assert await row_states(world.observer) == ["queued"] * 3
        assert paused_for("relay", "signer") == 1

        signer.is_away = False
        await world.settled("published", "published", "published")
        world.node.mine()
        await world.settled("mined", "mined", "mined")
    await world.executed_in_order()


async def test_what_is_published_is_settled_while_the_signer_is_away(
    world: RelayWorld, minter: UnreliableSigner
) -> None:
    async with world.serving(PATIENT):
        await world.queue()
        await world.settled("published")
        minter.is_away = True
        await world.queue()
        await requested(minter)
        world.node.mine()
        await world.settled("mined")
        await until(lambda: unminted_is(world, 1))

        minter.is_away = False
        await world.settled("mined", "published")
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_a_replacement_waits_for_the_signer(
    world: RelayWorld, minter: UnreliableSigner
) -> None:
    async with world.serving(PATIENT):
        await world.queue()
        await world.settled("published")
        minter.is_away = True
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        await requested(minter)
        assert await attempts(world) == 1

        minter.is_away = False
        await until(lambda: true(len(world.node.pool) == 1))
        await until(lambda: true(world.node.sent()[-1].max_fee_per_gas > 20 * GWEI))
        world.node.mine()
        await world.minted()
        assert await attempts(world) == 2
    await world.each_minted_once()


async def test_a_self_transfer_waits_for_the_signer(
    world: RelayWorld, minter: UnreliableSigner
) -> None:
    world.node.refuses = lambda sent: False if sent.is_self_transfer else FOR_GOOD
    minter.holds = lambda transaction: not transaction.data
    async with world.serving(PATIENT):
        await world.queue()
        await until(lambda: true(minter.requests == 2))
        minter.is_away = True
        minter.holds = lambda _transaction: False
        await requested(minter)
        assert await attempts(world) == 1
        assert paused_for("mint", "signer") == 1

        minter.is_away = False
        await until(lambda: true(any(sent.is_self_transfer for sent in world.node.sent())))
        world.node.refuses = lambda _sent: False
        world.node.mine(4)
        await until(lambda: _mined(world))
    assert set(world.node.minted().values()) == {1}


async def _mined(world: RelayWorld) -> bool:
    world.node.mine()
    return await world.unminted() == 0


# --- slow -------------------------------------------------------------------------------------


async def test_a_slow_signer_holds_up_neither_publication_nor_receipts(
    world: RelayWorld, minter: UnreliableSigner
) -> None:
    async with world.serving(PATIENT):
        await world.queue()
        await world.settled("published")
        minter.holds = lambda _transaction: True
        await world.queue()
        await until(lambda: true(minter.requests == 2))

        world.node.pool.clear()  # The lane publishes the lost bytes again.
        await in_the_pool(world, 0)
        world.node.mine()
        await world.settled("mined")

        minter.holds = lambda _transaction: False
        await world.settled("mined", "published")
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_a_slow_replacement_holds_up_no_receipts(
    world: RelayWorld, minter: UnreliableSigner
) -> None:
    async with world.serving(PATIENT):
        await world.queue()
        await world.settled("published")
        await world.queue()
        await world.settled("published", "published")
        old = {sent.nonce: sent for sent in world.node.pool.values()}
        minter.holds = lambda transaction: transaction.max_fee_per_gas > 20 * GWEI
        world.node.base_fee = 20 * GWEI
        world.node.mine(takes_pool=False)
        await until(lambda: true(minter.requests == 4))
        assert minter.most_at_once == 2, "both replacements are signed at once"

        world.node.base_fee = GWEI
        del world.node.pool[old[1].hash]
        world.node.mine()
        await world.settled("mined", "published")
        await world.queue()
        await until(lambda: true(paused_for("mint", "signer") == 1))
        assert minter.requests == 4, "new work would wait behind the transaction that is stuck"

        minter.holds = lambda _transaction: False
        await world.settled("mined", "published", "published")
        world.node.mine(2)
        await world.minted()
    await world.each_minted_once()
    assert await attempts(world) == 4, "the signature for the mined transaction was dropped"


async def unminted_is(world: RelayWorld, count: int) -> bool:
    return await world.unminted() == count


async def attempts_are(world: RelayWorld, count: int) -> bool:
    return await attempts(world) == count


async def test_a_killed_lane_leaves_nothing_of_what_was_being_signed(
    world: RelayWorld, minter: UnreliableSigner
) -> None:
    minter.holds = lambda _transaction: True
    async with world.serving(PATIENT):
        await world.queue(2)
        await until(lambda: true(minter.requests == 1))
    assert await states(world.observer) == []
    minter.holds = lambda _transaction: False
    async with world.serving(PATIENT):
        await world.settled("published")
        world.node.mine()
        await world.minted()
    await world.each_minted_once()
    assert sorted(world.node.nonces()) == [0]
