"""Conditions of the operator's lanes and wallets."""

from collections.abc import Collection, Container, Iterable, Iterator

import msgspec

from ltzd.rules.conditions.facts import ClusterFacts, LaneState, WalletFacts
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.values import ETHER, Address, checksummed


class _Pause(msgspec.Struct, frozen=True):
    """The report of a paused lane. `{wallet}` and `{grant}` stand for the wallet and its command.

    `is_brief`: the pause may come and go by itself, and is reported only after `_BRIEF_SECONDS`.
    """

    sentence: str
    kind: ConditionKind = ConditionKind.LANE_PAUSED
    is_brief: bool = False


PAUSES = {
    "fees": _Pause(
        "fees are above [operator] max_fee_gwei; the lane goes on once fees fall, or with a higher "
        "maximum",
        ConditionKind.FEES_ABOVE_CAP,
    ),
    "funds": _Pause(
        "the wallet cannot pay for its work: send it gas money",
        ConditionKind.WALLET_OUT_OF_FUNDS,
    ),
    "mint_limit": _Pause(
        "the wallet's mint limit on chain is spent or zero: it refills with time, and "
        "`{grant}` raises it",
        ConditionKind.MINT_LIMIT_SPENT,
        is_brief=True,
    ),
    "signer": _Pause(
        "the signer of its key does not answer",
        ConditionKind.SIGNER_UNAVAILABLE,
        is_brief=True,
    ),
    "by_hand": _Pause(
        "a person has paused it; `ltzd lane resume {wallet}` ends the pause",
        ConditionKind.LANE_PAUSED_BY_HAND,
    ),
    "would_revert": _Pause("LTZ would refuse all queued rewards: look at their errors in the log"),
    "role": _Pause(
        "its wallet lacks a role on chain, so its relays would revert: `{grant}` grants "
        "what is missing"
    ),
    "node": _Pause("no node answers", is_brief=True),
    "refused": _Pause("nodes refuse its transactions for good: `ltzd tx list` shows them"),
    "publication": _Pause(
        "nodes neither accept its transactions nor refuse them for good", is_brief=True
    ),
    "receipts": _Pause("nodes disagree about the receipts of its transactions", is_brief=True),
    "block_gas_limit": _Pause(
        "a block of this chain holds less gas than its next transaction needs"
    ),
    "block_gas_unconfirmed": _Pause(
        "one node says that blocks hold less gas than its work needs, and no other node answers",
        is_brief=True,
    ),
    "key_gone": _Pause(
        "the wallet is retired, its oldest transaction is not mined, and no key can replace it"
    ),
    "day_spent": _Pause("its top-ups of this day have reached max_wei_per_day"),
    "comparing": _Pause("the database may lack its last commits, and is compared with the chain"),
    "foreign_use": _Pause(
        "something else signs with the wallet's key: see `ltzd lane adopt {wallet}`"
    ),
}
"""By the reason in the lane's row."""
INTENDED = frozenset(("draining", "retired"))
"""Reasons that a person has chosen and that end by themselves."""
_BRIEF_SECONDS = 5.0
_DUTIES = {"mint": "nothing is minted", "relay": "nothing is relayed"}


def grant_command(wallet: Address, kind: str) -> str:
    """By this command the contracts' admin gives a wallet its roles, and its mint limit."""
    limit = " --mint-limit LTZ" if kind == "mint" else ""
    return f"ltzd wallet grant {checksummed(wallet)} --kind {kind}{limit} --key FILE"


def judge_own_lanes(lanes: Iterable[LaneState]) -> Iterator[Condition]:
    """The faults of lanes that only the process that runs them knows."""
    for lane in lanes:
        name = checksummed(lane.wallet)
        if lane.stopped is not None:
            yield Condition(
                ConditionKind.LANE_STOPPED,
                f"Lane {lane.kind} {name} stopped: {lane.stopped}",
                name,
                is_blocking=True,
            )
        if lane.is_held:
            yield from _own_wallet(lane, name)


def _own_wallet(lane: LaneState, name: str) -> Iterator[Condition]:
    grant = f"`{grant_command(lane.wallet, lane.kind)}`"
    if lane.missing_roles:
        yield Condition(
            ConditionKind.WALLET_WITHOUT_ROLE,
            f"Wallet {lane.kind} {name} lacks {', '.join(lane.missing_roles)} on chain, so its "
            f"transactions would revert: {grant} grants what is missing",
            name,
        )
    elif lane.mint_limit_is_zero:
        yield Condition(
            ConditionKind.MINT_LIMIT_SPENT,
            f"Wallet {lane.kind} {name} has a mint limit of 0 on chain, so it mints nothing: "
            f"{grant} sets it",
            name,
        )
    if lane.balance_wei is not None and lane.balance_wei < lane.floor_wei:
        yield Condition(
            ConditionKind.WALLET_LOW,
            f"Wallet {lane.kind} {name} has {_coins(lane.balance_wei)} of the native coin, below "
            f"its floor of {_coins(lane.floor_wei)}: send it gas money",
            name,
        )


def _coins(wei: int) -> str:
    return f"{wei / ETHER:.6g}"


def judge_wallets(
    facts: ClusterFacts,
    *,
    has_operator: bool,
    has_node: bool = True,
    stopped: Container[str | None] = (),
) -> Iterator[Condition]:
    """`has_operator` says whether any process has the role operator.

    Without `has_node` another condition already reports why lanes wait for a node. `stopped` has
    the names of wallets whose lanes are stopped: another condition reports why no process holds
    them.
    """
    expected = INTENDED if has_node else INTENDED | {"node"}
    for wallet in facts.wallets:
        if wallet.paused_for is not None and wallet.paused_for not in expected:
            yield from _paused(wallet, wallet.paused_for)
    if not has_operator:
        return  # The condition ROLE_ABSENT covers all lanes.
    for kind, consequence in _DUTIES.items():
        all_wallets = [wallet for wallet in facts.wallets if wallet.kind == kind]
        wallets = [each for each in all_wallets if checksummed(each.wallet) not in stopped]
        is_reported = bool(all_wallets) and not wallets
        if is_reported or any(wallet.holder is not None for wallet in all_wallets):
            continue
        known = ", ".join(checksummed(wallet.wallet) for wallet in wallets[:3])
        cause = f"no process holds its wallets ({known})" if wallets else "no wallet has this kind"
        yield Condition(
            ConditionKind.LANE_UNHELD,
            f"No process holds a {kind} lane, so {consequence}: {cause}",
            kind,
        )
    yield from _unserved(facts.wallets, stopped)


def _unserved(
    wallets: Collection[WalletFacts], stopped: Container[str | None]
) -> Iterator[Condition]:
    held_kinds = {wallet.kind for wallet in wallets if wallet.holder is not None}
    for wallet in wallets:
        is_covered = wallet.kind in _DUTIES and wallet.kind not in held_kinds  # by LANE_UNHELD
        name = checksummed(wallet.wallet)
        if wallet.holder is None and not is_covered and name not in stopped:
            yield Condition(
                ConditionKind.WALLET_UNSERVED,
                f"No process serves the {wallet.kind} wallet {name}: give a process its key, or "
                f"retire it with `ltzd wallet retire {name}`",
                name,
            )


def _paused(wallet: WalletFacts, reason: str) -> Iterator[Condition]:
    pause = PAUSES.get(reason) or _Pause(reason)
    if pause.is_brief and (wallet.paused_seconds or 0) < _BRIEF_SECONDS:
        return
    name = checksummed(wallet.wallet)
    since = "" if wallet.paused_seconds is None else f" for {wallet.paused_seconds:.0f} s"
    by_hand = "" if wallet.by_hand_reason is None else f" ({wallet.by_hand_reason})"
    grant = grant_command(wallet.wallet, wallet.kind)
    sentence = pause.sentence.replace("{wallet}", name).replace("{grant}", grant)
    yield Condition(
        pause.kind,
        f"Lane {wallet.kind} {name} has been paused{since}: {sentence}{by_hand}",
        name,
    )
