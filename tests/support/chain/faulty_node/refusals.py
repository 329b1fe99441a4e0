"""How nodes and providers refuse, word for word.

A refusal is an error object with HTTP 200, or an HTTP error with its own body. The wordings are
those of geth, Erigon, Nethermind, Besu, reth and of the providers that the names tell.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

_HTML = "<html><head><title>{0}</title></head><body><center><h1>{0}</h1></center></body></html>"


@dataclass(frozen=True)
class Refusal:
    """`code` and `text` are the error object's; without `text` the body is HTML."""

    text: str = ""
    code: int = -32000
    status: int = 200
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.text}

    def body(self, call_id: object) -> bytes:
        """The whole answer to a request that is refused as a whole."""
        if not self.text:
            return _HTML.format(f"{self.status} {self.reason}").encode()
        return json.dumps({"jsonrpc": "2.0", "id": call_id, "error": self.error}).encode()


BATCH_TOO_LARGE = {
    "geth": Refusal("batch too large", -32600),
    "erigon": Refusal(
        "batch limit 100 exceeded (can increase by --rpc.batch.limit). Requested batch of size: 101"
    ),
    "nethermind": Refusal("Batch size limit exceeded", -32005),
    "besu": Refusal("Number of requests in batch exceeds limit", -32600),
    "reth": Refusal("The batch request was too large: Exceeded max limit of 100", -32010),
    "quicknode": Refusal("batch size too large, maximum allowed 100", -32600, 413),
    "nginx": Refusal(status=413, reason="Request Entity Too Large"),
}

RANGE_TOO_WIDE = {
    "erigon": Refusal("query block range too large: exceeds the limit of 10 blocks", -32602),
    "bor": Refusal("exceed maximum block range: 10"),
    "geth": Refusal("exceed max topics or block range", -32602),
    "alchemy": Refusal(
        "Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range.",
        -32600,
        400,
    ),
    "quicknode": Refusal("eth_getLogs is limited to a 10 range", -32614, 413),
    "ankr": Refusal("block range is too wide", -32600),
    "blast": Refusal("Your app has exceeded the eth_getLogs block range limit of 10", -32602),
    "cloudflare": Refusal("Max range: 10", -32047),
    "drpc": Refusal("ranges over 10 blocks are not supported on freetier", 35),
}

TOO_MANY_RESULTS = {
    "infura": Refusal("query returned more than 10000 results", -32005),
    "alchemy": Refusal(
        "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range "
        "and no limit on the response size, or you can request any block range with a cap of 10K "
        "logs in the response.",
        -32602,
    ),
    "reth": Refusal("query exceeds max results 20000, retry with the range 1-2", -32602),
}

BUSY = {
    "429 with seconds": Refusal(
        "daily request count exceeded, request rate limited",
        -32005,
        429,
        "Too Many Requests",
        {"Retry-After": "1"},
    ),
    "429 without a body": Refusal(status=429, reason="Too Many Requests"),
    "rate as an error object": Refusal(
        "Your app has exceeded its compute units per second capacity.", 429
    ),
    "500": Refusal(status=500, reason="Internal Server Error"),
    "502": Refusal(status=502, reason="Bad Gateway"),
    "503": Refusal(status=503, reason="Service Unavailable", headers={"Retry-After": "1"}),
    "internal error": Refusal("Internal error", -32603),
    "resource unavailable": Refusal("resource unavailable", -32002),
    "timeout": Refusal("request timed out"),
    "unauthorized": Refusal("Must be authenticated!", -32600, 401),
}


def retry_after_date(seconds: float) -> Refusal:
    """HTTP 429 whose Retry-After is a date, `seconds` from now."""
    until = formatdate(time.time() + seconds, usegmt=True)
    return Refusal(status=429, reason="Too Many Requests", headers={"Retry-After": until})


@dataclass(frozen=True)
class Limits:
    """The sizes above which a node refuses; a limit that is None does not exist."""

    batch_items: int | None = None
    log_blocks: int | None = None
    log_results: int | None = None
    body_bytes: int | None = None
    batch_wording: str = "erigon"
    range_wording: str = "erigon"
    results_wording: str = "infura"

    def refusal_of_request(self, body: object, size: int) -> Refusal | None:
        if self.body_bytes is not None and size > self.body_bytes:
            return BATCH_TOO_LARGE["nginx"]
        if isinstance(body, list) and len(body) > (self.batch_items or len(body)):
            return BATCH_TOO_LARGE[self.batch_wording]
        return None

    def refusal_of_range(self, where: Mapping[str, Any]) -> Refusal | None:
        """The refusal of a getLogs by the numbers of its first and last block."""
        first, last = (str(where.get(bound)) for bound in ("fromBlock", "toBlock"))
        if self.log_blocks is None or not (first.startswith("0x") and last.startswith("0x")):
            return None
        is_wide = int(last, 16) - int(first, 16) + 1 > self.log_blocks
        return RANGE_TOO_WIDE[self.range_wording] if is_wide else None

    def refusal_of_results(self, count: int) -> Refusal | None:
        if self.log_results is not None and count > self.log_results:
            return TOO_MANY_RESULTS[self.results_wording]
        return None


OF_ERIGON = Limits(batch_items=100, log_blocks=10)
OF_A_FREE_PLAN = Limits(
    batch_items=10,
    log_blocks=5,
    log_results=20,
    body_bytes=10_000,
    batch_wording="nginx",
    range_wording="alchemy",
    results_wording="alchemy",
)
