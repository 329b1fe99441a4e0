"""The wordings of clients and providers that refuse a request, each as it was published."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.chain.node.refusals import (
    SIZE_KINDS,
    Refusal,
    RefusalKind,
    classify_error,
    classify_status,
    retry_after_seconds,
)

LOGS = "eth_getLogs"
ITEMS, RANGE, RESULTS = RefusalKind.BATCH_ITEMS, RefusalKind.BLOCK_RANGE, RefusalKind.RESULTS
BYTES, BODY = RefusalKind.RESPONSE_BYTES, RefusalKind.REQUEST_BYTES
SLOW, RATE, BEHIND = RefusalKind.NODE_TIMEOUT, RefusalKind.RATE, RefusalKind.BEHIND
UNSUPPORTED = RefusalKind.UNSUPPORTED

ALCHEMY_FREE = """Under the Free tier plan, you can make eth_getLogs requests with up to a 10 \
block range. Based on your parameters, this block range should work: [0x1180fca, 0x1180fd3]. \
Upgrade to PAYG for expanded block range."""
ALCHEMY = """Log response size exceeded. You can make eth_getLogs requests with up to a 2K block \
range and no limit on the response size, or you can request any block range with a cap of 10K logs \
in the response. Based on your parameters and the response size limit, this block range should \
work: [0x0, 0x79]"""
ALCHEMY_SLOW = """Query timeout exceeded. Consider reducing your block range. Based on your \
parameters and the response size limit, this block range should work: [0x5223c98, 0x5223e80]"""

BATCHES: list[tuple[str, int, str, Any, Refusal]] = [
    ("geth", -32600, "batch too large", None, Refusal(ITEMS)),
    ("Erigon 2", -32000, "batch limit 100 exceeded: 142 requests given", None, Refusal(ITEMS, 100)),
    (
        "Erigon 3, Bor",
        -32000,
        "batch limit 100 exceeded (can increase by --rpc.batch.limit). Requested batch of size: 4",
        None,
        Refusal(ITEMS, 100),
    ),
    ("Besu", -32005, "Number of requests exceeds max batch size", None, Refusal(ITEMS)),
    ("Nethermind", -32005, "Batch size limit exceeded", None, Refusal(ITEMS)),
    (
        "reth (jsonrpsee)",
        -32010,
        "The batch request was too large",
        "Exceeded max limit of 50",
        Refusal(ITEMS, 50),
    ),
    (
        "jsonrpsee without batches",
        -32005,
        "Batched requests are not supported by this server",
        None,
        Refusal(ITEMS, 1),
    ),
    ("OP's proxyd", -32014, "too many RPC calls in batch request", None, Refusal(ITEMS)),
    ("Gnosis", -32600, 'Too many ["eth_getLogs"] methods in the batch', None, Refusal(ITEMS)),
    (
        "dRPC",
        31,
        (
            "Batch of more than 3 requests are not allowed on free tier, to use this feature "
            "register paid account at drpc.org"
        ),
        None,
        Refusal(ITEMS, 3),
    ),
]

RANGES: list[tuple[str, int, str, Any, Refusal]] = [
    (
        "Erigon 3, Infura",
        -32602,
        "range 1000000 exceeds limit of 10000",
        None,
        Refusal(RANGE, 10_000),
    ),
    ("reth", -32602, "query exceeds max block range 100000", None, Refusal(RANGE, 100_000)),
    (
        "reth's results",
        -32602,
        "query exceeds max results 20000, retry with the range 59066104-59066970",
        None,
        Refusal(RESULTS, 20_000, fitting_blocks=867),
    ),
    ("Besu", -32005, "Requested range exceeds maximum RPC range limit", None, Refusal(RANGE)),
    ("Infura", -32005, "query returned more than 10000 results", None, Refusal(RESULTS, 10_000)),
    (
        "Infura with a range",
        -32005,
        "query returned more than 10000 results. Try with this block range [0xD2F4A0, 0xD2F4A9].",
        None,
        Refusal(RESULTS, 10_000, fitting_blocks=10),
    ),
    (
        "Alchemy, free",
        -32600,
        ALCHEMY_FREE,
        None,
        Refusal(RANGE, 10),
    ),
    ("Alchemy", -32602, ALCHEMY, None, Refusal(RESULTS, 10_000, fitting_blocks=0x7A)),
    ("Alchemy, slow", -32000, ALCHEMY_SLOW, None, Refusal(SLOW, fitting_blocks=0x1E9)),
    ("QuickNode", -32614, "eth_getLogs is limited to a 10,000 range", None, Refusal(RANGE, 10_000)),
    ("Ankr", -32600, "block range is too wide", None, Refusal(RANGE)),
    ("Ankr's results", -32000, "query exceeds max results 10000", None, Refusal(RESULTS, 10_000)),
    (
        "Ankr on Cosmos chains",
        -32000,
        "maximum [from, to] blocks distance: 2000",
        None,
        Refusal(RANGE, 2_000),
    ),
    (
        "Chainstack",
        -32600,
        "Block range limit exceeded. See more details at https://docs.chainstack.com/docs/limits",
        None,
        Refusal(RANGE),
    ),
    (
        "dRPC",
        35,
        "ranges over 10000 blocks are not supported on freetier",
        None,
        Refusal(RANGE, 10_000),
    ),
    (
        "Cloudflare",
        -32047,
        "Invalid eth_getLogs request. Max range: 800",
        None,
        Refusal(RANGE, 800),
    ),
    ("BlockPI", -32000, "eth_getLogs is limited to 1024 blocks range", None, Refusal(RANGE, 1_024)),
    ("1RPC", -32001, "eth_getLogs is limited to 0 - 50 blocks range", None, Refusal(RANGE, 50)),
    (
        "1RPC's bytes",
        -32001,
        "response size should not greater than 10000000 bytes",
        None,
        Refusal(BYTES),
    ),
    ("publicnode", -32701, "exceed maximum block range: 50000", None, Refusal(RANGE, 50_000)),
    ("Tenderly", -32005, "query returned more than 20000 results", None, Refusal(RESULTS, 20_000)),
    (
        "Coinbase",
        -32602,
        "please limit the query to at most 1,000 blocks",
        None,
        Refusal(RANGE, 1_000),
    ),
    (
        "Avalanche",
        -32000,
        "requested too many blocks from 0 to 5000000, maximum is set to 2048",
        None,
        Refusal(RANGE, 2_048),
    ),
    (
        "thirdweb",
        -32602,
        "Maximum allowed number of requested blocks is 1000",
        None,
        Refusal(RANGE, 1_000),
    ),
    (
        "Blast API",
        -32600,
        "exceeds the range allowed for your plan (9999 > 10)",
        None,
        Refusal(RANGE, 10),
    ),
    ("Moonbeam", -32000, "block range is too wide (maximum 1024)", None, Refusal(RANGE, 1_024)),
    (
        "Merkle",
        -32000,
        "eth_getLogs range is too large, max is 10k blocks",
        None,
        Refusal(RANGE, 10_000),
    ),
    ("proxyd", -32000, "block range greater than 10000 max", None, Refusal(RANGE, 10_000)),
    ("OP's gateway", -32020, "backend response too large", None, Refusal(BYTES)),
    (
        "Arbitrum",
        -32000,
        "logs matched by query exceeds limit of 10000",
        None,
        Refusal(RESULTS, 10_000),
    ),
    ("BNB", -32005, "limit exceeded", None, Refusal(RESULTS)),
    (
        "Celo",
        -32000,
        "query exceeds range, retry smaller (max blocks 1000)",
        None,
        Refusal(RANGE, 1_000),
    ),
    (
        "Morph",
        -32000,
        "block range is larger than max block range, block range = 5120, max block range = 5000",
        None,
        Refusal(RANGE, 5_000),
    ),
    ("geth's time-out", -32000, "query timeout exceeded", None, Refusal(SLOW)),
    (
        "reth's bytes (jsonrpsee)",
        -32008,
        "Response is too big",
        "Exceeded max limit of 167772160",
        Refusal(BYTES),
    ),
]

CALLS: list[tuple[str, int, str, Any, Refusal]] = [
    ("geth's batch of large replies", -32003, "response too large", None, Refusal(BYTES)),
    ("Nethermind", -32005, "MaxBatchResponseBodySize of 33554432 exceeded", None, Refusal(BYTES)),
    (
        "reth's request (jsonrpsee)",
        -32007,
        "Request is too big",
        "Exceeded max limit of 15728640",
        Refusal(BODY),
    ),
    ("geth's time-out", -32002, "request timed out", None, Refusal(SLOW)),
    ("geth's call", -32000, "execution aborted (timeout = 5s)", None, Refusal(SLOW)),
    ("Besu's time-out", -32603, "Timeout expired", None, Refusal(SLOW)),
    ("geth", -32000, "header not found", None, Refusal(BEHIND)),
    ("geth by hash", -32000, "header for hash not found", None, Refusal(BEHIND)),
    ("geth's tag", -39001, "Unknown block", None, Refusal(BEHIND)),
    (
        "geth's range",
        -32000,
        "block range extends beyond current head block",
        None,
        Refusal(BEHIND),
    ),
    ("geth, EIP-1898", -32000, "hash is not currently canonical", None, Refusal(BEHIND)),
    (
        "geth, pruned",
        -32000,
        "missing trie node 00ab (path ) state 0xcd is not available",
        None,
        Refusal(BEHIND),
    ),
    ("Besu", -32000, "World state unavailable", None, Refusal(BEHIND)),
    (
        "Nethermind",
        -32000,
        "One of the blocks specified in filter (fromBlock, toBlock or blockHash) cannot be found.",
        None,
        Refusal(BEHIND),
    ),
    ("Nethermind by hash", -32001, f"0x{'ab' * 32} could not be found", None, Refusal(BEHIND)),
    ("Nethermind by height", -32000, "4294967295 could not be found", None, Refusal(BEHIND)),
    (
        "Nethermind, pruned",
        -32002,
        f"No state available for block 16 (0x{'ab' * 32})",
        None,
        Refusal(BEHIND),
    ),
    ("reth, pruned", -32603, "state at block #49871645 is pruned", None, Refusal(BEHIND)),
    ("reth, geth, Nethermind: old", 4444, "pruned history unavailable", None, Refusal(BEHIND)),
    ("Erigon, old", -32000, "history has been pruned for this block", None, Refusal(BEHIND)),
    ("Erigon, pruned", -32000, "old data not available due to pruning", None, Refusal(BEHIND)),
    (
        "Infura, old",
        -32002,
        "project ID does not have access to archive state",
        None,
        Refusal(BEHIND),
    ),
    (
        "publicnode, old",
        -32602,
        "Archive requests require a personal token",
        None,
        Refusal(BEHIND),
    ),
    ("proxyd", -32019, "block is out of range", None, Refusal(BEHIND)),
    ("reth", -32001, "block not found: hash 0x" + "ab" * 32, None, Refusal(BEHIND)),
    ("Erigon", -32000, "block 0x1bcd not found", None, Refusal(BEHIND)),
    (
        "anvil",
        -32602,
        "BlockOutOfRangeError: block height is 5 but requested was 9",
        None,
        Refusal(BEHIND),
    ),
    (
        "Hardhat",
        -32602,
        "Received invalid block tag 9. Latest block number is 5",
        None,
        Refusal(BEHIND),
    ),
    ("Avalanche", -32000, "cannot query unfinalized data", None, Refusal(BEHIND)),
    ("any client", -32601, "Method not found", None, Refusal(UNSUPPORTED)),
    (
        "geth's method",
        -32601,
        "the method eth_x does not exist/is not available",
        None,
        Refusal(UNSUPPORTED),
    ),
    ("Hardhat", -32004, "Method eth_x is not supported", None, Refusal(UNSUPPORTED)),
    ("Besu's method", -32604, "Method not enabled", None, Refusal(UNSUPPORTED)),
    (
        "Erigon's method",
        -32000,
        "the method is currently not implemented: eth_x",
        None,
        Refusal(UNSUPPORTED),
    ),
    ("Nethermind's time-out", -32016, "Timeout", None, Refusal(SLOW)),
    (
        "Infura",
        -32005,
        "daily request count exceeded, request rate limited",
        {"rate": {}, "backoff_seconds": 30.0},
        Refusal(RATE, retry_after_seconds=30.0),
    ),
    (
        "Infura's rate",
        -32005,
        "project ID request rate exceeded",
        {
            "rate": {"allowed_rps": 1, "backoff_seconds": 30, "current_rps": 1.4333},
            "see": "https://infura.example/dashboard",
        },
        Refusal(RATE, retry_after_seconds=30.0),
    ),
    (
        "Infura's rate without a pause",
        -32005,
        "project ID request rate exceeded",
        {"rate": {"allowed_rps": 50, "backoff_seconds": 0, "current_rps": 52.3}},
        Refusal(RATE),
    ),
    (
        "Alchemy",
        429,
        "Your app has exceeded its compute units per second capacity.",
        None,
        Refusal(RATE),
    ),
    (
        "Alchemy's month",
        429,
        "Monthly capacity limit exceeded. Visit https://dashboard.example",
        None,
        Refusal(RATE),
    ),
    (
        "QuickNode",
        -32007,
        "100/second request limit reached - reduce calls per second or upgrade your account",
        None,
        Refusal(RATE),
    ),
    (
        "Chainstack",
        -32005,
        "You've exceeded the RPS limit available on the current plan.",
        {"try_again_in": "250.5ms"},
        Refusal(RATE, retry_after_seconds=0.2505),
    ),
    ("Ankr", -32029, "Too many requests", None, Refusal(RATE)),
    (
        "dRPC",
        15,
        "Too many requests, reason: call rate limit exhausted, retry in 10s",
        None,
        Refusal(RATE, retry_after_seconds=10.0),
    ),
    (
        "Cloudflare",
        -32005,
        "Rate limited: try again in 20 seconds",
        None,
        Refusal(RATE, retry_after_seconds=20.0),
    ),
    ("Tenderly", -32005, "rate limit exceeded", None, Refusal(RATE)),
    ("BlockPI", -32000, "request rate limited, please upgrade", None, Refusal(RATE)),
    ("publicnode", -32000, "Slow down", None, Refusal(RATE)),
    ("proxyd", -32016, "over rate limit", None, Refusal(RATE)),
    ("proxyd's backends", -32011, "backend is over capacity", None, Refusal(RATE)),
    ("reth (jsonrpsee)", -32009, "Server is busy, try again later", None, Refusal(RATE)),
    ("Nethermind's load", -32005, "Too many requests", None, Refusal(RATE)),
    ("EIP-1474", -32005, "limit exceeded", None, Refusal(RATE)),
]


def _ids(rows: list[tuple[str, int, str, Any, Refusal]]) -> list[str]:
    return [row[0] for row in rows]


@pytest.mark.parametrize(("_who", "code", "text", "data", "refusal"), BATCHES, ids=_ids(BATCHES))
@pytest.mark.parametrize("method", ["", "eth_call", "eth_sendRawTransaction"])
def test_a_batch_of_too_many_calls_is_recognised(
    _who: str, code: int, text: str, data: Any, refusal: Refusal, method: str
) -> None:
    assert classify_error(code, text, data, method) == refusal


@pytest.mark.parametrize(("_who", "code", "text", "data", "refusal"), RANGES, ids=_ids(RANGES))
def test_a_refused_query_of_logs_is_recognised(
    _who: str, code: int, text: str, data: Any, refusal: Refusal
) -> None:
    assert classify_error(code, text, data, LOGS) == refusal
    assert refusal.kind in SIZE_KINDS


@pytest.mark.parametrize(("_who", "code", "text", "data", "refusal"), CALLS, ids=_ids(CALLS))
def test_a_refused_call_is_recognised(
    _who: str, code: int, text: str, data: Any, refusal: Refusal
) -> None:
    assert classify_error(code, text, data, "eth_call") == refusal


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "execution reverted: rate limit exceeded"),
        (-32000, "execution reverted: too many requests, try again in 5"),
        (-32603, "Error: VM Exception: reverted with reason string 'batch too large'"),
        (-32000, "insufficient funds for gas * price + value"),
        (-32000, "already known"),
        (-32602, "invalid argument 0: hex string without 0x prefix"),
        (-32000, "gas required exceeds allowance (30000000)"),
        (-32000, ""),
    ],
)
@pytest.mark.parametrize("method", ["eth_call", LOGS, "eth_estimateGas"])
def test_an_error_about_the_call_itself_is_no_refusal(code: int, text: str, method: str) -> None:
    assert classify_error(code, text, None, method) is None


@pytest.mark.parametrize(
    "text",
    [
        "nonce too low",
        "replacement transaction underpriced",
        "exceeds block gas limit",
        "intrinsic gas too low",
        "max initcode size exceeded: code size 60000, limit 49152",
        "oversized data: transaction size 140000, limit 131072",
        "header not found",
        "tx fee (1.20 ether) exceeds the configured cap (1.00 ether)",
        "in-flight transaction limit reached for delegated accounts",
        "limit exceeded",
    ],
)
def test_a_text_about_a_transaction_is_left_to_its_publication(text: str) -> None:
    assert classify_error(-32005, text, None, "eth_sendRawTransaction") is None


def test_a_publication_may_be_refused_for_its_method() -> None:
    refusal = classify_error(-32601, "Method not found", None, "eth_sendRawTransaction")
    assert refusal == Refusal(UNSUPPORTED)


def test_a_publication_may_be_refused_for_its_rate() -> None:
    refusal = classify_error(
        -32007, "50/second request limit reached", None, "eth_sendRawTransaction"
    )
    assert refusal == Refusal(RATE)


@pytest.mark.parametrize(
    ("status", "text", "header", "refusal"),
    [
        (429, "Too Many Requests", "7", Refusal(RATE, retry_after_seconds=7.0)),
        (429, "slow down, retry after 3 seconds", None, Refusal(RATE, retry_after_seconds=3.0)),
        (429, "", None, Refusal(RATE)),
        (413, "<h1>413 Request Entity Too Large</h1>", None, Refusal(BODY)),
        (413, "content length too large (6000000>5242880)", None, Refusal(BODY)),
        (413, "", None, Refusal(BODY)),
        (400, "batch limit 100 exceeded", None, Refusal(ITEMS, 100)),
        (504, "<html>Gateway Time-out</html>", None, Refusal(SLOW)),
        (524, "error code: 524", None, Refusal(SLOW)),
        (502, "<html>Bad Gateway</html>", None, None),
        (401, "Unauthorized", None, None),
        (200, "rate limit", None, None),
    ],
)
def test_an_http_status_alone_is_understood(
    status: int, text: str, header: str | None, refusal: Refusal | None
) -> None:
    assert classify_status(status, text, header) == refusal


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 0.5 ", 0.5),
        ("Sun, 22 Nov 2026 12:00:30 GMT", 30.0),
        ("Sun, 22 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("9" * 40, None),
        (f"Sun, 22 Nov {'9' * 20} 12:00:30 GMT", None),
        (f"Sun, 22 Nov 2026 12:00:30 +{'9' * 13}", None),
        (f"Sun, 22 Nov 2026 12:00:30 +{'9' * 30}", None),
        ("", None),
        (None, None),
    ],
)
def test_a_pause_may_be_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    now = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
    assert retry_after_seconds(header, now) == seconds


@given(
    st.integers(-40_000, 600),
    st.text(max_size=400) | st.from_regex(r"(batch|range|limit|retry|\d{1,40}|[ ,.]|0x[0-9a-f]+)*"),
    st.none()
    | st.text(max_size=40)
    | st.dictionaries(st.text(max_size=9), st.floats(), max_size=2)
    | st.fixed_dictionaries({"rate": st.dictionaries(st.just("backoff_seconds"), st.floats())}),
    st.sampled_from(["", LOGS, "eth_call", "eth_sendRawTransaction"]),
)
def test_any_text_is_classified_with_usable_numbers(
    code: int, text: str, data: Any, method: str
) -> None:
    refusal = classify_error(code, text, data, method)

    if refusal is not None:
        assert refusal.allowed is None or refusal.allowed >= 1
        assert refusal.fitting_blocks is None or refusal.fitting_blocks >= 1
        assert refusal.retry_after_seconds is None or refusal.retry_after_seconds >= 0
