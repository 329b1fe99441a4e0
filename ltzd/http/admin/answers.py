"""The JSON of the admin server's answers."""

from collections.abc import Sequence
from typing import Any

from ltzd.chain.pool.report import NodeReport
from ltzd.rules.conditions.facts import ChainFacts, LaneState, ProcessFacts
from ltzd.rules.conditions.kinds import Condition, Severity
from ltzd.rules.indexer.standstill import IndexProgress
from ltzd.store.background_migrations import BackgroundMigration
from ltzd.store.indexer.rebuild.orders import RebuildProgress
from ltzd.store.operator.leases import LeaseFacts
from ltzd.store.status import LaneFacts, RelayFacts, RewardFacts, StatusFacts
from ltzd.values import checksummed, iso_or_none

_DETAIL_CHARACTERS = 200


def readiness_json(
    conditions: Sequence[Condition], blocking: Sequence[Condition]
) -> dict[str, object]:
    """`warnings` are the other faults that need a person."""
    warnings = [
        condition
        for condition in conditions
        if condition not in blocking and condition.kind.facts.severity is not Severity.NOTICE
    ]
    return {
        "ready": not blocking,
        "reasons": [condition.sentence for condition in blocking],
        "warnings": [condition.sentence for condition in warnings],
    }


def condition_json(condition: Condition) -> dict[str, object]:
    facts = condition.kind.facts
    return {
        "kind": condition.kind.value,
        "severity": facts.severity.value,
        "subject": condition.subject,
        "sentence": condition.sentence,
        "seenBy": list(condition.seen_by),
        "runbook": f"docs/runbooks/{facts.runbook}",
    }


def figures_json(facts: StatusFacts, lanes: list[dict[str, Any]]) -> dict[str, object]:
    return {
        "chain": None,
        "lanes": lanes,
        "leases": [_lease_json(lease) for lease in facts.leases],
        "rewards": _reward_json(facts.rewards),
        "relays": _relay_json(facts.relays),
        "eventsLastMinute": facts.events_last_minute,
        "migrations": [_migration_json(migration) for migration in facts.migrations],
        "rebuild": None if facts.rebuild is None else _rebuild_json(facts.rebuild),
    }


def chain_json(chain: ChainFacts, progress: IndexProgress) -> dict[str, Any]:
    """`lagSeconds` is None for a chain without a block time."""
    return {
        "chainId": chain.chain_id,
        "ltz": checksummed(chain.ltz),
        "head": progress.head_number,
        "cursor": chain.cursor_number,
        "lagBlocks": progress.lag_blocks,
        "lagSeconds": _rounded(progress.lag_seconds),
        "final": chain.final_number,
        "finalLagSeconds": _rounded(_final_lag_seconds(chain, progress)),
        "audited": chain.audited_number,
        "idleSeconds": round(chain.idle_seconds, 1),
        "blockSeconds": _rounded(progress.block_seconds),
        "blocksPerSecond": _rounded(chain.blocks_per_second),
        "secondsLeft": _rounded(_seconds_left(chain, progress)),
        "firstBlock": chain.first_block,
        "stopped": chain.stopped_reason,
        "stoppedAt": iso_or_none(chain.stopped_at),
    }


def _seconds_left(chain: ChainFacts, progress: IndexProgress) -> float | None:
    """Until the cursor is at the head at the rate of the last minute, or None near the head."""
    if not chain.blocks_per_second:
        return None
    return progress.lag_blocks / chain.blocks_per_second


def _final_lag_seconds(chain: ChainFacts, progress: IndexProgress) -> float | None:
    """The age of the newest final block against the head, or None without a block time."""
    if progress.block_seconds is None:
        return None
    return max(0, progress.head_number - chain.final_number) * progress.block_seconds


def node_json(report: NodeReport) -> dict[str, Any]:
    """The node as this process sees it; `detail` is its newest fault in words."""
    latency = report.latency_seconds
    return {
        "name": report.name,
        "isUsable": report.is_usable,
        "inUse": report.is_preferred,
        "reason": None if report.reason is None else report.reason.value,
        "detail": report.detail[:_DETAIL_CHARACTERS] or None,
        "height": report.height,
        "latencySeconds": None if latency is None else round(latency, 4),
        "secondsSinceAnswer": _rounded(report.seconds_since_answer),
        "inFlight": report.in_flight,
        "errors": dict(report.errors),
    }


def lane_json(lane: LaneFacts, holder: str | None, state: LaneState | None) -> dict[str, Any]:
    """`holder` is the process that holds the lane; the balance is in wei, as text.

    JavaScript does not read such numbers exactly. `state` is as the holder reports it.
    """
    balance = None if state is None else state.balance_wei
    is_held = holder is not None or (state is not None and state.is_held)
    return {
        "wallet": checksummed(lane.wallet),
        "kind": lane.kind,
        "isHeld": is_held,
        "holder": holder,
        "stopped": None if state is None else state.stopped,
        "missingRoles": [] if state is None else list(state.missing_roles),
        "pausedFor": lane.paused_for,
        "pausedSince": iso_or_none(lane.paused_since),
        "pausedByHandReason": lane.by_hand_reason,
        "epoch": lane.epoch,
        "nextNonce": lane.next_nonce,
        "signed": lane.signed,
        "published": lane.published,
        "mined": lane.mined,
        "inFlight": lane.in_flight,
        "oldestSeconds": _rounded(lane.oldest_seconds),
        "balanceWei": None if balance is None else str(balance),
    }


def _migration_json(migration: BackgroundMigration) -> dict[str, Any]:
    """`progress` is the part of the step that is done, where PostgreSQL tells it."""
    progress = migration.progress
    return {
        "name": migration.name,
        "step": migration.step,
        "progress": None if progress is None else round(progress, 3),
        "startedSeconds": _rounded(migration.started_seconds),
        "error": migration.error,
    }


def _rebuild_json(rebuild: RebuildProgress) -> dict[str, Any]:
    return {
        "id": rebuild.id,
        "reason": rebuild.reason,
        "fromBlock": rebuild.from_block,
        "state": rebuild.state,
        "block": rebuild.block,
        "head": rebuild.head_number,
        "orderedSeconds": _rounded(rebuild.ordered_seconds),
        "error": rebuild.error,
    }


def process_json(process: ProcessFacts, *, is_missing: bool) -> dict[str, Any]:
    identity = process.identity
    return {
        "name": identity.name,
        "roles": list(identity.roles),
        "version": identity.version,
        "startedSeconds": _rounded(process.started_seconds),
        "seenSecondsAgo": _rounded(process.seen_seconds),
        "isMissing": is_missing,
    }


def _lease_json(lease: LeaseFacts) -> dict[str, Any]:
    return {
        "name": lease.name,
        "holder": lease.process,
        "heldSeconds": _rounded(lease.held_seconds),
        "renewedSecondsAgo": _rounded(lease.renewed_seconds_ago),
    }


def _reward_json(rewards: RewardFacts) -> dict[str, Any]:
    return {
        "queued": rewards.queued,
        "oldestQueuedSeconds": _rounded(rewards.oldest_queued_seconds),
        "inFlight": rewards.in_flight,
        "minted": rewards.minted,
        "mintedIsEstimate": rewards.minted_is_estimate,
        "aboveMintLimit": rewards.above_limit,
        "mayWait": rewards.may_wait,
    }


def _relay_json(relays: RelayFacts) -> dict[str, Any]:
    return {
        "queued": relays.queued,
        "oldestQueuedSeconds": _rounded(relays.oldest_queued_seconds),
        "inFlight": relays.in_flight,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
