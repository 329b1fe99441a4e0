"""Simulates a call while its user's relays are being read, if few relays are under way.

A relay that comes alone then waits for the node and for PostgreSQL at the same time. Under load
nothing would be gained, and a node would simulate calls that a limit refuses.

The relays that are read meanwhile may be newer than the simulation. This matters for the same call
alone, which may have been mined between the two: `RelayUsage.was_relayed` tells, and the relayer
then simulates it again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from ltzd.chain.relayer.calls import DecodedRelay
from ltzd.concurrency.hedging import hedged
from ltzd.errors import Refused, Unavailable
from ltzd.rules.relayer.calls import RelayPlan
from ltzd.values import Address

_MOST = 4
"""The most simulations at a time: few enough to ask a second node, too, when the first is late."""


class SimulatedCall(msgspec.Struct, frozen=True):
    """The gas limit of a plan that passed as a transaction of `sender`."""

    plan: RelayPlan
    sender: Address
    gas_limit: int


class EarlySimulation:
    """`decoded` is None until the request is decoded, and for a request that is refused."""

    def __init__(
        self,
        decode: Callable[[], DecodedRelay],
        simulate: Callable[[DecodedRelay], Coroutine[Any, Any, SimulatedCall]],
    ) -> None:
        self.decoded: DecodedRelay | None = None
        self._decode = decode
        self._simulate = simulate
        self._task = asyncio.create_task(self._run())

    def when_over(self, call: Callable[[], None]) -> None:
        """Call it once the request is simulated, needs no simulation, or `end` was called."""
        self._task.add_done_callback(lambda _: call())

    async def gas_limit(self, plan: RelayPlan, sender: Address) -> int | None:
        """The gas limit that was simulated, or None if it was not, or for another transaction.

        Raises what the simulation raised; for a node's failure it returns None.
        """
        try:
            call = await self._task
        except Unavailable:
            return None
        if call is None or (call.plan, call.sender) != (plan, sender):
            return None
        return call.gas_limit

    def end(self) -> None:
        """The result is not needed any more."""
        self._task.cancel()

    async def _run(self) -> SimulatedCall | None:
        try:
            self.decoded = self._decode()
        except Refused:
            return None  # the relayer refuses it in its turn
        if not _is_simple(self.decoded):
            return None
        return await hedged(partial(self._simulate, self.decoded))


class EarlySimulations:
    """At most a few at a time, also of requests that come in one turn of the event loop."""

    def __init__(
        self,
        simulate: Callable[[DecodedRelay], Coroutine[Any, Any, SimulatedCall]],
        most: int = _MOST,
    ) -> None:
        self._simulate = simulate
        self._most = most
        self._under_way = 0

    @property
    def has_room(self) -> bool:
        return self._under_way < self._most

    def begin(self, decode: Callable[[], DecodedRelay]) -> EarlySimulation | None:
        """Decode a request and begin to simulate it in a task, or return None under load."""
        if not self.has_room:
            return None
        self._under_way += 1
        simulation = EarlySimulation(decode, self._simulate)
        simulation.when_over(self._end_one)
        return simulation

    def _end_one(self) -> None:
        self._under_way -= 1


def _is_simple(decoded: DecodedRelay) -> bool:
    """Whether nothing but the simulation itself decides, so that a refusal costs no other work."""
    return not decoded.required_views and not decoded.serialized_per_user
