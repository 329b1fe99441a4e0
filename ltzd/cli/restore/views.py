"""Shows comparisons of `ltzd restore` as text or as JSON."""

from collections.abc import Iterator
from typing import Any

from ltzd.cli.tx.texts import counted
from ltzd.operator.restoring import Applied, Comparison, WalletComparison
from ltzd.rules.operator import wallet_history
from ltzd.values import checksummed, hex_of

_WAITING = (
    "A lane signs nothing new before all nonces below its next one are used on chain, the index "
    "has read the blocks of that moment, and ten seconds have passed (`comparing` in "
    "`ltzd status`)."
)

_UNDONE = (
    "If this database is an older copy, it lacks what people decided after the copy was made, such "
    "as retired wallets, revoked keys of brands, pauses and erasures. Repeat these decisions "
    "(docs/operations.md, Restoring a backup)."
)


def as_object(comparison: Comparison) -> dict[str, Any]:
    mints = comparison.mints
    return {
        "mustApply": comparison.must_apply,
        "chainId": comparison.chain.chain_id,
        "ltz": hex_of(comparison.chain.ltz),
        "index": {"cursor": comparison.cursor, "head": comparison.head},
        "references": {
            "next": comparison.next_seq,
            "freeFrom": comparison.free_seq
            if comparison.is_counter_behind
            else comparison.next_seq,
            "isBehind": comparison.is_counter_behind,
        },
        "lanes": list(map(_lane_object, comparison.lanes)),
        "rewards": {
            "waitingWithoutReference": comparison.waiting,
            "mintedButQueued": mints.unlinked,
            "referenceTaken": mints.taken,
        },
        "unknownMints": {"count": mints.unknown, "ltz": mints.unknown_ltz},
    }


def _lane_object(lane: WalletComparison) -> dict[str, Any]:
    record = lane.record
    return {
        "wallet": checksummed(lane.wallet),
        "kind": record and record.kind,
        "mustResume": lane.must_resume,
        "isAhead": lane.is_ahead,
        "nextNonce": record and record.next_nonce,
        "continueAt": lane.nonce if lane.must_resume and lane.obstacle is None else None,
        "behindGap": lane.behind_gap,
        "obstacle": lane.obstacle,
        "inFlight": 0 if record is None else len(record.in_flight),
        "foreignUse": record and record.foreign_use,
        "nodes": [
            {
                "name": history.name,
                "head": history.head,
                "used": history.used,
                "pending": history.pending,
                "pooled": history.pooled,
            }
            for history in lane.histories
        ],
    }


def lines(comparison: Comparison, options: str) -> Iterator[str]:
    """`options` are those of the next command, after a space."""
    yield (
        f"Chain {comparison.chain.chain_id}, LTZ {checksummed(comparison.chain.ltz)}: the index "
        f"has read block {comparison.cursor}, the nodes' head is {comparison.head}."
    )
    if comparison.cursor < comparison.head:
        yield (
            f"  Blocks that are not indexed yet: {comparison.head - comparison.cursor}. What they "
            "hold is not counted below. The indexer reads them by itself."
        )
    for lane in comparison.lanes:
        yield from _lane_lines(lane)
    yield from _reference_lines(comparison)
    yield from _reward_lines(comparison)
    if comparison.must_apply:
        yield f"To do: `ltzd restore apply{options}`. It may run beside ltzd, and may be repeated."
        yield f"  {_WAITING}"
        if any(lane.is_ahead for lane in comparison.lanes):
            yield f"  {_UNDONE}"
    else:
        yield "Nothing to do: the database knows all that its wallets have done."


def _lane_lines(lane: WalletComparison) -> Iterator[str]:
    record = lane.record
    assert record is not None, "lanes of the database have a row"
    yield (
        f"The {record.kind} lane of {checksummed(lane.wallet)}: next nonce {record.next_nonce}, "
        f"{len(record.in_flight)} transactions in flight."
    )
    for history in lane.histories:
        pooled = f", {len(history.pooled)} in its pool" if history.pooled else ""
        yield (
            f"  {history.name}: {counted(history.used, 'nonce')} used up to block {history.head}; "
            f"after pending transactions the next one is {history.pending}{pooled}"
        )
    if lane.is_ahead:
        highest = wallet_history.next_free(lane.histories)
        yield (
            f"  The chain knows {highest} nonces of it, the database {record.next_nonce}: commits "
            "are lost, or something else signs with the key."
        )
    if record.foreign_use is not None:
        yield f"  Stopped, because something else signs with the key: {record.foreign_use}."
    if lane.waits_in_vain:
        yield (
            f"  The lane waits for nonce {record.resumed_nonce - 1}, which no node has any more."
        )
    if lane.has_taken_references:
        yield "  LTZ has used references that this lane would still assign."
    if lane.obstacle is not None:
        yield f"  {lane.obstacle}"
        yield "  `ltzd restore apply` leaves this lane as it is; the other lanes continue."
    elif lane.must_resume:
        yield f"  `ltzd restore apply` lets it continue at nonce {lane.nonce}."


def _reference_lines(comparison: Comparison) -> Iterator[str]:
    if comparison.next_seq is None:
        return
    yield f"The database has given out the references below {comparison.next_seq}."
    if comparison.is_counter_behind:
        yield (
            f"  LTZ has used later references: `ltzd restore apply` continues at "
            f"{comparison.free_seq}."
        )


def _reward_lines(comparison: Comparison) -> Iterator[str]:
    mints = comparison.mints
    yield f"Rewards: {comparison.waiting} wait for their first transaction."
    if mints.unlinked:
        yield (f"  {mints.unlinked} of them are minted already: `ltzd restore apply` records that.")
    if mints.taken:
        yield (
            f"  {mints.taken} hold references that other mints have used: `ltzd restore apply` "
            "queues them again, for new references."
        )
    if mints.unknown:
        yield (
            f"  {mints.unknown} mints of {mints.unknown_ltz} LTZ belong to rewards that this "
            "database does not know: their events are lost, and cannot be restored from the chain. "
            "Inform the brands; `ltzd books` lists them as foreign_mint, and `ltzd books "
            "acknowledge foreign_mint --all --reason TEXT` explains them."
        )


def applied_object(applied: Applied, after: Comparison | None) -> dict[str, Any]:
    return {
        "resumed": [
            {"wallet": checksummed(record.wallet), "kind": record.kind, "nonce": nonce}
            for record, nonce in applied.resumed
        ],
        "heldBack": [
            {"wallet": checksummed(lane.wallet), "reason": lane.obstacle}
            for lane in applied.held_back
        ],
        "referencesFrom": applied.raised_to,
        "recordedMints": applied.linked,
        "requeued": applied.released,
        "after": None if after is None else as_object(after),
    }


def applied_lines(
    before: Comparison, applied: Applied, after: Comparison | None, options: str
) -> Iterator[str]:
    if not before.must_apply:
        yield "Nothing was to do, and nothing changed."
        return
    for record, nonce in applied.resumed:
        yield (
            f"The {record.kind} lane of {checksummed(record.wallet)} continues at nonce {nonce}; "
            f"it was at {record.next_nonce}."
        )
    if applied.raised_to is not None:
        yield f"References continue at {applied.raised_to}; they were at {before.next_seq}."
    if applied.linked:
        yield f"{applied.linked} queued rewards are recorded as minted."
    if applied.released:
        yield f"{applied.released} rewards are queued again, for new references."
    if applied.resumed:
        yield _WAITING
        yield _UNDONE
        yield "Running processes follow within seconds; nothing needs a restart."
    for lane in applied.held_back:
        assert lane.record is not None, "only known lanes are compared"
        yield (
            f"The {lane.record.kind} lane of {checksummed(lane.wallet)} is left as it was; this "
            "holds back no other lane."
        )
        yield f"  {lane.obstacle}"
    if after is None:
        yield (
            "The nodes do not answer any more, so that the result was not compared with them: run "
            f"`ltzd restore check{options}` when they do."
        )
    elif after.must_apply:
        yield f"Something is left to do: see `ltzd restore check{options}`."
