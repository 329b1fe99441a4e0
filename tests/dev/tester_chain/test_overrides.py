"""Calls and estimates on the tester chain that assume another state or another block."""

from collections.abc import AsyncIterator

import pytest

from tests.support.chain.tester import ETHER, Rpc, RpcRefusedError, a_tester, topic, word

ACCOUNT = "0x" + "a1" * 20
POOR = "0x" + "b2" * 20
SLOT_0 = "0x60005460005260206000f3"
SLOT_1 = "0x60015460005260206000f3"
BALANCE = "0x4760005260206000f3"


def _number_opcode(opcode: str) -> str:
    return f"0x{opcode}60005260206000f3"


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


async def test_a_call_runs_code_that_no_account_has(rpc: Rpc) -> None:
    call = {"to": ACCOUNT}
    override = {ACCOUNT: {"code": SLOT_0, "stateDiff": {topic(0): topic(7)}}}
    assert await rpc("eth_call", call, "latest", override) == topic(7)
    assert await rpc("eth_call", call, "latest") == "0x"


async def test_state_replaces_all_storage_and_state_diff_only_its_slots(rpc: Rpc) -> None:
    await rpc("anvil_setStorageAt", ACCOUNT, "0x0", topic(5))
    call, changed = {"to": ACCOUNT}, {topic(1): topic(9)}
    kept = {ACCOUNT: {"code": SLOT_0, "stateDiff": changed}}
    cleared = {ACCOUNT: {"code": SLOT_0, "state": changed}}
    written = {ACCOUNT: {"code": SLOT_1, "state": changed}}
    assert await rpc("eth_call", call, "latest", kept) == topic(5)
    assert await rpc("eth_call", call, "latest", cleared) == topic(0)
    assert await rpc("eth_call", call, "latest", written) == topic(9)
    assert await rpc("eth_getStorageAt", ACCOUNT, "0x0", "latest") == topic(5)


async def test_a_sender_without_funds_sends_with_an_overridden_balance(rpc: Rpc) -> None:
    call = {"from": POOR, "to": ACCOUNT, "value": hex(ETHER)}
    rich = {POOR: {"balance": hex(2 * ETHER)}, ACCOUNT: {"code": BALANCE}}
    assert await rpc("eth_call", call, "latest", rich) == topic(ETHER)
    assert int(await rpc("eth_estimateGas", call, "latest", rich), 16) > 21_000
    with pytest.raises(RpcRefusedError, match="insufficient funds"):
        await rpc("eth_estimateGas", call, "latest")


async def test_block_overrides_are_what_the_code_reads(rpc: Rpc) -> None:
    block = {"number": "0x64", "time": "0x7b", "coinbase": POOR}
    read = {}
    for name, opcode in (("number", "43"), ("time", "42"), ("coinbase", "41")):
        code = {ACCOUNT: {"code": _number_opcode(opcode)}}
        read[name] = await rpc("eth_call", {"to": ACCOUNT}, "latest", code, block)
    assert read == {
        "number": topic(100),
        "time": topic(123),
        "coinbase": "0x" + word(int(POOR, 16)),
    }


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ({ACCOUNT: {"state": {}, "stateDiff": {}}}, "both 'state' and 'stateDiff'"),
        ({ACCOUNT: {"balance": "many"}}, "balance"),
        ({ACCOUNT: 5}, "stateOverrides"),
        ({"0x12": {}}, "stateOverrides"),
        ({ACCOUNT: {"movePrecompileToAddress": POOR}}, "movePrecompileToAddress"),
    ],
)
async def test_a_malformed_override_is_refused(rpc: Rpc, override: object, named: str) -> None:
    with pytest.raises(RpcRefusedError, match=named):
        await rpc("eth_call", {"to": ACCOUNT}, "latest", override)
