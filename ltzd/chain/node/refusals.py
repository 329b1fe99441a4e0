"""Classifies the refusals of nodes and providers: too large, too many, too slow, too early.

Sources are error codes, error texts and HTTP statuses; tests/chain/node/test_refusals.py has the
table by client and provider. Patterns of sizes come before those of rates, because both say "limit
exceeded". A revert is never a refusal: its text is the contract's.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

import msgspec

from ltzd.rules.http_dates import parse_http_date

_TEXT_LENGTH: Final = 1_000
"""Characters of a text that are read: its length is the node's choice."""


class RefusalKind(Enum):
    BATCH_ITEMS = "batch_items"
    """Too many calls in one batch; `allowed` is their number."""
    BLOCK_RANGE = "block_range"
    """Too many blocks in one `eth_getLogs`; `allowed` is their number."""
    RESULTS = "results"
    """Too many results of one call; `allowed` is their number."""
    RESPONSE_BYTES = "response_bytes"
    REQUEST_BYTES = "request_bytes"
    NODE_TIMEOUT = "node_timeout"
    """The node itself gave up."""
    RATE = "rate"
    BEHIND = "behind"
    """The node lacks the block or its state; another node may have it."""
    UNSUPPORTED = "unsupported"
    """The node does not have this method."""


SIZE_KINDS: Final = frozenset(
    (
        *(RefusalKind.BATCH_ITEMS, RefusalKind.BLOCK_RANGE, RefusalKind.RESULTS),
        *(RefusalKind.RESPONSE_BYTES, RefusalKind.REQUEST_BYTES, RefusalKind.NODE_TIMEOUT),
    )
)
"""Refusals of a request that may only be sent again in smaller parts."""


class Refusal(msgspec.Struct, frozen=True):
    """`allowed` counts what `kind` says; None if the node does not say it."""

    kind: RefusalKind
    allowed: int | None = None
    fitting_blocks: int | None = None
    """The number of blocks that the node proposes for this very query."""
    retry_after_seconds: float | None = None


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_NUMBER = r"(\d[\d,._]*[km]?)"

_BATCH_NUMBERS = _any_of(
    rf"batch limit {_NUMBER} exceeded",
    rf"batch of more than {_NUMBER}",
    rf"max(?:imum)? (?:allowed )?batch size(?: is| of|:)? {_NUMBER}",
    rf"batch size .{{0,40}}(?:limit|max(?:imum)?)(?: is| of|:)? {_NUMBER}",
    rf"batch .{{0,60}}exceeded max limit of {_NUMBER}",
)
_NO_BATCHES = _any_of(r"batch(?:ed|ing)?(?: requests?)?(?: is| are)? (?:not|un)[- ]?(?:supp|allow)")
_BATCH = _any_of(
    r"batch(?: request)?(?: is| was)? too (?:large|big|long)",
    r"exceeds? (?:the )?max(?:imum)?(?: allowed)? batch size",
    r"batch (?:size|requests?|length)? ?(?:limit )?(?:exceed|limit)",
    r"too many .{0,40}in (?:the |a |one )?batch",
    r"requests in (?:the |a )?batch exceed",
)
_PROPOSED_RANGE = _any_of(
    r"(?:should work|this block range):? \[\s*(0x[0-9a-f]{1,16})\s*,\s*(0x[0-9a-f]{1,16})\s*\]"
)
_RETRY_RANGE = _any_of(r"retry with (?:the |this )?(?:block )?range (\d{1,18})\s*-\s*(\d{1,18})")
_RESULT_NUMBERS = _any_of(
    rf"more than {_NUMBER} (?:results|logs)",
    rf"exceeds? max(?:imum)? results:? {_NUMBER}",
    rf"logs matched by query exceeds limit of {_NUMBER}",
    rf"cap of {_NUMBER} logs",
)
_RESULTS = _any_of(
    r"too many (?:logs|results)",
    r"max(?:imum)? results",
    r"results? (?:set )?(?:is )?too (?:large|big)",
    r"log response size exceeded",
    r"query exceeds limit",
)
_RANGE_NUMBERS = _any_of(
    rf"up to an? {_NUMBER}[- ]blocks?[- ]range",
    rf"limited to (?:an? )?(?:0 ?- ?)?{_NUMBER}[- ]*(?:blocks?|range)",
    rf"too many blocks .{{0,80}}maximum is set to {_NUMBER}",
    rf"max(?:imum)?(?: allowed)?(?: block)? range(?: is| =|:)? {_NUMBER}",
    rf"maximum allowed .{{0,60}}(?:is|:) {_NUMBER}",
    rf"exceeds? max(?:imum)?(?: allowed)? block range:? \(?{_NUMBER}",
    rf"block range (?:is )?greater than {_NUMBER} max",
    rf"block range exceeds {_NUMBER}",
    rf"ranges? (?:over|of more than) {_NUMBER} blocks",
    rf"range \d+ exceeds limit of {_NUMBER}",
    rf"at most {_NUMBER} blocks",
    rf"range allowed for your plan \(\d+ > {_NUMBER}\)",
    rf"too (?:wide|large),? \(?max(?:imum)?(?: is)?:? {_NUMBER}",
    rf"blocks distance:? {_NUMBER}",
    rf"max blocks:? {_NUMBER}",
    rf"query must be smaller than size {_NUMBER}",
)
_RANGE = _any_of(
    r"range (?:is )?too (?:wide|large|big|high)",
    r"range limit exceeded",
    r"too many blocks",
    r"exceeds? (?:the )?(?:max(?:imum)? )?(?:allowed )?(?:rpc |block )range",
    r"range exceeds? (?:the )?(?:max|limit)",
    r"reduc(?:e|ing) .{0,20}block range",
)
_REQUEST_BYTES = _any_of(
    r"request entity too large",
    r"content (?:length )?too large",
    r"payload too large",
    r"(?:request|message)(?: body)?(?: is| was)? too (?:large|big)",
    r"body (?:size )?(?:is )?(?:too large|exceed)",
)
_RESPONSE_BYTES = _any_of(
    r"response(?: body)?(?: size)?(?: is| was)? too (?:large|big)",
    r"response size (?:should not|exceed|limit)",
    r"response exceed",
    r"batchresponsebodysize",
    r"memory capacity exceeded",
)
_TIMED_OUT = _any_of(r"time[sd]?[ -]?out\b", r"deadline exceeded", r"took too long")
_BEHIND = _any_of(
    r"header (?:for hash )?(?:was )?not found",
    r"unknown block",
    r"block (?:\S{1,70} )?(?:was |is )?not found",
    r"could not find block",
    r"(?:cannot|could not) be found",
    r"block ?out ?of ?range",
    r"latest block number is",
    r"greater than (?:the )?latest",
    r"beyond (?:the )?(?:current |latest )?(?:head|block)",
    r"after last accepted block",
    r"unfinalized data",
    r"not (?:currently )?canonical",
    r"missing trie node",
    r"(?:world )?state (?:at block )?(?:\S{1,70} )?(?:is )?(?:unavailable|not available|pruned)",
    r"no state available",
    r"historical state",
    r"\bpruned\b|due to pruning",
    r"archive (?:state|requests?|data)",
    r"block is out of range",
)
_UNSUPPORTED = _any_of(
    r"method .{0,80}(?:not found|does not exist|disabled|whitelisted)",
    r"method .{0,80}not (?:available|supported|implemented)",
    r"unsupported method",
    r"does not support (?:the )?method",
    r"not included in your current plan",
)
_RATE = _any_of(
    r"rate[ -]?limit",
    r"(?:over|request) rate",
    r"rate exceeded",
    r"too many (?:concurrent )?requests",
    r"request limit",
    r"(?:requests?|calls) per (?:second|minute|day)",
    r"rps limit",
    r"request count exceeded",
    r"compute units",
    r"capacity",
    r"quota",
    r"credits",
    r"throttl",
    r"slow down",
    r"server (?:is )?(?:too )?(?:busy|overload)",
    r"under too much load",
    r"(?:try again|retry) (?:in|later|after)",
)
_PAUSE = _any_of(
    r"(?:try[ _]again|retry|wait|back ?off)[ _-]?(?:in|after|for)?[: ]*"
    r"(\d{1,9}(?:\.\d{1,9})?) ?(ms|milliseconds?|s|sec|seconds?|m|min|minutes?)?\b"
)
_REVERTED = _any_of(r"\brevert")

_RATE_CODES: Final = frozenset((429, -32029))
"""HTTP's own as an error code, and providers'.

Other codes have other meanings elsewhere: -32009 is jsonrpsee's busy server and Besu's gas price
that is too low, -32016 is proxyd's rate limit and Nethermind's time-out.
"""
_LIMIT_CODE: Final = -32005
"""EIP-1474's "limit exceeded": of results for `eth_getLogs`, else of the rate."""
REVERTED_CODE: Final = 3
"""geth's code of `execution reverted`, which other clients use too."""
_METHOD_CODES: Final = frozenset((-32601, -32604))
"""JSON-RPC's "method not found"; Besu's "method not enabled"."""
_STATUSES: Final = {
    408: RefusalKind.NODE_TIMEOUT,
    413: RefusalKind.REQUEST_BYTES,
    429: RefusalKind.RATE,
    504: RefusalKind.NODE_TIMEOUT,
    522: RefusalKind.NODE_TIMEOUT,
    524: RefusalKind.NODE_TIMEOUT,
}


def classify_error(code: int, text: str, data: object = None, method: str = "") -> Refusal | None:
    """The refusal that an error object stands for, or None for any other error.

    `method` is the refused call's, or "" for a batch as a whole. A publication is only refused for
    its rate, its bytes or its method: other texts are about the transaction.
    """
    text = text[:_TEXT_LENGTH]
    if isinstance(data, str):
        text = f"{text} {data[:_TEXT_LENGTH]}"
    if code == REVERTED_CODE or _REVERTED.search(text):
        return None
    if method == "eth_sendRawTransaction":
        if code in _METHOD_CODES:
            return Refusal(RefusalKind.UNSUPPORTED)
        refusal = _batch_refusal(text) or _byte_refusal(text)
        return refusal or _rate_refusal(code, text, data)
    return (
        _batch_refusal(text)
        or _log_refusal(text)
        or _byte_refusal(text)
        or _other_refusal(code, text)
        or _rate_refusal(code, text, data)
        or _limit_refusal(code, method)
    )


def classify_status(status: int, text: str, retry_after: str | None) -> Refusal | None:
    """The refusal of an HTTP answer that is no JSON-RPC reply; `text` is its body.

    `retry_after` is the header's value, seconds or a date. Returns None for any other status.
    """
    if status < 400:
        return None
    text = text[:_TEXT_LENGTH]
    kind = _STATUSES.get(status)
    if kind is RefusalKind.RATE or (status == 503 and retry_after is not None):
        kind = RefusalKind.RATE
        pause = retry_after_seconds(retry_after)
        return Refusal(kind, retry_after_seconds=_pause_in(text) if pause is None else pause)
    return _byte_refusal(text) or _batch_refusal(text) or (Refusal(kind) if kind else None)


def retry_after_seconds(header: str | None, now: datetime | None = None) -> float | None:
    """The pause that a Retry-After header asks for, or None without a readable one."""
    if header is None:
        return None
    header = header.strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", header):
        return float(header)
    until = parse_http_date(header)
    if until is None:
        return None
    return max(0.0, (until - (now or datetime.now(UTC))).total_seconds())


def _batch_refusal(text: str) -> Refusal | None:
    if "batch" not in text.lower():
        return None
    if number := _number_in(_BATCH_NUMBERS, text):
        return Refusal(RefusalKind.BATCH_ITEMS, allowed=number)
    if _NO_BATCHES.search(text):
        return Refusal(RefusalKind.BATCH_ITEMS, allowed=1)
    return Refusal(RefusalKind.BATCH_ITEMS) if _BATCH.search(text) else None


def _log_refusal(text: str) -> Refusal | None:
    """A refusal of too many blocks or results, or of a query that takes too long."""
    fitting = _proposed_blocks(text)
    results = _number_in(_RESULT_NUMBERS, text)
    if results or _RESULTS.search(text):
        return Refusal(RefusalKind.RESULTS, allowed=results, fitting_blocks=fitting)
    if fitting and _TIMED_OUT.search(text):
        return Refusal(RefusalKind.NODE_TIMEOUT, fitting_blocks=fitting)
    blocks = _number_in(_RANGE_NUMBERS, text)
    if blocks or fitting or _RANGE.search(text):
        return Refusal(RefusalKind.BLOCK_RANGE, allowed=blocks or fitting)
    return None


def _byte_refusal(text: str) -> Refusal | None:
    if _RESPONSE_BYTES.search(text):
        return Refusal(RefusalKind.RESPONSE_BYTES)
    return Refusal(RefusalKind.REQUEST_BYTES) if _REQUEST_BYTES.search(text) else None


def _other_refusal(code: int, text: str) -> Refusal | None:
    if _TIMED_OUT.search(text):
        return Refusal(RefusalKind.NODE_TIMEOUT)
    if code in _METHOD_CODES or _UNSUPPORTED.search(text):
        return Refusal(RefusalKind.UNSUPPORTED)
    return Refusal(RefusalKind.BEHIND) if _BEHIND.search(text) else None


def _rate_refusal(code: int, text: str, data: object) -> Refusal | None:
    if code not in _RATE_CODES and not _RATE.search(text):
        return None
    return Refusal(RefusalKind.RATE, retry_after_seconds=_pause_of(text, data))


def _limit_refusal(code: int, method: str) -> Refusal | None:
    if code != _LIMIT_CODE:
        return None
    return Refusal(RefusalKind.RESULTS if method == "eth_getLogs" else RefusalKind.RATE)


def _pause_of(text: str, data: object) -> float | None:
    """The pause that the error's data, its field `rate`, or its text asks for, in seconds.

    Infura sends a pause of 0 now and then, which says nothing.
    """
    if isinstance(data, Mapping):
        rate = data.get("rate")
        fields: Mapping[Any, Any] = {**rate, **data} if isinstance(rate, Mapping) else data
        for key in ("backoff_seconds", "retry_after", "try_again_in"):
            value = fields.get(key)
            if isinstance(value, int | float) and 0 < value < 1e9:
                return float(value)
            if isinstance(value, str):
                return _pause_in(f"retry in {value[:40]}")
    return _pause_in(text)


def _pause_in(text: str) -> float | None:
    match = _PAUSE.search(text)
    if match is None:
        return None
    number, unit = float(match[1]), (match[2] or "s").lower()
    if unit.startswith(("ms", "milli")):
        return number / 1_000
    return number * 60 if unit.startswith("m") else number


def _number_in(pattern: re.Pattern[str], text: str) -> int | None:
    """The number that a pattern holds, such as 2000 for `2,000` and `2K`; None if 0 or none."""
    match = pattern.search(text)
    if match is None:
        return None
    digits = next(group for group in match.groups() if group).lower()
    factor = {"k": 1_000, "m": 1_000_000}.get(digits[-1], 1)
    plain = re.sub(r"\D", "", digits)
    return int(plain[:12]) * factor or None


def _proposed_blocks(text: str) -> int | None:
    """The number of blocks of the range that the node proposes."""
    for pattern, base in ((_PROPOSED_RANGE, 16), (_RETRY_RANGE, 10)):
        if match := pattern.search(text):
            count = int(match[2], base) - int(match[1], base) + 1
            return count if count > 0 else None
    return None
