"""A call is simulated early if it may be, and the early result counts for that call alone."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ltzd.actions.relayer.early_simulation import EarlySimulations, SimulatedCall
from ltzd.chain.relayer.calls import DecodedRelay, decode_relay
from ltzd.concurrency import hedging
from ltzd.errors import NodeUnavailable, TransactionFailed, ValidationFailed
from ltzd.values import Address
from tests.support.chain.mint_world import true
from tests.support.relays.allowed_calls import CONTRACTS, ROWS, USER, an_ask
from tests.support.waiting import until

SENDER = Address(b"\x0e" * 20)
TRANSFER = "LTZ.transferWithAuthorization"


def a_decoded(name: str = TRANSFER) -> DecodedRelay:
    return decode_relay(an_ask(name.partition(".")[0], ROWS[name](USER), USER.address), CONTRACTS)


class Simulations:
    """Simulations that pass once `answer` is called, or fail with `fault`."""

    def __init__(self) -> None:
        self.decoded: list[DecodedRelay] = []
        self.fault: Exception | None = None
        self._is_answered = asyncio.Event()
        self.early = EarlySimulations(self._simulate, most=2)

    def answer(self) -> None:
        self._is_answered.set()

    async def begin(self, decode: Callable[[], DecodedRelay] = a_decoded) -> int | None:
        """The gas limit of the early simulation."""
        begun = self.early.begin(decode)
        assert begun is not None
        try:
            return await begun.gas_limit(a_decoded().plan([], []), SENDER)
        finally:
            begun.end()

    async def _simulate(self, decoded: DecodedRelay) -> SimulatedCall:
        self.decoded.append(decoded)
        await self._is_answered.wait()
        if self.fault is not None:
            raise self.fault
        return SimulatedCall(decoded.plan([], []), SENDER, 70_000)


async def test_the_result_counts_for_the_same_transaction_alone() -> None:
    simulations = Simulations()
    simulations.answer()
    begun = simulations.early.begin(a_decoded)
    assert begun is not None
    plan = a_decoded().plan([], [])

    assert await begun.gas_limit(plan, SENDER) == 70_000
    assert begun.decoded == a_decoded()
    assert await begun.gas_limit(plan, Address(b"\x0f" * 20)) is None
    assert await begun.gas_limit(replace(plan, data=b"other"), SENDER) is None
    begun.end()


async def test_a_nodes_failure_leaves_the_decision_to_a_later_simulation() -> None:
    simulations = Simulations()
    simulations.answer()
    simulations.fault = NodeUnavailable("away")
    assert await simulations.begin() is None
    simulations.fault = TransactionFailed("Transaction would fail: no", reason="no")
    with pytest.raises(TransactionFailed):
        await simulations.begin()


async def test_a_late_simulation_is_begun_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hedging, "LATE_SECONDS", 0.01)
    simulations = Simulations()
    begun = asyncio.create_task(simulations.begin())
    await until(lambda: true(len(simulations.decoded) == 2))
    simulations.answer()
    assert await begun == 70_000
    assert len(simulations.decoded) == 2


async def test_a_refused_request_is_not_simulated() -> None:
    def refuse() -> DecodedRelay:
        raise ValidationFailed("no")

    simulations = Simulations()
    assert await simulations.begin(refuse) is None
    assert simulations.decoded == []


@pytest.mark.parametrize(
    "name", ["PerkNFT.claimFor", "PointsSale.buyFor", "LTZ.permit", "BusinessEscrow.reclaim"]
)
async def test_calls_that_more_than_the_simulation_decides_are_not_simulated_early(
    name: str,
) -> None:
    simulations = Simulations()
    simulations.answer()
    assert await simulations.begin(lambda: a_decoded(name)) is None
    assert simulations.decoded == []


async def test_few_calls_are_simulated_early_at_a_time() -> None:
    simulations = Simulations()

    async def has_room() -> bool:
        return simulations.early.has_room

    first, second = simulations.early.begin(a_decoded), simulations.early.begin(a_decoded)
    assert first is not None
    assert second is not None

    assert simulations.early.begin(a_decoded) is None
    first.end()
    await until(has_room)
    second.end()
