"""Conditions of queued work: rewards, relays, webhooks."""

from collections.abc import Iterator

from ltzd.rules.conditions.facts import QueueFacts
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.values import checksummed


def judge_queues(queues: QueueFacts, policy: ConditionPolicy) -> Iterator[Condition]:
    if queues.reward_seconds is not None and queues.reward_seconds > policy.reward_seconds:
        yield Condition(
            ConditionKind.REWARDS_OVERDUE,
            f"The oldest queued reward has waited for {queues.reward_seconds:.0f} s: a condition "
            "of the mint lanes or `ltzd lane list` says why",
        )
    if queues.rewards_above_limit:
        yield Condition(
            ConditionKind.REWARDS_ABOVE_LIMIT,
            f"{queues.rewards_above_limit} rewards are above every wallet's mint limit, and wait "
            "until `ltzd wallet grant` raises it",
        )
    if queues.relay_seconds is not None and queues.relay_seconds > policy.relay_seconds:
        yield Condition(
            ConditionKind.RELAYS_OVERDUE,
            f"The oldest queued relay has waited for {queues.relay_seconds:.0f} s: a condition of "
            "the relay lanes or `ltzd lane list` says why",
        )
    if queues.webhook_seconds is not None and queues.webhook_seconds > policy.webhook_seconds:
        yield Condition(
            ConditionKind.WEBHOOKS_OVERDUE,
            f"A webhook has been due for {queues.webhook_seconds:.0f} s: no process with the role "
            "deliveries sends it, or these processes are too slow",
        )
    for brand, reason in queues.disabled_endpoints:
        name = checksummed(brand)
        yield Condition(
            ConditionKind.WEBHOOKS_DISABLED,
            f"The webhooks of brand {name} are disabled ({reason}): once its server works, run "
            f"`ltzd webhooks enable {name}`",
            name,
        )
