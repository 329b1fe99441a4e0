"""Writes simulated relays into the lanes' queue, those of many users in one database transaction.

`rules/relayer/admission` repeats the checks under the users' locks. A relay counts in its user's
hour, is serialized and takes its idempotency key from here on, and not before.
"""

from collections.abc import Sequence
from dataclasses import replace

import structlog

from ltzd.concurrency.batch_writer import RETRY, BatchWriter, Retry
from ltzd.errors import Refused
from ltzd.rules.relayer.admission import Admission, Admitted, NewRelay, decide
from ltzd.rules.relayer.gas_budgets import GasBudgets, GasLedger
from ltzd.rules.relayer.limits import RelayUsage
from ltzd.store.database import Connection, Pool, transaction
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.wakeups import RELAYS, WakeupHub

log = structlog.get_logger()


class RelayAdmission:
    def __init__(self, pool: Pool, wakeups: WakeupHub, budgets: GasBudgets) -> None:
        self._pool = pool
        self._wakeups = wakeups
        self._budgets = budgets
        self._writer: BatchWriter[NewRelay, Admission] = BatchWriter(
            self._write, "relay", width=2, max_batch=100
        )

    async def run(self) -> None:
        """Write what `admit` is called with, until cancelled."""
        await self._writer.run()

    async def admit(self, relay: NewRelay) -> Admission:
        """Return after the commit that holds the relay.

        Raises RateLimited, ClaimLimitReached, IdempotencyKeyReused, DatabaseUnavailable, and
        ValidationFailed when the total gas budget is spent.
        """
        return await self._writer.submit(relay)

    async def _write(self, batch: Sequence[NewRelay]) -> Sequence[Admission | Exception | Retry]:
        # Only the first relay of each user: the next one is decided on the rows it leaves behind.
        first = {relay.plan.user: relay for relay in reversed(batch)}
        chosen = [relay for relay in batch if first[relay.plan.user] is relay]
        async with transaction(self._pool) as connection:
            await relays.lock_users(connection, list(first))
            if self._budgets.identity_wei:
                await gas_budgets.lock_identities(connection, _identities(chosen))
            usages = await relays.read_usage(
                connection,
                [(relay.plan.user, relay.idempotency_key, relay.plan.digest) for relay in chosen],
            )
            ledger = await self._read_ledger(connection, chosen)
            decisions = [
                _decide(relay, usage, ledger) for relay, usage in zip(chosen, usages, strict=True)
            ]
            outcomes = await _insert_admitted(connection, chosen, usages, decisions)
        self._wakeups.notify(RELAYS)
        _log_admitted(chosen, outcomes)
        by_user = {
            relay.plan.user: outcome for relay, outcome in zip(chosen, outcomes, strict=True)
        }
        return [
            by_user[relay.plan.user] if first[relay.plan.user] is relay else RETRY
            for relay in batch
        ]

    async def _read_ledger(
        self, connection: Connection, batch: Sequence[NewRelay]
    ) -> GasLedger | None:
        """Return today's gas budgets as this transaction sees them; None if none is set."""
        if not self._budgets.is_set:
            return None
        requested_wei = sum(relay.max_cost_wei for relay in batch if relay.failure is None)
        spent = await gas_budgets.spent_for(
            connection, self._budgets, _identities(batch), requested_wei
        )
        return GasLedger(self._budgets, spent)


def _identities(batch: Sequence[NewRelay]) -> list[str]:
    return [relay.identity for relay in batch if relay.identity is not None]


def _decide(
    relay: NewRelay, usage: RelayUsage, ledger: GasLedger | None
) -> Admission | Refused | None:
    try:
        return decide(relay, usage, ledger)
    except Refused as refusal:
        return refusal


async def _insert_admitted(
    connection: Connection,
    batch: Sequence[NewRelay],
    usages: Sequence[RelayUsage],
    decisions: Sequence[Admission | Refused | None],
) -> list[Admission | Exception]:
    """Insert the relays without a decision against them, and complete the decisions."""
    rows = [
        replace(relay, window_start=usage.start if relay.failure is None else None)
        for relay, usage, decision in zip(batch, usages, decisions, strict=True)
        if decision is None
    ]
    ids = iter(await relays.insert(connection, rows) if rows else [])
    return [
        Admitted(next(ids), usage.window(used_more=relay.failure is None), is_new=True)
        if decision is None
        else decision
        for relay, usage, decision in zip(batch, usages, decisions, strict=True)
    ]


def _log_admitted(batch: Sequence[NewRelay], outcomes: Sequence[Admission | Exception]) -> None:
    """Log one line for each commit: a line for each relay would take a twentieth of the time."""
    admitted = [
        outcome.id
        for relay, outcome in zip(batch, outcomes, strict=True)
        if isinstance(outcome, Admitted) and outcome.is_new and relay.failure is None
    ]
    if admitted:
        log.info("relays.written", relays=admitted)
