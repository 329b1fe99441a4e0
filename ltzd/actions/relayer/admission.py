"""Writes relays that were let through, many users' in one database transaction.

What was looked at without locks is looked at again under the users' locks, by the same rules; only
here a relay is let in, takes one of its user's thirty-five, his turn and his key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from ltzd.concurrency.batch_writer import RETRY, BatchWriter, Retry
from ltzd.errors import Refused
from ltzd.rules.relayer import limits as relay_limits
from ltzd.rules.relayer.calls import RelayPlan, RelayWindow
from ltzd.rules.relayer.gas_budgets import GasBudgets, GasLedger
from ltzd.rules.relayer.limits import ClaimLimit, RelayUsage
from ltzd.store.database import Connection, Pool, transaction
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.relayer.relays import NewRelay
from ltzd.store.wakeups import RELAYS, WakeupHub

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Draft:
    """A relay as it would be sent, and what it was simulated after.

    `failure` says how it would revert: it is kept for its key alone then, and sent by nobody.
    `identity` is whose gas budget it counts in.
    """

    plan: RelayPlan
    gas_limit: int
    max_cost_wei: int
    claim_limit: ClaimLimit | None
    last_serialized_id: int | None
    idempotency_key: str | None
    fingerprint: bytes
    failure: str | None = None
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """`is_ours` is False for a relay that came with the same key a moment before."""

    id: int
    window: RelayWindow
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another of the user's came between: simulate again, after relay `by` where one is named."""

    by: int | None = None


Outcome = Written | Conflict


class RelayAdmission:
    def __init__(self, pool: Pool, wakeups: WakeupHub, budgets: GasBudgets) -> None:
        self._pool = pool
        self._wakeups = wakeups
        self._budgets = budgets
        self._commits: BatchWriter[Draft, Outcome] = BatchWriter(
            self._write, "relay", width=2, largest=100
        )

    async def run(self) -> None:
        await self._commits.run()

    async def write(self, draft: Draft) -> Outcome:
        """Raises RateLimited, ClaimLimitReached, IdempotencyKeyReused, DatabaseUnavailable, and
        ValidationFailed for everybody's gas budget."""
        return await self._commits.submit(draft)

    async def _write(self, drafts: Sequence[Draft]) -> Sequence[Outcome | Exception | Retry]:
        first = {draft.plan.user: draft for draft in reversed(drafts)}
        # Of one user's only the first: the next is judged by what that one leaves.
        chosen = [draft for draft in drafts if first[draft.plan.user] is draft]
        async with transaction(self._pool) as connection:
            await relays.lock_users(connection, list(first))
            if self._budgets.identity_wei:
                await gas_budgets.lock_identities(connection, _identities(chosen))
            standings = await relays.read_usage(
                connection,
                [(draft.plan.user, draft.idempotency_key, draft.plan.digest) for draft in chosen],
            )
            ledger = await self._ledger(connection, chosen)
            judged = [self._judged(*each, ledger) for each in zip(chosen, standings, strict=True)]
            answers = await _insert(connection, chosen, standings, judged)
        self._wakeups.notify(RELAYS)
        _note(chosen, answers)
        by_user = {draft.plan.user: answer for draft, answer in zip(chosen, answers, strict=True)}
        return [
            by_user[draft.plan.user] if first[draft.plan.user] is draft else RETRY
            for draft in drafts
        ]

    async def _ledger(self, connection: Connection, drafts: Sequence[Draft]) -> GasLedger | None:
        """What is left of the day's gas while this commit lasts; None without budgets."""
        if not self._budgets.is_set:
            return None
        asked_wei = sum(draft.max_cost_wei for draft in drafts if draft.failure is None)
        spent = await gas_budgets.spent_for(
            connection, self._budgets, _identities(drafts), asked_wei
        )
        return GasLedger(self._budgets, spent)

    def _judged(
        self, draft: Draft, standing: RelayUsage, ledger: GasLedger | None
    ) -> Outcome | Refused | None:
        """None for one to be written."""
        try:
            relay_limits.check_key(standing, draft.fingerprint)
            if standing.earlier is not None:
                return Written(standing.earlier.id, standing.window(), is_ours=False)
            if draft.failure is None:
                return self._admitted(draft, standing, ledger)
        except Refused as refusal:
            return refusal
        return None

    def _admitted(
        self, draft: Draft, standing: RelayUsage, ledger: GasLedger | None
    ) -> Conflict | None:
        relay_limits.check_hour(standing)
        if draft.claim_limit is not None:
            relay_limits.check_claims(standing, draft.claim_limit)
        if draft.plan.serialized_per_user and (
            standing.has_serialized_in_flight
            or standing.last_serialized_id != draft.last_serialized_id
        ):
            return Conflict()
        if standing.duplicate_id is not None:
            return Conflict(standing.duplicate_id)
        if ledger is not None:
            ledger.admit(draft.identity, draft.max_cost_wei)
        return None


def _identities(drafts: Sequence[Draft]) -> list[str]:
    return [draft.identity for draft in drafts if draft.identity is not None]


def _note(drafts: Sequence[Draft], answers: Sequence[Outcome | Exception]) -> None:
    """One line a commit: with a line a relay, a twentieth of all work would be writing them."""
    queued = [
        answer.id
        for draft, answer in zip(drafts, answers, strict=True)
        if isinstance(answer, Written) and answer.is_ours and draft.failure is None
    ]
    if queued:
        log.info("relays.written", relays=queued)


async def _insert(
    connection: Connection,
    drafts: Sequence[Draft],
    standings: Sequence[RelayUsage],
    judged: Sequence[Outcome | Refused | None],
) -> list[Outcome | Exception]:
    admitted = [
        (draft, standing)
        for draft, standing, verdict in zip(drafts, standings, judged, strict=True)
        if verdict is None
    ]
    rows = [_row(draft, standing) for draft, standing in admitted]
    ids = await relays.insert(connection, rows) if rows else []
    written = iter(
        Written(id_, standing.window(used_more=draft.failure is None), is_ours=True)
        for id_, (draft, standing) in zip(ids, admitted, strict=True)
    )
    return [next(written) if verdict is None else verdict for verdict in judged]


def _row(draft: Draft, standing: RelayUsage) -> NewRelay:
    return NewRelay(
        plan=draft.plan,
        gas_limit=draft.gas_limit,
        max_cost_wei=draft.max_cost_wei,
        idempotency_key=draft.idempotency_key,
        fingerprint=draft.fingerprint,
        window_start=standing.start if draft.failure is None else None,
        failure=draft.failure,
        identity=draft.identity,
    )
