"""Node answers become typed observations, and nonsense becomes NodeUnavailable, never a crash."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ltzd.chain.node.answers.typed import Header, Receipt, Revert
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError, RpcPolicy
from ltzd.errors import NodeUnavailable
from ltzd.rules.nodes.publications import PublishOutcome
from ltzd.rules.operator.fees import GasPrice
from ltzd.values import Address, Hash32, hex_of
from tests.support.chain.scripted_node import Respond, a_server, always, error, refusing, result

LTZ = Address(b"\x17" * 20)
HASH = Hash32(b"\xaa" * 32)
PARENT = Hash32(b"\xbb" * 32)
BESU_HALTED = "Transaction processing could not be completed due to an exception"

A_BLOCK: dict[str, object] = {
    "number": "0x10",
    "hash": hex_of(HASH),
    "parentHash": hex_of(PARENT),
    "timestamp": "0x65",
    "logsBloom": "0x" + "00" * 255 + "01",
    "baseFeePerGas": "0x7",
    "gasLimit": "0x1c9c380",
}
A_RECEIPT: dict[str, object] = {
    "transactionHash": hex_of(PARENT),
    "blockNumber": "0x10",
    "blockHash": hex_of(HASH),
    "status": "0x1",
    "gasUsed": "0x5208",
    "effectiveGasPrice": "0x3b9aca00",
}
A_LOG: dict[str, object] = {
    "address": hex_of(LTZ),
    "topics": [],
    "data": "0x",
    "blockNumber": "0x10",
    "blockHash": hex_of(HASH),
    "transactionHash": hex_of(PARENT),
    "logIndex": "0x0",
}


async def test_a_publication_with_a_hash_is_accepted() -> None:
    async with a_server(always(hex_of(HASH))) as rpc:
        assert await Node(rpc).publish(b"\x02") == (PublishOutcome.ACCEPTED, "")


async def test_an_unanswered_publication_is_unknown() -> None:
    async with a_server(lambda _request: b"") as rpc:
        with pytest.raises(NodeUnavailable):
            await Node(rpc).publish(b"\x02")


async def test_a_header_holds_what_the_block_says() -> None:
    bloom = bytes(255) + b"\x01"
    async with a_server(always(A_BLOCK)) as rpc:
        assert await Node(rpc).block(16) == Header(16, HASH, PARENT, 101, bloom, 7, 30_000_000)
    async with a_server(always(A_BLOCK | {"baseFeePerGas": None, "gasLimit": None})) as rpc:
        assert await Node(rpc).block(16) == Header(16, HASH, PARENT, 101, bloom, None, None)


async def test_a_missing_block_or_receipt_is_none() -> None:
    async with a_server(always(None)) as rpc:
        node = Node(rpc)
        assert await node.block("latest") is None
        assert await node.headers([1, 2]) == [None, None]
        assert await node.receipts([HASH]) == [None]


async def test_a_receipt_without_a_block_is_none() -> None:
    async with a_server(always(A_RECEIPT | {"blockHash": None})) as rpc:
        assert await Node(rpc).receipts([PARENT]) == [None]


@pytest.mark.parametrize(
    ("text", "is_answer"),
    [("transaction indexing is in progress", True), ("internal error", False)],
)
async def test_a_node_that_still_indexes_shows_the_receipts_that_it_has(
    text: str, is_answer: bool
) -> None:
    def respond(request: Any) -> object:
        unindexed, known, absent = request
        return [error(unindexed, text), result(known, A_RECEIPT), result(absent, None)]

    hashes = [HASH, PARENT, HASH]
    async with a_server(respond) as rpc:
        if is_answer:
            (receipt,) = await Node(rpc).known_receipts(hashes)
            assert receipt.transaction_hash == PARENT
        else:
            with pytest.raises(NodeUnavailable, match=text):
                await Node(rpc).known_receipts(hashes)
        with pytest.raises(NodeUnavailable, match=text):
            await Node(rpc).receipts(hashes)


async def test_a_receipt_tells_where_and_how_a_call_ended() -> None:
    async with a_server(always(A_RECEIPT)) as rpc:
        assert await Node(rpc).receipts([PARENT]) == [
            Receipt(PARENT, 16, HASH, True, 21_000, 10**9)
        ]
    async with a_server(always(A_RECEIPT | {"status": "0x0"})) as rpc:
        assert await Node(rpc).receipts([PARENT]) == [
            Receipt(PARENT, 16, HASH, False, 21_000, 10**9)
        ]


@pytest.mark.parametrize(
    "final",
    [
        {"error": {"code": -39001, "message": "unknown block"}},
        {"error": {"code": -32000, "message": "finalized block not found"}},
        {"error": {"code": -32602, "message": "invalid argument 0: hex string without 0x prefix"}},
        {"result": None},
    ],
)
async def test_a_node_without_finality_says_none(final: dict[str, object]) -> None:
    def respond(request: Any) -> object:
        return [result(request[0], A_BLOCK), {"id": request[1]["id"]} | final]

    async with a_server(respond) as rpc:
        head, finalized = await Node(rpc).head_and_final()
    assert (head.number, finalized) == (16, None)


async def test_an_error_for_the_head_is_not_a_head() -> None:
    def respond(request: Any) -> object:
        return [error(request[0], "header not found"), result(request[1], A_BLOCK)]

    async with a_server(respond) as rpc:
        with pytest.raises(NodeUnavailable, match="header not found"):
            await Node(rpc).head_and_final()
    async with a_server(always(None)) as rpc:
        with pytest.raises(NodeUnavailable):
            await Node(rpc).head_and_final()


async def test_only_the_contracts_logs_of_a_blocks_receipts_count() -> None:
    foreign = A_LOG | {"address": "0x" + "99" * 20}
    async with a_server(always([{"logs": [A_LOG, foreign]}, {"logs": []}])) as rpc:
        assert await Node(rpc).logs_by_receipts(HASH, LTZ) == [A_LOG]


def without_block_receipts(
    block: object, refusal: tuple[str, int] = ("Method not found", -32601)
) -> Respond:
    """Returns the answers of a node that refuses `eth_getBlockReceipts`."""

    def respond(request: Any) -> object:
        if isinstance(request, list):
            return [result(each, {"logs": [A_LOG]}) for each in request]
        if request["method"] == "eth_getBlockReceipts":
            return error(request, *refusal)
        if request["method"] == "eth_getLogs":
            return error(request, "query returned more than 10000 results", -32005)
        return result(request, block)

    return respond


@pytest.mark.parametrize(
    "refusal",
    [
        ("the method eth_getBlockReceipts does not exist/is not available", -32601),
        ("eth_getBlockReceipts is not included in your current plan", -32000),
        ("response too large", -32003),
    ],
)
async def test_a_node_without_block_receipts_is_asked_for_each_receipt(
    refusal: tuple[str, int],
) -> None:
    hashes = [hex_of(HASH), hex_of(PARENT)]
    async with a_server(without_block_receipts({"transactions": hashes}, refusal)) as rpc:
        assert await Node(rpc).logs_by_receipts(HASH, LTZ) == [A_LOG, A_LOG]


async def test_receipts_that_are_too_long_in_one_answer_are_asked_for_in_parts() -> None:
    """The whole block's would take more memory than ltzd allows an answer to take."""
    hashes = [hex_of(number.to_bytes(32, "big")) for number in range(450)]
    requests: list[int] = []

    def respond(request: Any) -> object:
        if isinstance(request, list):
            requests.append(len(request))
            return [result(each, {"logs": [A_LOG]}) for each in request]
        if request["method"] == "eth_getBlockByHash":
            return result(request, {"transactions": hashes})
        return result(request, [{"logs": [A_LOG], "logsBloom": "0x" + "00" * 256}] * len(hashes))

    policy = RpcPolicy(max_response_bytes=200_000)
    async with a_server(respond, policy=policy) as rpc:
        assert await Node(rpc).logs_by_receipts(HASH, LTZ) == [A_LOG] * len(hashes)
    assert sum(requests) == len(hashes)
    assert max(requests) <= 200


@pytest.mark.parametrize(
    ("version", "transactions", "in_parts"),
    [
        ("anvil/v1.7.1", 450, True),
        ("anvil/v1.7.1", 255, False),
        ("Geth/v1.15.0", 450, False),
        (None, 450, False),
    ],
)
async def test_anvil_is_asked_in_small_parts_for_the_receipts_of_a_large_block(
    version: str | None, transactions: int, *, in_parts: bool
) -> None:
    """Its answer with all of them takes seconds, in which it may answer nothing else."""
    hashes = [hex_of(number.to_bytes(32, "big")) for number in range(transactions)]
    requests: Counter[str] = Counter()
    largest = 0

    def respond(request: Any) -> object:
        nonlocal largest
        if isinstance(request, list):
            largest = max(largest, len(request))
            return [result(each, {"logs": [A_LOG]}) for each in request]
        requests[request["method"]] += 1
        if request["method"] == "web3_clientVersion":
            return error(request, "no such method") if version is None else result(request, version)
        if request["method"] == "eth_getBlockByHash":
            return result(request, {"transactions": hashes})
        return result(request, [{"logs": [A_LOG]}] * len(hashes))

    async with a_server(respond) as rpc:
        for _ in range(2):
            logs, is_proved = await Node(rpc).proven_logs(HASH, LTZ)
            assert logs == [A_LOG] * len(hashes)
            assert not is_proved
    assert requests["web3_clientVersion"] == (1 if transactions >= 256 else 0)
    assert requests["eth_getBlockReceipts"] == (0 if in_parts else 2)
    assert largest == (32 if in_parts else 0)


async def test_logs_of_a_block_that_are_too_many_come_from_its_receipts() -> None:
    hashes = [hex_of(HASH), hex_of(PARENT)]
    async with a_server(without_block_receipts({"transactions": hashes})) as rpc:
        assert await Node(rpc).logs_of_block(HASH, LTZ) == [A_LOG, A_LOG]


@pytest.mark.parametrize("block", [None, {}, {"transactions": None}, {"transactions": 5}, 7])
async def test_without_a_blocks_transactions_its_logs_are_not_assumed_empty(
    block: object,
) -> None:
    async with a_server(without_block_receipts(block)) as rpc:
        with pytest.raises(NodeUnavailable):
            await Node(rpc).logs_by_receipts(HASH, LTZ)


async def test_a_refused_range_is_an_rpc_error_that_a_caller_can_act_on() -> None:
    async with a_server(refusing("query exceeds max results")) as rpc:
        with pytest.raises(RpcError, match="max results"):
            await Node(rpc).logs_up_to(1, 2_000, LTZ)


@pytest.mark.parametrize("question", ["headers_and_logs", "logs_up_to"])
async def test_a_log_of_a_block_that_was_not_asked_for_is_no_answer(question: str) -> None:
    def respond(request: Any) -> object:
        return [
            result(each, [A_LOG] if each["method"] == "eth_getLogs" else None) for each in request
        ]

    async with a_server(respond) as rpc:
        with pytest.raises(NodeUnavailable, match="log"):
            await QUESTIONS[question](Node(rpc))


async def test_a_reverted_view_raises_its_data() -> None:
    def respond(request: Any) -> object:
        revert_error = {"code": 3, "message": "execution reverted", "data": "0x01"}
        return {"id": request["id"], "error": revert_error}

    async with a_server(respond) as rpc:
        with pytest.raises(RpcError) as raised:
            await Node(rpc).view(LTZ, b"")
    assert raised.value.data == b"\x01"


async def test_a_receipt_holds_what_an_op_stack_chain_took_beside_the_gas() -> None:
    bedrock: dict[str, object] = {"l1Fee": "0x64", "l1GasUsed": "0x640", "l1FeeScalar": None}
    free: dict[str, object] = {"operatorFeeScalar": "0x0", "operatorFeeConstant": "0x0"}
    for extra, l1_fee_wei, has_operator_fee in (
        (bedrock, 100, False),
        (bedrock | free, 100, False),
        (bedrock | free | {"operatorFeeConstant": "0x1"}, 100, True),
        ({"l1Fee": None, "gasUsedForL1": "0x5", "l1BlockNumber": "0x1"}, 0, False),
    ):
        async with a_server(always(A_RECEIPT | extra)) as rpc:
            (receipt,) = await Node(rpc).receipts([PARENT])
        assert receipt is not None
        assert (receipt.l1_fee_wei, receipt.has_operator_fee) == (l1_fee_wei, has_operator_fee)


async def test_a_receipt_of_a_client_from_before_eip_1559_has_no_price() -> None:
    without = {name: value for name, value in A_RECEIPT.items() if name != "effectiveGasPrice"}
    async with a_server(always(without)) as rpc:
        (receipt,) = await Node(rpc).receipts([PARENT])
    assert receipt is not None
    assert receipt.effective_gas_price is None


A_HEAD = Header(16, HASH, PARENT, 101, bytes(256), base_fee=7, gas_limit=30_000_000)


def answering(**results: object) -> Respond:
    """Answers by method; other methods are refused as unknown."""

    def answer(each: Any) -> object:
        if each["method"] in results:
            return result(each, results[each["method"]])
        return error(each, "the method does not exist", -32601)

    return lambda request: (
        list(map(answer, request)) if isinstance(request, list) else answer(request)
    )


async def test_the_gas_price_is_the_next_blocks_base_fee_and_the_usual_tip() -> None:
    history = {"oldestBlock": "0x10", "baseFeePerGas": ["0x7", "0x8"], "gasUsedRatio": [0.5]}
    respond = answering(eth_feeHistory=history, eth_maxPriorityFeePerGas="0x3")
    async with a_server(respond) as rpc:
        assert await Node(rpc).gas_price(A_HEAD) == GasPrice(base_fee=8, tip=3)


async def test_base_fees_are_those_of_the_newest_blocks_and_the_next_one() -> None:
    history = {"baseFeePerGas": ["0x1", "0x2", "0x3", "0x4"]}
    async with a_server(answering(eth_feeHistory=history)) as rpc:
        assert await Node(rpc).base_fees(A_HEAD, 2) == [2, 3, 4]
        assert await Node(rpc).base_fees(A_HEAD, 1_024) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "history",
    [
        None,
        {},
        [],
        {"baseFeePerGas": None},
        {"baseFeePerGas": ["0x1"]},
        {"baseFeePerGas": ["x"] * 3},
    ],
    ids=["null", "no list", "a list", "null list", "too short", "no numbers"],
)
async def test_a_malformed_fee_history_is_a_nodes_failure(history: object) -> None:
    async with a_server(answering(eth_feeHistory=history)) as rpc:
        with pytest.raises(NodeUnavailable):
            await Node(rpc).base_fees(A_HEAD, 2)


async def test_without_a_fee_history_the_gas_price_comes_from_the_newest_block() -> None:
    async with a_server(answering(eth_maxPriorityFeePerGas="0x3")) as rpc:
        assert await Node(rpc).gas_price(A_HEAD) == GasPrice(base_fee=7, tip=3)


async def test_without_a_base_fee_the_node_names_one_gas_price() -> None:
    legacy = {name: value for name, value in A_BLOCK.items() if name != "baseFeePerGas"}
    history = {"oldestBlock": "0x10", "baseFeePerGas": ["0x0", "0x0"], "gasUsedRatio": [0.5]}
    for answers in ({}, {"eth_feeHistory": history, "eth_maxPriorityFeePerGas": "0x5"}):
        respond = answering(eth_gasPrice="0x5", eth_getBlockByNumber=legacy, **answers)
        async with a_server(respond) as rpc:
            expected = GasPrice(base_fee=0, tip=5, is_legacy=True)
            assert await Node(rpc).gas_price(replace(A_HEAD, base_fee=None)) == expected
            assert await Node(rpc).current_gas_price() == expected


async def test_a_base_fee_of_zero_is_a_base_fee() -> None:
    history = {"oldestBlock": "0x10", "baseFeePerGas": ["0x0", "0x0"], "gasUsedRatio": [0.5]}
    respond = answering(
        eth_feeHistory=history,
        eth_maxPriorityFeePerGas="0x3",
        eth_getBlockByNumber=A_BLOCK | {"baseFeePerGas": "0x0"},
    )
    async with a_server(respond) as rpc:
        assert await Node(rpc).current_gas_price() == GasPrice(base_fee=0, tip=3)


@pytest.mark.parametrize(("gas_price", "tip"), [("0xc", 5), ("0x7", 0), ("0x1", 0)])
async def test_where_no_tip_is_suggested_it_is_the_rest_of_the_gas_price(
    gas_price: str, tip: int
) -> None:
    async with a_server(answering(eth_gasPrice=gas_price)) as rpc:
        assert await Node(rpc).gas_price(A_HEAD) == GasPrice(base_fee=7, tip=tip)


@pytest.mark.parametrize(
    ("refusal", "revert"),
    [
        ({"code": 3, "message": "execution reverted", "data": "0x01"}, b"\x01"),
        ({"code": 3, "message": "execution reverted"}, b""),
        ({"code": -32000, "message": "VM execution error: revert"}, b""),
        ({"code": -32015, "message": "VM execution error", "data": "0x02"}, b"\x02"),
        ({"code": -32000, "message": "VM error", "data": {"data": "0x03"}}, b"\x03"),
        # Nethermind's, by version.
        ({"code": -32015, "message": "VM execution error.", "data": "Reverted 0x04"}, b"\x04"),
        ({"code": -32015, "message": "VM execution error.", "data": "Reverted 0x"}, b""),
        ({"code": -32015, "message": "VM execution error.", "data": "revert"}, b""),
        ({"code": -32015, "message": "VM execution error.", "data": "revert: no funds"}, b""),
        (
            {
                "code": -32015,
                "message": "VM execution error.",
                "data": "err: 0x05 (supplied gas 36000000)",
            },
            b"\x05",
        ),
        (
            {
                "code": -32015,
                "message": "VM execution error.",
                "data": "err: revert (supplied gas 36000000)",
            },
            b"",
        ),
        ({"code": -32015, "message": "Reverted 0x06"}, b"\x06"),
        # The node's own error says nothing about the call.
        ({"code": -32000, "message": "out of gas"}, None),
        ({"code": -32603, "message": "internal error"}, None),
        ({"code": -32000, "message": "missing trie node"}, None),
    ],
)
async def test_a_failed_simulation_shows_whether_the_contract_reverted(
    refusal: dict[str, object], revert: bytes | None
) -> None:
    def respond(request: Any) -> object:
        good, bad = request
        return [result(good, "0x"), {"jsonrpc": "2.0", "id": bad["id"], "error": refusal}]

    async with a_server(respond) as rpc:
        outcomes = await Node(rpc).simulate(LTZ, [b"\x01", b"\x02"], LTZ)
    assert outcomes == [None, Revert(revert, str(refusal["message"]))]


@pytest.mark.parametrize(
    "refusal",
    [
        {"code": -32000, "message": "out of gas"},
        {"code": -32000, "message": "gas required exceeds allowance (21000)"},
        {"code": -32003, "message": "out of gas: gas required exceeds: 21000"},
        # Nethermind's, by version.
        {"code": -32015, "message": "VM execution error.", "data": "OutOfGas"},
        {
            "code": -32015,
            "message": "VM execution error.",
            "data": "err: OutOfGas (supplied gas 30000)",
        },
        {"code": -32015, "message": "err: OutOfGas (supplied gas 30000)"},
        # Besu's, by version.
        {"code": -32000, "message": f"{BESU_HALTED}: INSUFFICIENT_GAS"},
        {"code": -32000, "message": f"{BESU_HALTED}: Out of gas"},
    ],
)
async def test_a_simulation_that_runs_out_of_gas_is_no_revert(refusal: dict[str, object]) -> None:
    def respond(request: Any) -> object:
        return {"jsonrpc": "2.0", "id": request["id"], "error": refusal}

    async with a_server(respond) as rpc:
        (outcome,) = await Node(rpc).simulate(LTZ, [b"\x01"], LTZ)
    assert outcome is not None
    assert (outcome.data, outcome.is_out_of_gas) == (None, True)


async def test_each_simulated_call_has_the_gas_that_it_is_sent_with() -> None:
    requests: list[Any] = []

    def respond(request: Any) -> object:
        calls = request if isinstance(request, list) else [request]
        requests.extend(each["params"][0] for each in calls)
        return always("0x")(request)

    async with a_server(respond) as rpc:
        assert await Node(rpc).simulate(LTZ, [b"\x01", b"\x02"], LTZ, [0, 70_000]) == [None, None]
        await Node(rpc).simulate_call(LTZ, b"", LTZ, gas=0)
    assert [call.get("gas") for call in requests] == ["0x0", "0x11170", "0x0"]


async def test_bytes_without_an_answer_among_others_are_unknown_and_the_others_are_not() -> None:
    def respond(request: Any) -> object:
        first, _, third, fourth = request
        return [result(third, hex_of(HASH)), error(first, "oversized data"), {"id": fourth["id"]}]

    async with a_server(respond) as rpc:
        answers = await Node(rpc).publish_all([b"\x01", b"\x02", b"\x03", b"\x04"])
    assert [outcome for outcome, _ in answers] == [
        PublishOutcome.REFUSED_FOR_GOOD,
        PublishOutcome.UNKNOWN,
        PublishOutcome.ACCEPTED,
        PublishOutcome.UNKNOWN,
    ]


async def test_an_unreachable_node_simulates_nothing() -> None:
    async with a_server(lambda _request: b"Bad Gateway", status=502) as rpc:
        with pytest.raises(NodeUnavailable):
            await Node(rpc).simulate(LTZ, [b""], LTZ)


QUESTIONS: dict[str, Callable[[Node], Awaitable[object]]] = {
    "chain_id": lambda node: node.chain_id(),
    "chain_proof": lambda node: node.chain_proof(LTZ),
    "block": lambda node: node.block(1),
    "head_and_final": lambda node: node.head_and_final(),
    "headers": lambda node: node.headers([1]),
    "headers_and_logs": lambda node: node.headers_and_logs(1, 2, LTZ),
    "logs_up_to": lambda node: node.logs_up_to(1, 2, LTZ),
    "logs_of_block": lambda node: node.logs_of_block(HASH, LTZ),
    "logs_by_receipts": lambda node: node.logs_by_receipts(HASH, LTZ),
    "receipts": lambda node: node.receipts([HASH]),
    "nonce": lambda node: node.nonce(LTZ),
    "balance": lambda node: node.balance(LTZ),
    "code": lambda node: node.code(LTZ),
    "gas price": lambda node: node.gas_price(A_HEAD),
    "view": lambda node: node.view(LTZ, b""),
}

NONSENSE: list[object] = [
    7,
    True,
    "0xzz",
    "latest",
    {},
    [5],
    [None],
    [{"logs": [5]}],
    {"number": "0x"},
    A_BLOCK | {"hash": "0x1234"},
    A_BLOCK | {"number": None},
    A_BLOCK | {"logsBloom": None},
    A_BLOCK | {"baseFeePerGas": 7},
    A_BLOCK | {"gasLimit": 7},
    A_RECEIPT | {"status": None},
    A_RECEIPT | {"gasUsed": None},
    A_RECEIPT | {"effectiveGasPrice": 5},
    A_RECEIPT | {"l1Fee": 5},
    A_RECEIPT | {"blockHash": 5},
    [A_LOG | {"blockHash": None}],
    [A_LOG | {"blockNumber": 5}],
    "-0x1",
    hex(2**256),
    A_BLOCK | {"number": hex(2**63)},
    A_BLOCK | {"number": "-0x1"},
    A_BLOCK | {"timestamp": "-0x1"},
    A_BLOCK | {"baseFeePerGas": hex(2**256)},
    A_RECEIPT | {"blockNumber": hex(2**63)},
    A_RECEIPT | {"gasUsed": hex(2**63)},
    A_RECEIPT | {"effectiveGasPrice": "-0x1"},
    [A_LOG | {"blockNumber": hex(2**63)}],
    [A_LOG | {"logIndex": hex(2**31)}],
    [A_LOG | {"transactionHash": "0x12"}],
]


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_nonsense_answer_raises_node_unavailable_for_every_question(question: str) -> None:
    for nonsense in NONSENSE:
        async with a_server(always(nonsense)) as rpc:
            with pytest.raises(NodeUnavailable):
                await QUESTIONS[question](Node(rpc))


@pytest.mark.parametrize("question", ["block", "headers", "headers_and_logs", "logs_up_to"])
async def test_a_block_at_another_height_than_the_requested_one_is_no_answer(question: str) -> None:
    def respond(request: Any) -> object:
        if isinstance(request, dict):
            return result(request, A_BLOCK)
        return [
            result(each, [] if each["method"] == "eth_getLogs" else A_BLOCK) for each in request
        ]

    async with a_server(respond) as rpc:
        with pytest.raises(NodeUnavailable, match="block") as raised:
            await QUESTIONS[question](Node(rpc))
    assert raised.value.kind == "malformed"


@pytest.mark.parametrize("question", ["receipts", "known_receipts"])
async def test_a_receipt_of_another_transaction_is_no_answer(question: str) -> None:
    questions = QUESTIONS | {"known_receipts": lambda node: node.known_receipts([HASH])}
    receipt = A_RECEIPT | {"transactionHash": "0x" + "ee" * 32}

    def respond(request: Any) -> object:
        if isinstance(request, dict):
            return result(request, receipt)
        return [result(each, receipt) for each in request]

    async with a_server(respond) as rpc:
        with pytest.raises(NodeUnavailable, match="receipt") as raised:
            await questions[question](Node(rpc))
    assert raised.value.kind == "malformed"


@pytest.mark.parametrize("question", ["nonce", "estimate_gas"])
async def test_a_count_that_no_database_holds_is_no_answer(question: str) -> None:
    questions = QUESTIONS | {"estimate_gas": lambda node: node.estimate_gas(LTZ, b"", LTZ)}
    async with a_server(always(hex(2**63))) as rpc:
        with pytest.raises(NodeUnavailable):
            await questions[question](Node(rpc))


@pytest.mark.parametrize(
    "question", sorted(QUESTIONS.keys() - {"headers_and_logs", "logs_up_to", "view"})
)
async def test_an_error_object_counts_as_no_answer(question: str) -> None:
    async with a_server(refusing("internal error")) as rpc:
        with pytest.raises(NodeUnavailable, match="internal error"):
            await QUESTIONS[question](Node(rpc))
