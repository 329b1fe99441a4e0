"""`ltzd event show`: prints an event, its reward and its transaction as a table or as JSON."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from rich.console import Group
from rich.table import Table

from ltzd.cli.event.lookup import find_event
from ltzd.cli.output import plain_text, print_json, print_page
from ltzd.cli.targets import Target, open_connection
from ltzd.rules.operator.fees import GWEI
from ltzd.store.event_handler.history import EventHistory, TransactionFacts
from ltzd.store.operator.transaction_views import AttemptView
from ltzd.values import checksummed, hex_of, iso, iso_or_none


def show(target: Target, event_id: str, *, as_json: bool) -> None:
    event = asyncio.run(_read(target, event_id))
    if as_json:
        print_json(_whole(event))
    else:
        print_page(_page(event))


async def _read(target: Target, text: str) -> EventHistory:
    async with open_connection(target, "event show") as connection:
        return await find_event(connection, text)


def _whole(event: EventHistory) -> dict[str, Any]:
    reward, mint = event.reward, event.mint
    return {
        "eventId": str(event.id),
        "brandId": hex_of(event.brand_id),
        "brandName": event.brand_name,
        "brandIsPaused": event.is_brand_paused,
        "patienceSeconds": event.patience_seconds,
        "eventType": event.event_type,
        "source": event.source,
        "domain": event.domain,
        "rewardAmount": event.ltz,
        "status": event.status,
        "walletAddress": checksummed(event.wallet),
        "createdAt": iso(event.created_at),
        "reward": reward
        and {
            "seq": reward.seq,
            "reference": reward.reference and hex_of(reward.reference),
            "failedAt": iso_or_none(reward.failed_at),
            "failure": reward.failure,
        },
        "transaction": event.transaction and _transaction(event.transaction),
        "mint": mint
        and {
            "transactionHash": hex_of(mint.transaction_hash),
            "blockNumber": mint.block_number,
            "blockHash": hex_of(mint.block_hash),
            "isFinal": mint.is_final,
        },
    }


def _transaction(transaction: TransactionFacts) -> dict[str, Any]:
    return {
        "id": transaction.id,
        "chainId": transaction.chain_id,
        "wallet": checksummed(transaction.wallet),
        "nonce": transaction.nonce,
        "state": transaction.state,
        "blockNumber": transaction.block_number,
        "createdAt": iso(transaction.created_at),
        "minedAt": iso_or_none(transaction.mined_at),
        "settledAt": iso_or_none(transaction.settled_at),
        "attempts": [
            {
                "hash": hex_of(attempt.hash),
                "maxFeePerGasWei": attempt.max_fee_per_gas,
                "maxPriorityFeePerGasWei": attempt.max_priority_fee_per_gas,
                "createdAt": iso(attempt.created_at),
                "publishedAt": iso_or_none(attempt.published_at),
                "isSelfTransfer": attempt.is_self_transfer,
            }
            for attempt in transaction.attempts
        ],
    }


def _page(event: EventHistory) -> Group:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, text in _lines(event):
        table.add_row(name, plain_text(text))
    return Group(table)


def _lines(event: EventHistory) -> Iterator[tuple[str, str]]:
    yield "event", str(event.id)
    yield "status", event.status
    yield "brand", f"{hex_of(event.brand_id)} {event.brand_name or ''}".rstrip()
    if event.is_brand_paused and event.status == "queued":
        resume = f"`ltzd brand resume {hex_of(event.brand_id)}` ends that"
        yield "", f"the brand is paused, so its rewards wait: {resume}"
    if event.patience_seconds and event.status == "queued":
        until = iso(event.created_at + timedelta(seconds=event.patience_seconds))
        yield "", f"the brand lets it wait for a cheaper block, until {until} at the latest"
    yield "type", event.event_type
    yield "domain", event.domain
    if event.source is not None:
        yield "source", event.source
    yield "reward", f"{event.ltz} LTZ to {checksummed(event.wallet)}"
    yield "recorded", iso(event.created_at)
    yield from _reward_lines(event)
    if event.transaction is not None:
        yield from _transaction_lines(event.transaction)
    if event.mint is not None:
        yield "minted", f"in block {event.mint.block_number} {hex_of(event.mint.block_hash)}"
        yield "", f"by {hex_of(event.mint.transaction_hash)}"


def _reward_lines(event: EventHistory) -> Iterator[tuple[str, str]]:
    reward = event.reward
    if reward is None:
        return
    if reward.reference is not None:
        yield "reference", f"{hex_of(reward.reference)} (seq {reward.seq})"
    if reward.failed_at is not None:
        yield "failed", f"{iso(reward.failed_at)}: {reward.failure}"
        yield "", f"`ltzd event retry {event.id}` puts it back into the queue"
    elif reward.failure is not None:
        yield "failed before", reward.failure


def _transaction_lines(transaction: TransactionFacts) -> Iterator[tuple[str, str]]:
    yield "transaction", str(transaction.id)
    yield "", f"nonce {transaction.nonce} of {checksummed(transaction.wallet)}"
    block = "" if transaction.block_number is None else f" in block {transaction.block_number}"
    yield "", f"{transaction.state}{block}"
    for attempt in transaction.attempts:
        yield "self-transfer" if attempt.is_self_transfer else "attempt", hex_of(attempt.hash)
        yield "", _attempt(attempt)


def _attempt(attempt: AttemptView) -> str:
    published = "not published" if attempt.published_at is None else iso(attempt.published_at)
    fees = (
        f"gas price {attempt.max_fee_per_gas / GWEI:g} gwei"
        if attempt.is_legacy
        else f"at most {attempt.max_fee_per_gas / GWEI:g} gwei, "
        f"{attempt.max_priority_fee_per_gas / GWEI:g} of it as a tip"
    )
    return f"signed {iso(attempt.created_at)}, published {published}; {fees}"
