"""Judges a process's clock against the database's and against the chain's newest block.

Old blocks prove nothing: the chain may stand still. Blocks of the future show that the clock is
behind, except on a dev chain, whose time tests move ahead. Units: seconds.
"""

from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.conditions.policy import ConditionPolicy

_EFFECT = "so that signatures and tokens may be accepted or refused wrongly: set it by NTP"


def judge_clock(
    host: str, database_offset: float, chain_ahead: float | None, policy: ConditionPolicy
) -> Condition | None:
    """`database_offset` is how far the clock is ahead of the database's.

    `chain_ahead` is how far the newest block is ahead of the clock, or None if no node shows one.
    """
    if abs(database_offset) > policy.clock_seconds:
        side = "ahead of" if database_offset > 0 else "behind"
        difference = f"{abs(database_offset):.0f} s {side} the database's"
    elif policy.mines_on_demand or chain_ahead is None:
        return None
    elif chain_ahead > policy.chain_clock_seconds:
        difference = f"{chain_ahead:.0f} s behind the nodes' newest blocks"
    else:
        return None
    return Condition(
        ConditionKind.CLOCK_DIFFERS, f"The clock of {host} is {difference}, {_EFFECT}", host
    )
