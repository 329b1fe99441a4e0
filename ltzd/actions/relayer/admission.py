"""Writes simulated relays of many users in one statement.

`rules/relayer/admission` repeats the checks on one version of each user's rows, and the statement
inserts the relays of users whose version is still the same. A relay counts in its user's hour, is
serialized and takes its idempotency key from here on, and not before.

Where a lane of this process may sign at once, the statement stores the relay with its transaction.
Otherwise the relay waits in the lanes' queue.
"""

from collections.abc import Sequence

import msgspec
import structlog
from msgspec.structs import replace

from ltzd.concurrency.batch_writer import RETRY, BatchWriter, Retry
from ltzd.concurrency.request_ids import current_request_id
from ltzd.errors import DatabaseUnavailable, LaneLost, Refused
from ltzd.rules.relayer.admission import Admission, Admitted, NewRelay, decide
from ltzd.rules.relayer.gas_budgets import GasBudgets, GasLedger
from ltzd.rules.relayer.limits import RelayUsage
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.relayer.direct_lanes import DirectLane, DirectLanes
from ltzd.store.wakeups import RELAYS, WakeupHub
from ltzd.values import Address

log = structlog.get_logger()

_Outcome = Admission | Exception | Retry

_MOST_VERSIONS = 10_000


class _Draft(msgspec.Struct):
    """A relay to admit; `usage` is what its caller has read, or None once that proved to be old."""

    relay: NewRelay
    usage: RelayUsage | None
    request_id: str | None

    @property
    def user(self) -> Address:
        return self.relay.plan.user


class RelayAdmission:
    def __init__(
        self,
        pool: Pool,
        wakeups: WakeupHub,
        budgets: GasBudgets,
        direct_lanes: DirectLanes | None = None,
    ) -> None:
        self._pool = pool
        self._wakeups = wakeups
        self._budgets = budgets
        self._direct_lanes = direct_lanes or DirectLanes()
        self._writer: BatchWriter[_Draft, Admission] = BatchWriter(
            self._write, "relay", key_of=lambda draft: draft.user, width=2, max_batch=100
        )

        self._versions: dict[Address, int] = {}
        """The versions that this process has written last, by user."""

    async def run(self) -> None:
        """Write what `admit` is called with, until cancelled."""
        await self._writer.run()

    async def admit(self, relay: NewRelay, usage: RelayUsage | None = None) -> Admission:
        """Return after the commit that holds the relay; `usage` is what it was simulated on.

        Raises RateLimited, ClaimLimitReached, IdempotencyKeyReused, DatabaseUnavailable, and
        ValidationFailed when the total gas budget is spent.
        """
        return await self._writer.submit(_Draft(relay, usage, current_request_id()))

    async def _write(self, batch: Sequence[_Draft]) -> Sequence[_Outcome]:
        """Write a batch with one relay of each user; a user's next relay is in a later batch."""
        if self._budgets.limit_relays:
            outcomes = await self._write_within_budgets(batch)
        else:
            usages = await self._usages(batch)
            outcomes = await self._insert(None, batch, usages, _decided(batch, usages, None))
        _log_admitted(batch, outcomes)
        return outcomes

    async def _write_within_budgets(self, drafts: Sequence[_Draft]) -> list[_Outcome]:
        """The identities' locks keep other relays from spending the same budget."""
        new = [draft.relay for draft in drafts]
        async with transaction(self._pool) as connection:
            if self._budgets.identity_wei:
                await gas_budgets.lock_identities(connection, _identities(new))
            usages = await _read_usages(connection, drafts)
            ledger = await self._read_ledger(connection, new)
            decisions = _decided(drafts, usages, ledger)
            outcomes = await self._insert(connection, drafts, usages, decisions)
        if None in decisions:
            self._wakeups.announce(RELAYS)
        return outcomes

    async def _usages(self, drafts: Sequence[_Draft]) -> list[RelayUsage]:
        """The usages that the callers have read; those known to be old by now are read again."""
        old = [draft for draft in drafts if self._is_old(draft)]
        if old:
            async with session(self._pool) as connection:
                for draft, usage in zip(old, await _read_usages(connection, old), strict=True):
                    draft.usage = usage
        return [draft.usage for draft in drafts if draft.usage is not None]

    def _is_old(self, draft: _Draft) -> bool:
        """Whether this process has written a relay of the user since. For other processes' relays
        the version tells, in the statement.
        """
        usage = draft.usage
        return usage is None or usage.version < self._versions.get(draft.user, 0)

    def _remember_version(self, user: Address, version: int) -> None:
        self._versions.pop(user, None)
        self._versions[user] = version
        if len(self._versions) > _MOST_VERSIONS:
            del self._versions[next(iter(self._versions))]

    async def _read_ledger(self, connection: Connection, batch: Sequence[NewRelay]) -> GasLedger:
        """Return today's gas budgets as this transaction sees them."""
        requested_wei = sum(relay.max_cost_wei for relay in batch)
        spent = await gas_budgets.spent_for(
            connection, self._budgets, _identities(batch), requested_wei
        )
        return GasLedger(self._budgets, spent)

    async def _insert(
        self,
        connection: Connection | None,
        drafts: Sequence[_Draft],
        usages: Sequence[RelayUsage],
        decisions: Sequence[Admission | Refused | None],
    ) -> list[_Outcome]:
        """Insert the relays without a decision against them, and complete the decisions.

        Without a `connection`, which has a transaction open, lanes may sign relays directly.
        """
        new = [
            replace(
                draft.relay,
                window_start=usage.start if draft.relay.failure is None else None,
                version=usage.version,
            )
            for draft, usage in zip(drafts, usages, strict=True)
        ]
        open_ = [at for at, decision in enumerate(decisions) if decision is None]
        written: dict[int, int | DatabaseUnavailable | None] = {}
        if connection is None:
            written |= await self._sign(new, usages, open_)
        queued = [at for at in open_ if at not in written]
        if queued:
            relays_ = [new[at] for at in queued]
            written |= zip(queued, await self._queue(connection, relays_), strict=True)
        return [
            self._outcome(draft, usage, written[at]) if decision is None else decision
            for at, (draft, usage, decision) in enumerate(
                zip(drafts, usages, decisions, strict=True)
            )
        ]

    async def _sign(
        self, new: Sequence[NewRelay], usages: Sequence[RelayUsage], open_: Sequence[int]
    ) -> dict[int, int | None]:
        """Let a lane store relays with their transactions; return the ids by position in `new`."""
        lane = self._direct_lanes.choose()
        if lane is None:
            return {}
        direct = [at for at in open_ if _may_sign(lane, new[at], usages[at])]
        try:
            ids = await lane.admit([new[at] for at in direct]) if direct else []
        except LaneLost:
            return {}
        return dict(zip(direct, ids, strict=False))

    async def _queue(
        self, connection: Connection | None, new: Sequence[NewRelay]
    ) -> Sequence[int | DatabaseUnavailable | None]:
        """Without a `connection` a lost database is these relays' answer alone: a lane may have
        stored other relays of the batch before.
        """
        if connection is not None:
            return await relays.insert(connection, new)  # announced after the commit
        try:
            async with session(self._pool) as own:
                ids = await relays.insert(own, new)
        except DatabaseUnavailable as error:
            return [error] * len(new)
        self._wakeups.announce(RELAYS)
        return ids

    def _outcome(
        self, draft: _Draft, usage: RelayUsage, written: int | DatabaseUnavailable | None
    ) -> Admitted | Retry | DatabaseUnavailable:
        if isinstance(written, DatabaseUnavailable):
            return written
        if written is None:
            draft.usage = None
            return RETRY
        self._remember_version(draft.user, usage.version + 1)
        window = usage.window(used_more=draft.relay.failure is None)
        return Admitted(written, window, is_new=True)


async def _read_usages(connection: Connection, drafts: Sequence[_Draft]) -> list[RelayUsage]:
    return await relays.read_usage(
        connection, [(draft.user, draft.relay.idempotency_key) for draft in drafts]
    )


def _may_sign(lane: DirectLane, relay: NewRelay, usage: RelayUsage) -> bool:
    """Whether the lane keeps the order of the user's relays if it sends `relay` next."""
    return (
        relay.failure is None
        and relay.plan.wallet in {None, lane.wallet}
        and usage.senders <= {lane.wallet}
    )


def _identities(batch: Sequence[NewRelay]) -> list[str]:
    return [relay.identity for relay in batch if relay.identity is not None]


def _decided(
    drafts: Sequence[_Draft], usages: Sequence[RelayUsage], ledger: GasLedger | None
) -> list[Admission | Refused | None]:
    return [
        _decide(draft.relay, usage, ledger) for draft, usage in zip(drafts, usages, strict=True)
    ]


def _decide(
    relay: NewRelay, usage: RelayUsage, ledger: GasLedger | None
) -> Admission | Refused | None:
    try:
        return decide(relay, usage, ledger)
    except Refused as refusal:
        return refusal


def _log_admitted(drafts: Sequence[_Draft], outcomes: Sequence[_Outcome]) -> None:
    """One line for each commit, with each relay's request: a line each takes 5 % of the time."""
    admitted = [
        (outcome.id, draft.request_id)
        for draft, outcome in zip(drafts, outcomes, strict=True)
        if isinstance(outcome, Admitted) and outcome.is_new and draft.relay.failure is None
    ]
    if admitted:
        log.info("relays.written", relays=admitted)
