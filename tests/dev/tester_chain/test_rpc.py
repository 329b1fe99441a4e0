"""The tester chain's JSON-RPC 2.0: replies, and errors that name the fault."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from eth_abi.abi import encode
from web3 import AsyncHTTPProvider, AsyncWeb3

from ltzd.dev.tester_chain import DEFAULT_CHAIN_ID
from tests.support.chain.tester import (
    EMITTER,
    ENDLESS,
    GWEI,
    REVERTER,
    Rpc,
    RpcRefusedError,
    a_tester,
    word,
)
from tests.support.waiting import until


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


async def test_a_batch_is_answered_in_order_with_faults_in_their_places(rpc: Rpc) -> None:
    replies = await rpc.post(
        [
            {"jsonrpc": "2.0", "id": "a", "method": "eth_chainId"},
            {"jsonrpc": "2.0", "id": 7, "method": "eth_nothing"},
            {"jsonrpc": "2.0", "method": "eth_chainId"},
            17,
            {"jsonrpc": "2.0", "id": None, "method": "net_version", "params": []},
        ]
    )
    assert [reply["id"] for reply in replies] == ["a", 7, None, None]
    assert replies[0]["result"] == hex(DEFAULT_CHAIN_ID)
    assert replies[1]["error"]["code"] == -32601
    assert replies[2]["error"]["code"] == -32600
    assert replies[3]["result"] == str(DEFAULT_CHAIN_ID)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        *(("{", -32700), ("\xff", -32700), ("[]", -32600), ("3", -32600), ('{"id":1}', -32600)),
        ('{"id":1,"method":"eth_chainId"}', -32600),
        ('{"jsonrpc":"1.0","id":1,"method":"eth_chainId"}', -32600),
        ('{"jsonrpc":"2.0","id":{},"method":"eth_chainId"}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":{}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"eth_nothing","params":{}}', -32601),
    ],
)
async def test_what_is_no_request_gets_the_specified_code(rpc: Rpc, body: str, code: int) -> None:
    assert (await rpc.post_text(body))["error"]["code"] == code


async def test_a_notification_gets_no_answer(rpc: Rpc) -> None:
    async with rpc.http.post(rpc.url, json={"jsonrpc": "2.0", "method": "evm_mine"}) as response:
        assert await response.read() == b""
    assert await rpc.number() == 1


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("eth_getBalance", [], "address"),
        ("eth_getBalance", ["0x12"], "address"),
        ("eth_getBalance", ["0x" + "11" * 20, "newest"], "block"),
        ("eth_getBlockByNumber", [], "block"),
        ("eth_getBlockByNumber", ["0xg"], "block"),
        ("eth_getBlockByHash", ["0x12", True], "hash"),
        ("eth_getBlockByNumber", ["latest", "yes"], "full"),
        ("eth_call", [7], "transaction"),
        ("eth_call", [{"to": "0x12"}], "to"),
        ("eth_call", [{"to": "0x" + "11" * 20, "value": "ten"}], "value"),
        ("eth_sendRawTransaction", ["0x02c0"], "data"),
        ("eth_sendRawTransaction", ["02"], "data"),
        ("eth_getLogs", [{"topics": ["0x1"]}], "topics"),
        ("eth_getLogs", [{"address": 5}], "address"),
        ("eth_getLogs", [{"fromBlock": "0x5", "toBlock": "0x4"}], "range"),
        ("eth_feeHistory", ["0x1", "latest", [50, 10]], "rewardPercentiles"),
        ("anvil_setBalance", ["0x" + "11" * 20], "balance"),
        ("evm_setNextBlockTimestamp", ["0x1"], "timestamp"),
        ("eth_chainId", [1], "params"),
    ],
)
async def test_a_bad_parameter_is_named(
    rpc: Rpc, method: str, params: list[object], named: str
) -> None:
    with pytest.raises(RpcRefusedError) as fault:
        await rpc(method, *params)
    assert fault.value.code == -32602
    assert named in fault.value.message


async def test_an_unknown_block_is_null_by_number_and_a_refusal_for_state(rpc: Rpc) -> None:
    assert await rpc("eth_getBlockByNumber", "0x99", False) is None
    assert await rpc("eth_getBlockByHash", "0x" + "77" * 32, False) is None
    with pytest.raises(RpcRefusedError, match="header not found"):
        await rpc("eth_getBalance", "0x" + "11" * 20, "0x99")


async def test_a_revert_has_code_3_the_reason_and_its_bytes_as_hex(rpc: Rpc) -> None:
    reverter = await rpc.deploy(REVERTER)
    data = "0x08c379a0" + encode(["string"], ["no more claims"]).hex()
    for method in ("eth_call", "eth_estimateGas"):
        with pytest.raises(RpcRefusedError) as fault:
            await rpc(method, {"to": reverter, "data": data})
        assert (fault.value.code, fault.value.message, fault.value.data) == (
            3,
            "execution reverted: no more claims",
            data,
        )


async def test_a_panic_is_told_by_its_meaning(node: Rpc) -> None:
    reverter = await node.deploy(REVERTER)
    for method in ("eth_call", "eth_estimateGas"):
        with pytest.raises(RpcRefusedError, match="arithmetic underflow or overflow") as fault:
            await node(method, {"to": reverter, "data": "0x4e487b71" + word(0x11)})
        assert fault.value.code == 3


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("0x600056", "invalid jump destination"),
        ("0x01", "stack underflow"),
        ("0x0c", "invalid opcode"),
        ("0x5b6001600056", "stack limit reached 1024"),
        ("0x6170006000f3", "max code size exceeded"),
        ("0x6020600060003e", "return data out of bounds"),
    ],
)
async def test_a_fault_of_code_has_geths_words(rpc: Rpc, code: str, message: str) -> None:
    for method in ("eth_call", "eth_estimateGas"):
        with pytest.raises(RpcRefusedError) as fault:
            await rpc(method, {"data": code, "gas": hex(8_000_000)})
        assert (fault.value.code, fault.value.message) == (-32000, message)


async def test_a_revert_without_a_reason_keeps_its_bytes(rpc: Rpc) -> None:
    reverter = await rpc.deploy(REVERTER)
    with pytest.raises(RpcRefusedError) as fault:
        await rpc("eth_call", {"to": reverter, "input": "0xdeadbeef"})
    assert (fault.value.message, fault.value.data) == ("execution reverted", "0xdeadbeef")


async def test_code_that_never_ends_runs_out_of_gas(rpc: Rpc) -> None:
    endless = await rpc.deploy(ENDLESS)
    with pytest.raises(RpcRefusedError, match="out of gas") as fault:
        await rpc("eth_call", {"to": endless, "gas": hex(100_000)})
    assert fault.value.code == -32000


async def test_the_server_answers_while_code_runs(rpc: Rpc) -> None:
    endless = await rpc.deploy(ENDLESS)
    slow = asyncio.create_task(rpc("eth_call", {"to": endless, "gas": hex(3_000_000)}))
    assert await rpc("eth_chainId") == hex(DEFAULT_CHAIN_ID)
    assert not slow.done()
    with pytest.raises(RpcRefusedError):
        await slow


async def test_an_estimate_is_enough_and_little_more_than_needed(rpc: Rpc) -> None:
    emitter, sender = await rpc.deploy(EMITTER), await rpc.dev_account()
    call = {"from": sender, "to": emitter, "data": "0x" + word(1) + word(2)}
    estimate = int(await rpc("eth_estimateGas", call), 16)
    sent = await rpc("eth_sendTransaction", {**call, "gas": hex(estimate)})
    receipt = await rpc.receipt(sent)
    assert receipt["status"] == "0x1"
    assert int(receipt["gasUsed"], 16) <= estimate <= int(receipt["gasUsed"], 16) * 1.05


async def test_calls_see_the_block_they_name(rpc: Rpc) -> None:
    emitter, sender = await rpc.deploy(EMITTER), await rpc.dev_account()
    await rpc.receipt(await rpc("eth_sendTransaction", {"from": sender, "to": emitter}))
    head = await rpc.block()
    await rpc.receipt(await rpc("eth_sendTransaction", {"from": sender, "to": emitter}))
    for choice, count in [("latest", 2), (head["number"], 1), ({"blockHash": head["hash"]}, 1)]:
        assert await rpc("eth_getStorageAt", emitter, "0x0", choice) == "0x" + word(count)


async def test_web3_sends_waits_and_reads_as_it_is_used_to(rpc: Rpc) -> None:
    provider = AsyncHTTPProvider(rpc.url)
    try:
        web3: Any = AsyncWeb3(provider)
        dev, other, *_ = await web3.eth.accounts
        sent = await web3.eth.send_transaction({"from": dev, "to": other, "value": 5})
        receipt = await web3.eth.wait_for_transaction_receipt(sent)
        block = await web3.eth.get_block(receipt["blockNumber"], full_transactions=True)
        history = await web3.eth.fee_history(2, "latest", [10.0, 90.0])
        assert receipt["status"] == 1
        assert block["transactions"][0]["hash"] == sent
        assert history["reward"][-1] == [GWEI, GWEI]
    finally:
        await provider.disconnect()


async def test_the_pool_shows_what_waits_and_what_lacks_a_predecessor(rpc: Rpc) -> None:
    await rpc("evm_setAutomine", False)
    wallet = await rpc.funded()
    for nonce in (0, 1, 3):
        await rpc("eth_sendRawTransaction", wallet.signed(nonce))
    assert await rpc("txpool_status") == {"pending": "0x2", "queued": "0x1"}
    content = await rpc("txpool_content")
    assert list(content["pending"][wallet.address]) == ["0", "1"]
    assert list(content["queued"][wallet.address]) == ["3"]
    await rpc("evm_setAutomine", True)

    async def is_mined() -> bool:
        return bool(await rpc.number() == 1)

    await until(is_mined)
