"""Takes rewards from the queue that all mint lanes share, and claims them before they are signed.

While a lane signs rewards, its claim keeps other lanes from signing the same ones. A claim is no
lock: the statement that stores a mint decides (`store/operator/transactions.py`). A claim ends with
the term of its lane.

A lane that is the only one claims nothing, since a claim writes each reward's row once more. A lane
that begins meanwhile may lose one race against it.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from ltzd.chain.contracts import ltz
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_context import LaneContext
from ltzd.operator.mints.limit import MintLimitTracker
from ltzd.operator.mints.patience import PatientBrands
from ltzd.operator.mints.simulation import MintSimulator
from ltzd.operator.policy import MINT_LIMIT, WOULD_REVERT
from ltzd.operator.send_guard import SendGuard
from ltzd.rules.operator.mint_gas import MOST_OUT_OF_GAS, gas_percent_after, most_together
from ltzd.store.database import Connection, session
from ltzd.store.operator import rewards
from ltzd.store.operator.rewards import QueuedReward


class RewardClaims:
    """`last_brand` is the brand that was served last; the brand after it is served next."""

    def __init__(
        self,
        context: LaneContext,
        in_flight: InFlightTransactions,
        guard: SendGuard,
        mint_limit: MintLimitTracker,
        simulator: MintSimulator,
        patience: PatientBrands,
        last_brand: bytes,
    ) -> None:
        self._context = context
        self._in_flight = in_flight
        self._guard = guard
        self._mint_limit = mint_limit
        self._simulator = simulator
        self._patience = patience
        self._last_brand = last_brand
        self._saving_for: UUID | None = None
        self._queued_count = 0

    async def take(self, at_least: int, at_most: int) -> list[QueuedReward] | None:
        """Claim the rewards of the next mint; return an empty result if other lanes were faster.

        Returns None if fewer than `at_least` wait, or if none of them may be minted now.
        """
        lane = self._context.lane
        await self._patience.update_held()
        self._saving_for = self._mint_limit.saving_for
        async with session(self._context.pool) as connection:
            await self._mint_limit.update_queue(connection, lane)
            queued = await self._queued(connection)
            self._queued_count = len(queued)
            waiting = [reward for reward in queued if not self._simulator.holds(reward)]
            if len(waiting) < len(queued):
                # A batch that would revert leaves its place and its turn to the rewards behind it.
                waiting = await self._queued(connection, self._simulator.held)
            if len(waiting) < at_least:
                if not queued:
                    self._guard.resume()
                elif not waiting:
                    self._guard.pause(WOULD_REVERT)
                return None
            selected = self._mint_limit.select(waiting, self._in_flight.minted_units(), at_most)
            together = self._with_the_first(selected, at_most)
            obstacle = await self._obstacle(together)
            if obstacle is not None:
                self._mint_limit.give_back(selected)
                self._guard.pause(obstacle)
                if not selected:
                    self.note_served(waiting)
                return None
            claimed = await self._claimed(connection, together)
        self._mint_limit.give_back([reward for reward in selected if reward.id not in claimed])
        return [reward for reward in together if reward.id in claimed]

    async def _queued(
        self, connection: Connection, passed_over: Collection[UUID] = ()
    ) -> list[QueuedReward]:
        return await rewards.queued(
            connection,
            ltz.MAX_BATCH,
            self._last_brand,
            self._saving_for,
            self._context.lane,
            self._patience.held,
            passed_over,
        )

    async def _claimed(
        self, connection: Connection, together: Sequence[QueuedReward]
    ) -> Collection[UUID]:
        ids = {reward.id for reward in together}
        if not any(reward.is_contended for reward in together):
            return ids
        return await rewards.claim(connection, self._context.lane, ids)

    def have_emptied_queue(self, signed: int) -> bool:
        """Whether the rewards that were signed are all that the last `take` has seen, and no other
        can have been hidden from it."""
        has_seen_all = self._queued_count < ltz.MAX_BATCH and self._saving_for is None
        has_held_none = not self._simulator.held and not self._patience.held
        return has_seen_all and has_held_none and signed == self._queued_count

    async def give_back(self, unsigned: Sequence[QueuedReward]) -> None:
        """End the claims of rewards that are not signed now, so that any lane may take them."""
        if not unsigned:
            return
        self._mint_limit.give_back(unsigned)
        async with session(self._context.pool) as connection:
            ids = [reward.id for reward in unsigned]
            await rewards.give_back(connection, self._context.lane, ids)

    def note_served(self, served: Sequence[QueuedReward]) -> None:
        """Let the next batch begin behind the brand that comes last in `served`.

        `served` is in the order of `rewards.queued`. Payments, and the reward that the limit saves
        for, are outside the brands' turns.
        """
        brands = [
            reward.brand_id
            for reward in served
            if not reward.is_payment and reward.id != self._saving_for
        ]
        if brands:
            self._last_brand = brands[-1]

    async def _obstacle(self, together: Sequence[QueuedReward]) -> str | None:
        """Why these rewards may not be minted now."""
        if not together:
            return MINT_LIMIT
        if together[0].out_of_gas >= MOST_OUT_OF_GAS:
            await self._simulator.fail({reward.id: "OutOfGas" for reward in together})
            return WOULD_REVERT
        return WOULD_REVERT if self._simulator.must_wait(together) else None

    def _with_the_first(self, selected: Sequence[QueuedReward], at_most: int) -> list[QueuedReward]:
        """The first reward, and those that may be minted together with it.

        Rewards whose mint was cancelled, or ran out of gas, are minted with rewards to which the
        same happened as often: ten at a time after one failed mint, alone after two. So a reward
        that nodes refuse, or that needs too much gas, does not hold up others for long.
        """
        if not selected:
            return []
        cancelled, out_of_gas = selected[0].cancelled, selected[0].out_of_gas
        most = most_together(cancelled + out_of_gas, at_most)
        fitting = self._simulator.gas.most(most, gas_percent_after(out_of_gas))
        alike = [
            reward
            for reward in selected
            if (reward.cancelled, reward.out_of_gas) == (cancelled, out_of_gas)
        ]
        return alike[: max(1, fitting)]
