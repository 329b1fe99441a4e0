"""Calls pay fees, see their block and need funds, on the tester chain and on anvil."""

from typing import Any

import pytest

from ltzd.values import bytes_of
from tests.support.chain.either_chain import BothChains
from tests.support.chain.tester import EMITTER, ETHER, GWEI, Rpc, RpcRefusedError, word

POOR = "0x" + "11" * 20
RICH = "0x" + "12" * 20
FUNDS = "nsufficient funds for gas \\* price \\+ value"

# Creation code that answers, or reverts with, these opcodes' values: BASEFEE, GASPRICE,
# TIMESTAMP, NUMBER and the balance of ORIGIN.
_VALUES = "".join(
    f"{opcode}60{32 * index:02x}52" for index, opcode in enumerate(("48", "3a", "42", "43", "3231"))
)
ANSWERS = f"0x{_VALUES}60a05ff3"
REVERTS = f"0x{_VALUES}60a05ffd"


@pytest.fixture
async def rich(node: Rpc) -> str:
    await node("anvil_setBalance", RICH, hex(ETHER))
    return RICH


def _seen(output: str) -> dict[str, int]:
    names = ("base_fee", "gas_price", "timestamp", "number", "balance")
    return {name: int(output[2 + 64 * i : 66 + 64 * i], 16) for i, name in enumerate(names)}


async def _seen_by_call(node: Rpc, call: dict[str, Any], block: str = "latest") -> dict[str, int]:
    return _seen(await node("eth_call", {"data": ANSWERS, "gas": hex(200_000)} | call, block))


async def _seen_by_estimate(node: Rpc, call: dict[str, Any], *block: str) -> dict[str, int]:
    with pytest.raises(RpcRefusedError) as fault:
        await node("eth_estimateGas", {"data": REVERTS, "gas": hex(200_000)} | call, *block)
    assert fault.value.data is not None
    return _seen(fault.value.data)


@pytest.mark.parametrize(
    "call",
    [
        {"value": "0x1"},
        {"gasPrice": hex(5 * GWEI)},
        {"gasPrice": hex(5 * GWEI), "gas": hex(30_000)},
        {"maxFeePerGas": hex(5 * GWEI), "maxPriorityFeePerGas": hex(GWEI)},
    ],
)
async def test_a_sender_without_funds_runs_no_call(node: Rpc, call: dict[str, str]) -> None:
    assert await node("eth_call", {"from": POOR, "to": RICH}, "latest") == "0x"
    with pytest.raises(RpcRefusedError, match=FUNDS):
        await node("eth_call", {"from": POOR, "to": RICH} | call, "latest")


async def test_funds_must_cover_the_price_of_all_the_gas_and_the_value(
    node: Rpc, rich: str
) -> None:
    call = {"from": rich, "to": POOR, "gas": hex(50_000), "gasPrice": hex(ETHER // 50_000)}
    assert await node("eth_call", call, "latest") == "0x"
    for more in ({"value": "0x1"}, {"gas": hex(50_001)}, {"gas": None}):
        with pytest.raises(RpcRefusedError, match=FUNDS):
            await node("eth_call", call | more, "latest")


async def test_a_tip_above_the_cap_runs_no_call(node: Rpc, rich: str) -> None:
    for cap in (hex(2 * GWEI), None):
        call = {"maxFeePerGas": cap, "maxPriorityFeePerGas": hex(3 * GWEI), "gas": hex(50_000)}
        with pytest.raises(RpcRefusedError, match=r"(?i)max_?.?priority_?.?fee"):
            await node("eth_call", {"from": rich, "to": POOR} | call, "latest")


async def test_a_call_of_another_chain_is_refused(node: Rpc) -> None:
    with pytest.raises(RpcRefusedError, match=r"(?i)chain ?id"):
        await node("eth_call", {"from": POOR, "to": RICH, "chainId": "0x1"}, "latest")


async def test_a_call_without_fees_costs_nothing_and_sees_the_base_fee(
    node: Rpc, rich: str
) -> None:
    head = await node.block()
    for fees in ({}, {"gasPrice": "0x0"}):
        seen = await _seen_by_call(node, {"from": rich} | fees)
        assert seen["gas_price"] == 0
        assert seen["base_fee"] == int(head["baseFeePerGas"], 16)
        assert seen["balance"] == ETHER
    assert await _seen_by_estimate(node, {"from": rich}, "latest") == seen


@pytest.mark.parametrize("tip", [None, GWEI])
async def test_a_call_with_fees_pays_them_as_its_transaction_would(
    node: Rpc, rich: str, tip: int | None
) -> None:
    base_fee = int((await node.block())["baseFeePerGas"], 16)
    price = 4 * GWEI if tip is None else base_fee + tip
    fees = (
        {"gasPrice": hex(price)}
        if tip is None
        else {"maxFeePerGas": hex(4 * GWEI), "maxPriorityFeePerGas": hex(tip)}
    )
    seen = await _seen_by_call(node, {"from": rich} | fees)
    assert (seen["base_fee"], seen["gas_price"]) == (base_fee, price)
    assert seen["balance"] == ETHER - 200_000 * price
    assert await _seen_by_estimate(node, {"from": rich} | fees, "latest") == seen


async def test_an_estimate_is_for_the_next_block_and_a_call_for_the_latest(
    node_mined_by_hand: Rpc,
) -> None:
    node = node_mined_by_hand
    later = int((await node.block())["timestamp"], 16) + 100
    await node("anvil_setNextBlockBaseFeePerGas", hex(3 * GWEI))
    await node("evm_setNextBlockTimestamp", later)
    head = await node.block()
    by_call, by_estimate = await _seen_by_call(node, {}), await _seen_by_estimate(node, {})
    assert by_call["timestamp"] == int(head["timestamp"], 16)
    assert by_call["number"] == int(head["number"], 16)
    assert by_estimate["timestamp"] == later
    assert by_estimate["number"] == int(head["number"], 16) + 1
    assert by_estimate["base_fee"] == 3 * GWEI
    assert await _seen_by_call(node, {}, "pending") == by_estimate
    await node("evm_mine")
    assert (await node.block())["timestamp"] == hex(later)


async def test_estimates_of_a_sender_who_can_pay_little_end_at_that(node: Rpc) -> None:
    emitter = await node.deploy(EMITTER)
    await node("anvil_setBalance", RICH, hex(30_000 * 5 * GWEI))
    call = {"from": RICH, "to": emitter, "data": "0x" + word(1) + word(2)}
    assert int(await node("eth_estimateGas", call), 16) > 30_000
    with pytest.raises(RpcRefusedError, match=r"gas required exceeds allowance:? \(?30000"):
        await node("eth_estimateGas", call | {"gasPrice": hex(5 * GWEI)})


@pytest.mark.parametrize("kind", [0, 1, 2])
async def test_each_transaction_type_is_mined_at_its_price(node: Rpc, kind: int) -> None:
    wallet = await node.funded()
    accesses = [{"address": "0x" + "22" * 20, "storageKeys": ["0x" + "00" * 32]}]
    fees: dict[str, Any] = {} if kind == 2 else {"gasPrice": 3 * GWEI}
    fees |= {"accessList": accesses} if kind == 1 else {}
    sent = await node("eth_sendRawTransaction", wallet.signed(0, gas=30_000, **fees))
    receipt = await node.receipt(sent)
    base_fee = int((await node.block(receipt["blockNumber"]))["baseFeePerGas"], 16)
    price = base_fee + GWEI if kind == 2 else 3 * GWEI
    assert (receipt["status"], receipt["type"]) == ("0x1", hex(kind))
    assert receipt["effectiveGasPrice"] == hex(price)
    assert receipt["gasUsed"] == hex(21_000 + (4_300 if kind == 1 else 0))


@pytest.mark.parametrize("method", ["eth_call", "eth_estimateGas"])
async def test_as_in_geth_a_price_below_the_base_fee_runs_no_call(
    both_chains: BothChains, method: str
) -> None:
    """anvil runs it."""
    node = await both_chains.of("tester")
    call = {"from": await node.dev_account(), "to": POOR, "gasPrice": "0x1"}
    with pytest.raises(RpcRefusedError, match="max fee per gas less than block base fee"):
        await node(method, call, "latest")


async def test_an_account_gives_itself_code_and_takes_it_away(node: Rpc) -> None:
    """EIP-7702; half of an authorization's 25,000 gas is refunded for an account that exists."""
    emitter, sponsor, account = (
        await node.deploy(EMITTER),
        await node.funded(),
        await node.funded(),
    )

    async def receipt_of(nonce: int, **fields: Any) -> Any:
        raw = sponsor.signed(nonce, to=account.address, gas=100_000, **fields)
        return await node.receipt(await node("eth_sendRawTransaction", raw))

    async def delegated(nonce: int, authorized_nonce: int, to: str) -> Any:
        chain_id, code = node.chain_id, bytes_of(to)
        authorization = account.account.sign_authorization(
            {"chainId": chain_id, "address": code, "nonce": authorized_nonce}
        )
        receipt = await receipt_of(nonce, authorizationList=[authorization])
        assert (receipt["status"], receipt["type"]) == ("0x1", "0x4")
        return receipt

    receipt = await delegated(0, 0, emitter)
    # The emitter's code runs at once, for 23,265.
    assert receipt["gasUsed"] == hex(21_000 + 25_000 + 23_265 - 12_500)
    transaction = await node("eth_getTransactionByHash", receipt["transactionHash"])
    assert transaction["authorizationList"][0]["address"] == emitter
    code = await node("eth_getCode", account.address, "latest")
    assert code == "0xef0100" + emitter.removeprefix("0x")
    assert await node("eth_getTransactionCount", account.address, "latest") == "0x1"

    called = await receipt_of(1, data="0x" + word(1) + word(2))
    assert [log["address"] for log in called["logs"]] == [account.address]
    receipt = await delegated(2, 1, "0x" + "00" * 20)
    assert receipt["gasUsed"] == hex(46_000 - 46_000 // 5)
    assert await node("eth_getCode", account.address, "latest") == "0x"
