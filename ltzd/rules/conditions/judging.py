"""Judges what is wrong now, from the whole installation's facts and one process's own faults.

Every surface shows what `judge` returns, and none judges by itself (decision 0035).
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from ltzd.rules.conditions.facts import ClusterFacts, ProcessIdentity
from ltzd.rules.conditions.index import judge_index
from ltzd.rules.conditions.kinds import Condition, ConditionKind, Severity
from ltzd.rules.conditions.lanes import judge_wallets
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.rules.conditions.processes import judge_processes, live, roles_present
from ltzd.rules.conditions.queues import judge_queues
from ltzd.values import checksummed

_ORDER = {severity: number for number, severity in enumerate(Severity)}
_KIND_ORDER = {kind: number for number, kind in enumerate(ConditionKind)}


class OwnView(msgspec.Struct, frozen=True):
    """The knowledge of this process alone: its own faults and its trusted nodes' newest block."""

    process: ProcessIdentity
    conditions: tuple[Condition, ...] = ()
    height: int | None = None


def judge(
    facts: ClusterFacts | None, own: OwnView, policy: ConditionPolicy
) -> tuple[Condition, ...]:
    """The conditions, the worst first. `facts` is None while the database does not answer."""
    conditions = [replace(each, seen_by=(own.process.name,)) for each in own.conditions]
    if facts is None:
        unavailable = Condition(
            ConditionKind.DATABASE_UNAVAILABLE,
            "The database does not answer, takes no writes or loses commits: see `ltzd check`",
            own.process.name,
        )
        return _sorted([unavailable, *conditions])
    others = live(facts, own.process, policy)
    for process in others:
        name = process.identity.name
        conditions += [replace(each, seen_by=(name,)) for each in process.report.conditions]
    heights = [own.height, *(process.report.height for process in others)]
    conditions += judge_index(facts, heights, policy)
    conditions += judge_processes(facts, own.process, policy)
    has_operator = "operator" in roles_present(facts, own.process, policy)
    has_node = all(each.kind is not ConditionKind.NO_NODE_USABLE for each in conditions)
    stopped = {each.subject for each in conditions if each.kind is ConditionKind.LANE_STOPPED}
    conditions += judge_wallets(
        facts, has_operator=has_operator, has_node=has_node, stopped=stopped
    )
    conditions += judge_queues(facts.queues, policy)
    return _sorted(_without_repeats(_merged(conditions), facts))


def _merged(conditions: Iterable[Condition]) -> list[Condition]:
    """One condition for each kind and subject, with all processes that see it."""
    merged: dict[tuple[ConditionKind, str | None], Condition] = {}
    for condition in conditions:
        key = condition.kind, condition.subject
        first = merged.setdefault(key, condition)
        if first is not condition:
            seen_by = dict.fromkeys((*first.seen_by, *condition.seen_by))
            merged[key] = replace(first, seen_by=tuple(seen_by))
    return list(merged.values())


def _without_repeats(conditions: Sequence[Condition], facts: ClusterFacts) -> list[Condition]:
    """Leave out what another condition says better.

    If another process holds the wallet that a process cannot serve, only a standby is missing.
    """
    empty = {each.subject for each in conditions if each.kind is ConditionKind.WALLET_OUT_OF_FUNDS}
    held = {checksummed(wallet.wallet) for wallet in facts.wallets if wallet.holder is not None}
    return [
        replace(each, kind=ConditionKind.STANDBY_MISSING)
        if each.kind is ConditionKind.WALLET_UNSERVED and each.subject in held
        else each
        for each in conditions
        if not (each.kind is ConditionKind.WALLET_LOW and each.subject in empty)
    ]


def _sorted(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Stable: conditions of one kind stay in their order."""
    return tuple(
        sorted(
            conditions, key=lambda each: (_ORDER[each.kind.facts.severity], _KIND_ORDER[each.kind])
        )
    )
