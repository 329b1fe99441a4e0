"""Gas limits: below what a transaction costs nothing runs, on the tester chain and on anvil."""

from typing import Any

import pytest

from tests.support.chain.tester import Rpc, RpcRefusedError

THERE = "0x" + "11" * 20
DATA = "0x" + "01" * 1_000
FLOOR = 61_000
ALLOWANCE = "gas required exceeds allowance"


@pytest.mark.parametrize(
    ("gas", "data"),
    [
        (0, "0x"),
        (1, "0x"),
        (20_999, "0x"),
        (0, "0x0001"),
        (21_019, "0x0001"),
        (21_049, "0x0001"),
        (37_000, DATA),
        (FLOOR - 1, DATA),
    ],
)
async def test_below_the_least_gas_no_call_runs(node: Rpc, gas: int, data: str) -> None:
    with pytest.raises(RpcRefusedError, match=r"intrinsic gas|floor data gas") as refused:
        await node("eth_call", {"to": THERE, "gas": hex(gas), "data": data}, "latest")
    assert refused.value.code == -32000


@pytest.mark.parametrize("gas", [0, 1, 21_000, FLOOR - 1])
async def test_no_estimate_exceeds_the_gas_that_its_caller_names(node: Rpc, gas: int) -> None:
    with pytest.raises(RpcRefusedError, match=ALLOWANCE) as refused:
        await node("eth_estimateGas", {"to": THERE, "gas": hex(gas), "data": DATA})
    assert str(gas) in refused.value.message


@pytest.mark.parametrize(
    "call",
    [{"gas": hex(FLOOR)}, {"gas": hex(10**12)}, {"gas": None}, {}],
    ids=["just enough", "more than a block", "null", "none named"],
)
async def test_with_enough_gas_or_none_named_it_runs(node: Rpc, call: dict[str, Any]) -> None:
    request = call | {"to": THERE, "data": DATA}
    assert await node("eth_call", request, "latest") == "0x"
    estimate = int(await node("eth_estimateGas", request), 16)
    assert FLOOR <= estimate <= FLOOR * 1.015


async def test_the_floor_of_the_data_is_what_a_transaction_pays(node: Rpc) -> None:
    wallet = await node.funded()
    before = int(await node("eth_getBalance", wallet.address, "latest"), 16)
    sent = await node("eth_sendRawTransaction", wallet.signed(0, data=DATA, gas=70_000))
    receipt = await node.receipt(sent)
    assert int(receipt["gasUsed"], 16) == FLOOR
    paid = before - int(await node("eth_getBalance", wallet.address, "latest"), 16)
    assert paid == FLOOR * int(receipt["effectiveGasPrice"], 16) + 1


async def test_signed_bytes_below_intrinsic_gas_are_refused(node: Rpc) -> None:
    wallet = await node.funded()
    for gas in (0, 1, 20_999):
        with pytest.raises(RpcRefusedError, match="intrinsic gas too low"):
            await node("eth_sendRawTransaction", wallet.signed(0, gas=gas))
    assert await node("eth_getTransactionCount", wallet.address, "pending") == "0x0"
