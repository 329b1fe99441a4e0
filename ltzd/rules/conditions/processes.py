"""Conditions of the processes of an installation: missing ones, roles, versions."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from uuid import UUID

from ltzd.rules.conditions.facts import ClusterFacts, ProcessFacts, ProcessIdentity
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.conditions.policy import ConditionPolicy

_DUTIES = {
    "http": "no request is accepted",
    "operator": "nothing is minted and nothing is relayed",
    "indexer": "no block is indexed",
    "deliveries": "no webhook is sent",
}
"""The roles, and what happens without each."""


def live(
    facts: ClusterFacts, me: ProcessIdentity, policy: ConditionPolicy
) -> tuple[ProcessFacts, ...]:
    """The other processes that still report."""
    return tuple(
        process
        for process in facts.processes
        if process.identity.id != me.id and process.seen_seconds <= policy.missing_after_seconds
    )


def judge_processes(
    facts: ClusterFacts, me: ProcessIdentity, policy: ConditionPolicy
) -> Iterator[Condition]:
    others = live(facts, me, policy)
    yield from _absent_roles(facts, roles_present(facts, me, policy), policy)
    yield from map(_missing, missing(facts, me, policy))
    yield from _versions([each for each in [me, *(p.identity for p in others)] if each.roles])


def roles_present(
    facts: ClusterFacts, me: ProcessIdentity, policy: ConditionPolicy
) -> frozenset[str]:
    """The roles that any process has.

    A held lease proves a role, too: a process of an older version writes no report.
    """
    running = [me, *(process.identity for process in live(facts, me, policy))]
    kinds = {name.partition("/")[0] for name in facts.lease_holders}
    leased = {role for kind, role in (("lane", "operator"), ("indexer",) * 2) if kind in kinds}
    return frozenset(leased.union(*(process.roles for process in running)))


def _absent_roles(
    facts: ClusterFacts, present: frozenset[str], policy: ConditionPolicy
) -> Iterator[Condition]:
    is_old = facts.chain is not None and facts.chain.idle_seconds > policy.absent_seconds
    for role, consequence in _DUTIES.items():
        if role not in present:
            yield Condition(
                ConditionKind.ROLE_ABSENT,
                f"No process has the role {role}, so {consequence}: start one",
                role,
                is_blocking=role == "indexer" and is_old,
            )


def missing(
    facts: ClusterFacts, me: ProcessIdentity, policy: ConditionPolicy
) -> tuple[ProcessFacts, ...]:
    """The processes that no longer report, except those that were replaced.

    A process was replaced if another one of the same host with the same roles began after its last
    report. Each process replaces at most one, also one that no longer reports itself: of a process
    that was killed again and again, the last one alone may be missing.
    """
    replacements = _replacements(facts.processes, me, policy)
    replaced = {process.identity.id for process in replacements.values()}
    silent = _silent(facts.processes, me, policy)
    return tuple(process for process in silent if process.identity.id not in replaced)


def replaced_by(
    me: ProcessIdentity, processes: Sequence[ProcessFacts], policy: ConditionPolicy
) -> tuple[ProcessIdentity, ...]:
    """The predecessors of `me`: the process that `me` replaced, the process before it, and so on.

    A clean end of `me` counts as theirs, too: without `me` they would have no successor.
    """
    replacements = _replacements(processes, me, policy)
    identities: list[ProcessIdentity] = []
    successor = me.id
    while successor in replacements:
        identities.append(replacements[successor].identity)
        successor = identities[-1].id
    return tuple(identities)


def _replacements(
    processes: Sequence[ProcessFacts], me: ProcessIdentity, policy: ConditionPolicy
) -> dict[UUID, ProcessFacts]:
    """The replaced processes, by the id of the process that replaced each."""
    successors: defaultdict[tuple[str, ...], list[tuple[float, UUID]]] = defaultdict(list)
    for each in processes:
        successors[_place(each.identity)].append((each.started_seconds, each.identity.id))
    if me.id not in {each.identity.id for each in processes}:
        successors[_place(me)].append((0.0, me.id))
    for possible in successors.values():
        possible.sort(reverse=True)
    replacements = {}
    for process in _silent(processes, me, policy):
        possible = successors[_place(process.identity)]
        # A single report is as old as its process, but for the time between two readings of the
        # clock.
        if possible and possible[-1][0] < min(process.seen_seconds, process.started_seconds):
            _, successor = possible.pop()
            replacements[successor] = process
    return replacements


def _silent(
    processes: Sequence[ProcessFacts], me: ProcessIdentity, policy: ConditionPolicy
) -> list[ProcessFacts]:
    """The other processes that no longer report, the last one to report first.

    That one has the fewest possible successors, so it chooses first.
    """
    silent = (
        process
        for process in processes
        if process.identity.id != me.id and process.seen_seconds > policy.missing_after_seconds
    )
    return sorted(silent, key=lambda each: each.seen_seconds)


def _place(identity: ProcessIdentity) -> tuple[str, ...]:
    """The host and the roles, in which one process may replace another."""
    return identity.host, *sorted(identity.roles)


def _missing(process: ProcessFacts) -> Condition:
    identity = process.identity
    return Condition(
        ConditionKind.PROCESS_MISSING,
        f"Process {identity.name} ({', '.join(identity.roles)}) has not reported for "
        f"{process.seen_seconds:.0f} s and has not ended cleanly: start it again, or look "
        "at its log",
        identity.name,
    )


def _versions(running: Sequence[ProcessIdentity]) -> Iterator[Condition]:
    by_version: dict[str, list[str]] = {}
    for process in running:
        by_version.setdefault(process.version, []).append(process.name)
    if len(by_version) > 1:
        versions = "; ".join(f"{v}: {', '.join(names)}" for v, names in sorted(by_version.items()))
        yield Condition(
            ConditionKind.VERSIONS_DIFFER, f"The processes run different versions ({versions})"
        )
