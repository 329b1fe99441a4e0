"""Says in words what a transaction does and pays."""

from ltzd.rules.operator.fees import GWEI
from ltzd.store.operator.transaction_views import TransactionSummary
from ltzd.values import ETHER, checksummed


def name_of(tx: TransactionSummary) -> str:
    return f"Transaction {tx.id} (nonce {tx.nonce} of {checksummed(tx.wallet)})"


def work_of(tx: TransactionSummary) -> str:
    """The effect of its call, also after its self-transfer was mined."""
    if tx.kind == "mint":
        if not tx.rewards:
            return "mint whose rewards are queued again or minted otherwise"
        return f"mint of {counted(tx.rewards, 'reward')}, {tx.ltz} LTZ"
    if tx.kind == "relay" and tx.user is not None:
        return f"{tx.function} for {checksummed(tx.user)}"
    if tx.value_wei:
        return f"transfer of {tx.value_wei / ETHER:g} to {checksummed(tx.to)}"
    return f"call of {checksummed(tx.to)}"


def fees_text(max_fee: int, tip: int, *, is_legacy: bool) -> str:
    if is_legacy:
        return f"gas price {max_fee / GWEI:g} gwei"
    return f"at most {max_fee / GWEI:g} gwei, {tip / GWEI:g} of it as a tip"


def remarks_of(tx: TransactionSummary) -> list[str]:
    """The remarks that a list shows beside the state."""
    remarks = []
    if tx.is_stuck:
        remarks.append("stuck")
    if tx.is_unmined and tx.ahead:
        remarks.append(f"behind nonce {tx.oldest_nonce}")
    if tx.has_self_transfer and tx.is_open:
        remarks.append("being cancelled" if not tx.is_cancelled else "self-transfer mined")
    if tx.state == "mined" and tx.succeeded is False and not tx.is_cancelled:
        remarks.append("reverted")
    if tx.has_request:
        remarks.append("request open")
    return remarks


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
