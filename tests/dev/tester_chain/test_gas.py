"""The tester chain executes with exactly the given gas and refuses as geth does."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.chain.tester import Rpc, RpcRefusedError, a_tester

THERE = "0x" + "11" * 20


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


@pytest.mark.parametrize("method", ["eth_call", "eth_estimateGas"])
@pytest.mark.parametrize(
    ("gas", "data", "least"),
    [
        (0, "0x", 21_000),
        (1, "0x", 21_000),
        (20_999, "0x", 21_000),
        (0, "0x0001", 21_020),
        (21_000, "0x0001", 21_020),
        (21_019, "0x0001", 21_020),
    ],
)
async def test_below_intrinsic_gas_nothing_runs(
    rpc: Rpc, method: str, gas: int, data: str, least: int
) -> None:
    call = {"to": THERE, "gas": hex(gas), "data": data}
    with pytest.raises(RpcRefusedError) as refused:
        await rpc(method, call, "latest")
    assert refused.value.message == f"intrinsic gas too low: have {gas}, want {least}"
    assert refused.value.code == -32000


@pytest.mark.parametrize(
    "call",
    [{"gas": hex(21_020)}, {"gas": hex(10**9)}, {"gas": None}, {}],
    ids=["just enough", "more than a block", "null", "none named"],
)
async def test_with_enough_gas_or_none_named_it_runs(rpc: Rpc, call: dict[str, Any]) -> None:
    request = call | {"to": THERE, "data": "0x0001"}
    assert await rpc("eth_call", request, "latest") == "0x"
    estimate = int(await rpc("eth_estimateGas", request), 16)
    assert 21_020 <= estimate <= 21_020 * 1.015


async def test_signed_bytes_below_intrinsic_gas_are_refused(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    for gas in (0, 1, 20_999):
        with pytest.raises(RpcRefusedError, match="intrinsic gas too low") as refused:
            await rpc("eth_sendRawTransaction", wallet.signed(0, gas=gas))
        assert refused.value.message.endswith(f"gas {gas}, minimum needed 21000")
    assert await rpc("eth_getTransactionCount", wallet.address, "pending") == "0x0"
