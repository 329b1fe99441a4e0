"""Long answers: honest ones of every shape are decoded, and none stops the loop or fills memory."""

import asyncio
import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.chain.node.answers import decoding
from ltzd.chain.node.answers.decoding import SHORT_BYTES, MalformedAnswer, decode, decode_logs
from ltzd.chain.node.log_entries import LogEntry
from tests.support.rows.core import running

HASH = "0x" + "ab" * 32
LOG = {
    "address": "0x" + "11" * 20,
    "topics": [HASH, HASH, HASH],
    "data": "0x" + "55" * 32,
    "blockNumber": "0x123456",
    "transactionHash": HASH,
    "transactionIndex": "0x0",
    "blockHash": HASH,
    "logIndex": "0x1",
    "removed": False,
}
RECEIPT = {"transactionHash": HASH, "logsBloom": "0x" + "00" * 256, "logs": [LOG] * 3, "to": None}
BLOCK = {"number": "0x1", "transactions": [HASH] * 6_000, "logsBloom": "0x" + "00" * 256}


def encoded(value: object, id_: int = 1) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id_, "result": value})


def padded(value: str, size: int, result: str = '{{"logs":[{values}]}}') -> bytes:
    """A right reply of about `size` bytes, most of which repeat a value."""
    values = ",".join([value] * (size // (len(value) + 1)))
    return b'{"jsonrpc":"2.0","id":1,"result":%b}' % result.format(values=values).encode()


HONEST = {
    "logs": encoded([LOG] * 2_000),
    "receipts": encoded([RECEIPT] * 500),
    "a receipt with many logs": encoded({"logs": [LOG] * 2_000, "status": "0x1"}),
    "receipts, one with many logs": encoded([RECEIPT, {"logs": [LOG] * 2_000}, *[RECEIPT] * 50]),
    "a block with many transactions": encoded(BLOCK),
    "a log with much data": encoded([LOG, {**LOG, "data": "0x" + "ab" * SHORT_BYTES}, LOG]),
    "a long text": encoded("0x" + "ab" * SHORT_BYTES),
    "headers and logs": b" [%b]"
    % b",".join([*(encoded(BLOCK, id_) for id_ in range(9)), encoded([LOG] * 900, 9)]),
    "empty blocks with withdrawals": b"[%b]"
    % b",".join(
        encoded(
            {
                "logsBloom": "0x" + "00" * 256,
                "hash": HASH,
                "parentHash": HASH,
                "stateRoot": HASH,
                "receiptsRoot": HASH,
                "extraData": HASH,
                "withdrawals": [
                    {"index": "0x1", "validatorIndex": "0x1", "address": HASH[:42], "amount": "0x1"}
                ]
                * 16,
            },
            id_,
        )
        for id_ in range(200)
    ),
}


@pytest.mark.parametrize("shape", HONEST)
async def test_a_long_honest_answer_is_decoded_as_it_is(shape: str) -> None:
    raw = HONEST[shape]
    assert len(raw) > SHORT_BYTES
    assert await decode(raw) == json.loads(raw)


async def test_a_long_answer_with_logs_is_decoded_into_entries() -> None:
    reply = await decode_logs(encoded([LOG] * 2_000, 7))
    assert reply == {"id": 7, "result": [msgspec.convert(LOG, LogEntry)] * 2_000}


@pytest.mark.parametrize("result", [None, {"logs": [LOG] * 900}, [LOG] * 900 + [{"topics": []}]])
async def test_a_long_answer_without_proper_logs_has_no_entries(result: object) -> None:
    assert await decode_logs(encoded(result) + b" " * SHORT_BYTES) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**62) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=20,
)


@given(_JSON)
def test_any_value_in_a_long_answer_is_decoded_as_in_a_short_one(value: Any) -> None:
    raw = encoded(["0x" + "ab" * SHORT_BYTES, value, {"result": [value, HASH * 8_000]}])
    assert asyncio.run(decode(raw)) == json.loads(raw)


DENSE = ["[]", "{}", "0", '"ab"', '{"a":1}', "[" * 400 + "]" * 400, '{"a":' * 300 + "1" + "}" * 300]


@pytest.mark.parametrize("value", DENSE)
async def test_an_answer_full_of_tiny_values_is_refused_before_they_are_made(value: str) -> None:
    raw = padded(value, 4 * 1024 * 1024)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedAnswer, match="more values") as raised:
            await decode(raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert raised.value.kind == "oversized"
    assert peak < len(raw) // 4


@pytest.mark.parametrize("value", ['"ab"' + " " * 24, "[ ]" + " " * 48, '{"a":1}' + " " * 60])
async def test_what_is_made_of_a_long_answer_is_bounded(value: str) -> None:
    """Its values are as short as an answer's may be."""
    raw = padded(value, 8 * 1024 * 1024)
    tracemalloc.start()
    try:
        await decode(raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(raw)


async def test_a_long_value_that_nobody_reads_is_left_out() -> None:
    raw = padded(f'"{HASH}"', SHORT_BYTES * 2, '{{"number":"0x1","x":[{values}],"hash":"0x2"}}')
    assert (await decode(raw))["result"] == {"number": "0x1", "hash": "0x2"}


async def test_a_long_error_is_no_error_that_anybody_formats() -> None:
    values = ",".join([f'"{HASH}"'] * 9_000)
    raw = f'{{"id":1,"error":{{"code":1,"message":[{values}]}}}}'.encode()
    assert await decode(raw) == {"id": 1}


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 20 + b'"' + b"a" * 3 * SHORT_BYTES + b'"' + b"]" * 20,
        b"{%b}" % b",".join(b'"%d":"%b"' % (number, b"a" * 300) for number in range(1_500)),
        b'{"result":[' + b'"' + b"a" * SHORT_BYTES,
        b" " * SHORT_BYTES + b"[1]",
        b"1" * 2 * SHORT_BYTES,
        b"null" + b" " * SHORT_BYTES,
    ],
    ids=range(6),
)
async def test_a_long_answer_of_another_form_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        await decode(raw)


@pytest.mark.parametrize(("hold", "at_least"), [(0.0, 30), (3600.0, 0)])
@pytest.mark.parametrize("typed", [False, True])
async def test_the_loop_goes_on_once_a_long_answer_has_held_it(
    monkeypatch: pytest.MonkeyPatch, hold: float, at_least: int, *, typed: bool
) -> None:
    """An answer that is decoded within the time waits for no turn of a busy loop."""
    monkeypatch.setattr(decoding, "_LONGEST_HOLD_SECONDS", hold)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    raw = encoded([LOG] * 14_000)
    assert len(raw) > 30 * SHORT_BYTES
    async with running(count_turns()):
        await (decode_logs(raw) if typed else decode(raw))
    assert turns >= at_least
    assert at_least or turns == 0


async def test_one_long_answer_is_decoded_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "_LONGEST_HOLD_SECONDS", 0.0)
    ended: list[str] = []

    async def decoded(name: str, raw: bytes) -> None:
        await decode(raw)
        ended.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(decoded("longest", encoded([LOG] * 7_000)))
        group.create_task(decoded("long", encoded([LOG] * 600)))
        group.create_task(decoded("short", encoded([LOG])))
    assert ended == ["short", "longest", "long"]
