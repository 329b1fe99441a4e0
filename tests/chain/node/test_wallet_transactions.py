"""Transactions of a wallet as nodes show them, checked against their signatures."""

from typing import Any

import pytest
from eth_account import Account

from ltzd.chain.node.wallet_transactions import signed_hash, uses_of_nonce
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, address_of, hash_of, hex_of
from tests.support.chain.fake_node import CHAIN_ID, FakeNode
from tests.support.chain.tester import GWEI, a_tester
from tests.support.rows.core import MINTER

KEY = "0x" + "5a" * 32
ACCOUNT = Account.from_key(KEY)
WALLET = address_of(ACCOUNT.address)
CALL: dict[str, Any] = {
    "nonce": 7,
    "to": "0x" + "11" * 20,
    "value": 3,
    "gas": 50_000,
    "data": "0x0102",
    "chainId": CHAIN_ID,
}
ACCESS = [{"address": "0x" + "22" * 20, "storageKeys": ["0x" + "33" * 32, "0x" + "00" * 32]}]
PRICED = {"gasPrice": 5 * GWEI}
CAPPED = {"maxFeePerGas": 9 * GWEI, "maxPriorityFeePerGas": GWEI}


def shown(kind: int, **settings: Any) -> dict[str, Any]:
    """Returns the fields that a node shows of a transaction which eth-account has signed."""
    signed = ACCOUNT.sign_transaction(CALL | settings)
    fields = {
        "type": hex(kind),
        "hash": hex_of(signed.hash),
        "input": CALL["data"],
        "v": hex(signed.v),
        "r": hex(signed.r),
        "s": hex(signed.s),
        "accessList": settings.get("accessList", []),
    }
    for name in ("nonce", "gas", "value", "chainId", *PRICED, *CAPPED):
        if name in CALL | settings:
            fields[name] = hex((CALL | settings)[name])
    fields["to"] = (CALL | settings).get("to")
    return fields


TRANSACTIONS = {
    "legacy": shown(0, **PRICED),
    "access list": shown(1, type=1, accessList=ACCESS, **PRICED),
    "base fee": shown(2, type=2, **CAPPED),
    "base fee and access list": shown(2, type=2, accessList=ACCESS, **CAPPED),
    "creation": shown(2, type=2, to="", **CAPPED),
}


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_the_hash_of_a_signed_transaction_follows_from_its_fields(name: str) -> None:
    fields = TRANSACTIONS[name]
    assert signed_hash(fields, WALLET, CHAIN_ID) == hash_of(fields["hash"])


@pytest.mark.parametrize("name", TRANSACTIONS)
@pytest.mark.parametrize("change", [{"nonce": "0x8"}, {"value": "0x4"}, {"gas": "0x5208"}])
def test_no_changed_field_keeps_the_signature(name: str, change: dict[str, str]) -> None:
    assert signed_hash(TRANSACTIONS[name] | change, WALLET, CHAIN_ID) is None


@pytest.mark.parametrize("name", TRANSACTIONS)
@pytest.mark.parametrize("number", ["-0x1", hex(2**256)])
def test_a_number_that_no_transaction_can_hold_is_malformed(name: str, number: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        signed_hash(TRANSACTIONS[name] | {"gas": number}, WALLET, CHAIN_ID)


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_a_transaction_of_another_chain_or_wallet_is_not_signed(name: str) -> None:
    assert signed_hash(TRANSACTIONS[name], WALLET, 1) is None
    assert signed_hash(TRANSACTIONS[name], Address(bytes(20)), CHAIN_ID) is None


async def test_the_tester_chains_own_answers_are_verified() -> None:
    async with a_tester() as rpc:
        wallet = await rpc.funded()
        chain_id = int(await rpc("eth_chainId"), 16)
        for nonce, changes in enumerate([{}, {"gasPrice": 10 * GWEI}]):
            await rpc("eth_sendRawTransaction", wallet.signed(nonce, **changes))
        blocks = [await rpc("eth_getBlockByNumber", hex(n), True) for n in range(20)]
    fields = [each for block in blocks if block for each in block["transactions"]]
    ours = [each for each in fields if each["from"] == wallet.address]
    assert len(ours) == 2
    for each in ours:
        assert signed_hash(each, address_of(wallet.address), chain_id) == hash_of(each["hash"])


async def test_the_use_of_a_nonce_is_found_in_its_block() -> None:
    fake = FakeNode()
    fake.mine(3)
    foreign = fake.use_nonce(MINTER)
    fake.mine()
    numbers = range(fake.head.number + 1)
    (use,) = await uses_of_nonce(fake.node, MINTER.address, CHAIN_ID, 0, numbers)
    assert (use.hash, use.block_number, use.is_forged) == (foreign.hash, 4, False)
    assert not await uses_of_nonce(fake.node, MINTER.address, CHAIN_ID, 1, numbers)
    (use,) = await uses_of_nonce(fake.node, MINTER.address, 1, 0, numbers)
    assert use.is_forged, "the transaction is of another chain"
    with pytest.raises(NodeUnavailable):
        await uses_of_nonce(fake.node, MINTER.address, CHAIN_ID, 0, [99])
