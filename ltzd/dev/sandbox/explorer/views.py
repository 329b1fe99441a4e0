"""HTML of blocks, transactions and rewards for the explorer."""

from datetime import UTC, datetime

from ltzd.dev.sandbox import pages
from ltzd.dev.sandbox.explorer.node_reads import RpcBlock, RpcReceipt, RpcTransaction, quantity
from ltzd.dev.sandbox.explorer.reward_logs import LoggedReward, ltz_text
from ltzd.dev.sandbox.pages import Html, link, text
from ltzd.values import address_of, checksummed, hex_of

BASE = "/explorer"

_MAX_TRANSACTIONS = 500


def transaction_facts(
    transaction: RpcTransaction, receipt: RpcReceipt | None, block: RpcBlock | None, head: int
) -> list[tuple[str, Html]]:
    rows = [
        ("Hash", text(transaction.hash)),
        ("Status", _status(receipt)),
        ("From", _address_link(transaction.sender)),
        ("To", _address_link(transaction.to)),
        ("Value", text(f"{quantity(transaction.value)} wei")),
        ("Nonce", text(quantity(transaction.nonce))),
        ("Function", text(transaction.input[:10] if len(transaction.input) >= 10 else "none")),
    ]
    if receipt is None:
        return rows
    number = quantity(receipt.block_number)
    depth = max(0, head - number + 1)
    gas = f"{quantity(receipt.gas_used):,} of {quantity(transaction.gas):,}"
    rows[2:2] = [
        ("Block", Html(f"{_block_link(number)} {text(f'(depth {depth})', 'dim')}")),
        ("Block hash", text(receipt.block_hash)),
        ("Time", text(_time_text(block.timestamp) if block else "unknown")),
    ]
    rows.append(("Gas used", text(gas)))
    if receipt.effective_gas_price is not None:
        rows.append(("Gas price", text(f"{quantity(receipt.effective_gas_price)} wei")))
    if receipt.contract_address is not None:
        rows.append(("Contract created", _address_link(receipt.contract_address)))
    return rows


def _status(receipt: RpcReceipt | None) -> Html:
    if receipt is None:
        return text("Pending", "dim")
    if receipt.status is not None and quantity(receipt.status) == 0:
        return text("Reverted", "bad")
    return text("Success", "good")


def rewards_part(rewards: list[LoggedReward]) -> list[Html]:
    if not rewards:
        return [pages.heading("LTZ rewards"), pages.note("None.")]
    titles = ("Recipient", "Amount", "Event", "No.", "Reference", "Transaction")
    return [pages.heading("LTZ rewards"), pages.table(titles, [*map(_reward_row, rewards)])]


def _reward_row(reward: LoggedReward) -> list[Html]:
    outcome = text("minted", "good") if reward.was_minted else text("skipped", "bad")
    return [
        _address_link(hex_of(reward.recipient)),
        Html(f"{text(ltz_text(reward.amount))} LTZ {outcome}"),
        text(reward.event),
        text(reward.sequence),
        text(hex_of(reward.reference)),
        _transaction_link(reward.transaction_hash) if reward.transaction_hash else text("unknown"),
    ]


def block_row(block: RpcBlock) -> list[Html]:
    return [
        _block_link(quantity(block.number)),
        text(_time_text(block.timestamp)),
        text(len(block.transactions)),
        text(block.hash),
    ]


def block_parts(block: RpcBlock) -> list[Html]:
    rows = [
        ("Hash", text(block.hash)),
        ("Parent", text(block.parent_hash)),
        ("Time", text(_time_text(block.timestamp))),
        ("Gas used", text(f"{quantity(block.gas_used):,}")),
    ]
    complete = [each for each in block.transactions if isinstance(each, RpcTransaction)]
    shown = complete[:_MAX_TRANSACTIONS]
    lines = [
        [_transaction_link(t.hash), _address_link(t.sender), _address_link(t.to)] for t in shown
    ]
    return [
        pages.facts(rows),
        pages.heading(f"{len(block.transactions)} transactions"),
        pages.table(("Hash", "From", "To"), lines),
    ]


def _block_link(number: int) -> Html:
    return link(f"{BASE}/block/{number}", number)


def _transaction_link(tx_hash: str) -> Html:
    return link(f"{BASE}/tx/{tx_hash}", tx_hash)


def _address_link(address: str | None) -> Html:
    if address is None:
        return text("a new contract")
    try:
        shown = checksummed(address_of(address.lower()))
    except ValueError:
        return text(address)
    return link(f"{BASE}/address/{shown}", shown)


def _time_text(timestamp: str) -> str:
    try:
        return datetime.fromtimestamp(quantity(timestamp), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "unknown"
