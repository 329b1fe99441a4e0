"""A sample of the chain tests against Hardhat's node, a client of its own.

The sample shows where ltzd has learned the habits of anvil and the tester chain instead of
Ethereum's.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from msgspec.structs import replace

from ltzd.chain.signing import UnsignedTransaction
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.values import Address
from tests.chain.contracts.test_contract_lives import (
    test_a_perk_is_claimed_with_a_permit_in_one_transaction_and_redeemed_to_zero,
    test_a_purchase_signed_by_the_buyer_can_be_sent_by_any_account_once,
    test_a_reverts_reason_is_decoded_by_name,
    test_any_account_can_return_an_expired_deal_to_its_user,
)
from tests.support.chain.contracts import Contracts, Party, contracts_deployed_at
from tests.support.clients.hardhat import a_hardhat_node
from tests.support.instances.books import all_minted, assert_books_agree
from tests.support.instances.instance import an_instance

__all__ = [
    "test_a_perk_is_claimed_with_a_permit_in_one_transaction_and_redeemed_to_zero",
    "test_a_purchase_signed_by_the_buyer_can_be_sent_by_any_account_once",
    "test_a_reverts_reason_is_decoded_by_name",
    "test_any_account_can_return_an_expired_deal_to_its_user",
]

GWEI = 10**9


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rpc_url() -> AsyncIterator[str]:
    async with a_hardhat_node() as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def contracts(rpc_url: str) -> AsyncIterator[Contracts]:
    async with contracts_deployed_at(rpc_url) as deployed:
        yield deployed


async def _transfer(contracts: Contracts, **changes: Any) -> UnsignedTransaction:
    head = await contracts.node.block("latest")
    assert head is not None
    assert head.base_fee is not None
    transfer = UnsignedTransaction(
        chain_id=contracts.chain_id,
        nonce=0,
        max_priority_fee_per_gas=GWEI,
        max_fee_per_gas=2 * head.base_fee + GWEI,
        gas_limit=21_000,
        to=Address(b"\x11" * 20),
        value=1,
        data=b"",
    )
    return replace(transfer, **changes)


async def _published(contracts: Contracts, by: Party, **changes: Any) -> PublishOutcome:
    signed = by.signer.sign(await _transfer(contracts, **changes))
    outcome, _ = await contracts.node.publish(signed.raw)
    return outcome


async def test_refused_transactions_have_the_outcomes_that_the_operator_acts_on(
    contracts: Contracts,
) -> None:
    rich, poor = Party(), Party()
    await contracts.give_gas_money(rich)
    assert await _published(contracts, rich) is PublishOutcome.ACCEPTED
    outcomes = {
        "mined": await _published(contracts, rich),
        "nonce": await _published(contracts, rich, value=2),
        "funds": await _published(contracts, poor),
        "gas": await _published(contracts, rich, nonce=1, gas_limit=20_000),
        "chain": await _published(contracts, rich, nonce=1, chain_id=contracts.chain_id + 1),
        "most gas": await _published(contracts, rich, nonce=1, gas_limit=2**24 + 1),
    }
    assert outcomes == {
        "mined": PublishOutcome.NONCE_TOO_LOW,
        "nonce": PublishOutcome.NONCE_TOO_LOW,
        "funds": PublishOutcome.UNAFFORDABLE,
        "gas": PublishOutcome.REFUSED_FOR_GOOD,
        "chain": PublishOutcome.REFUSED_FOR_GOOD,
        "most gas": PublishOutcome.REFUSED_FOR_GOOD,
    }


async def test_a_replacement_must_raise_the_fees_and_a_known_transaction_is_accepted(
    contracts: Contracts,
) -> None:
    sender = Party()
    await contracts.give_gas_money(sender)
    await contracts.rpc.call("evm_setAutomine", False)
    try:
        assert await _published(contracts, sender) is PublishOutcome.ACCEPTED
        assert await _published(contracts, sender) is PublishOutcome.ACCEPTED
        assert await _published(contracts, sender, value=2) is PublishOutcome.UNDERPRICED
        dearer = {"max_priority_fee_per_gas": 3 * GWEI, "max_fee_per_gas": 20 * GWEI}
        assert await _published(contracts, sender, value=2, **dearer) is PublishOutcome.ACCEPTED
    finally:
        await contracts.rpc.call("evm_mine")
        await contracts.rpc.call("evm_setAutomine", True)
    assert await contracts.node.nonce(sender.address, at="latest") == 1


async def test_minted_logs_are_read_by_range_and_by_block_and_in_receipts(
    contracts: Contracts,
) -> None:
    user, ltz = Party(), contracts.at["LTZ"]
    await contracts.mint(user, 5)
    node = contracts.node
    head, _ = await node.head_and_final()
    by_range = await contracts.rpc.call(
        "eth_getLogs", {"address": "0x" + ltz.hex(), "fromBlock": hex(head.number)}
    )
    by_receipts = await node.logs_by_receipts(head.hash, ltz)
    assert [log["logIndex"] for log in by_range] == [log["logIndex"] for log in by_receipts]
    assert len(by_range) == 2


async def test_events_are_minted_and_the_books_agree(rpc_url: str, database_url: str) -> None:
    given = ("--rpc-url", rpc_url, "--database-url", database_url)
    async with an_instance(*given) as instance:
        users = [f"{number}@shop.example" for number in range(8)]
        answers = await asyncio.gather(*map(instance.post_event, users))
        assert {answer.status for answer in answers} == {200}
        await all_minted(instance)
        await assert_books_agree(instance, list(answers))
