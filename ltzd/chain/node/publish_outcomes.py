"""Classifies the nodes' error texts of `eth_sendRawTransaction` into a few outcomes.

Only a text that rules out these very bytes permanently is REFUSED_FOR_GOOD: the operator then gives
their nonce to a self-transfer. A text of a full pool or of the access to the node is REFUSED, which
passes, and so is a refusal for the rate (`refusals.py`). A text that no pattern matches is
REFUSED_UNEXPLAINED: such as a provider's policy, which may concern these bytes alone.
"""

import re

from ltzd.chain.node.refusals import RefusalKind
from ltzd.chain.node.rpc import RpcError
from ltzd.rules.nodes.publications import PublishOutcome


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


# Error texts of geth, Erigon, Nethermind, Besu, reth, CometBFT, anvil, hardhat and our tester chain
# (tests/chain/node/test_publish_outcomes.py has the table by client).
_KNOWN = _any_of(
    "(?<!un)known transaction",
    "already known",
    "already imported",
    "alreadyknown",
    "existing tx with same hash",
    "(tx|transaction) (is )?already (exists )?in (the )?(\\w+ )?(mem)?(pool|cache)",
)
_NONCE = _any_of("nonce too low", "nonce is too low", "oldnonce", "invalid nonce.*low")
_FUNDS = _any_of(
    "insufficient (funds|balance)", "enough funds", "insufficientfunds", "upfront cost exceeds"
)
_PRICE = _any_of(
    "underpriced",
    "max fee per gas less than block base fee",
    "fee ?cap",
    "fee ?too ?low",
    "gas price (is )?(too )?low",
    "less than block base fee",
    "is too low for the next block",
    "same nonce in the queue",
    "gas price below (configured )?minimum",
    "could not replace existing tx",
    "replacementnotallowed",
    "insufficient fees?\\b",
)
_GAS_FOR_GOOD = (
    "intrinsic gas too (low|high)",
    "intrinsicgas",
    "intrinsic gas exceeds (the )?gas limit",
    "call gas cost .*exceeds the gas limit",
    "requires at least \\d+ gas",
    "floor data gas",
    "gas floor .*exceeds the gas limit",
    "exceeds (the )?block('s)? gas limit",
    "gaslimitexceeded",
    "gas ?limit (is )?too high",
    "gas ?limit ?cap ?exceeded",
    "gas limit \\(\\d+\\) is greater than the cap",
    "exceeds (the )?transaction gas (limit|cap)",
    "transaction gas limit exceeds maximum",
    "gas ?uint(64)? ?overflow",
)
_FEES_FOR_GOOD = (
    "exceeds the configured cap",
    "transaction fee cap exceeded",
    "priority fee per gas (is )?(higher|greater) than max fee per gas",
    "maxpriorityfeepergas .*is bigger than maxfeepergas",
    "tip higher than fee cap",
    "fee per gas higher than 2\\^256",
    "int256overflow",
)
_FORM_FOR_GOOD = (
    "oversized data",
    "rlptoolong",
    "maxtxsizeexceeded",
    "^rlp: ",
    "typed transaction too short",
    "failed to decode signed transaction",
    "max initcode",
    "initcode (size|too large)",
    "transaction type not supported",
    "type(s)? not supported",
    "notsupportedtxtype",
    "transaction type is not activated",
    "invalid transaction type",
    "nonce has max value",
    "negative value",
    "^invalid(,|$)",
)
_SENDER_FOR_GOOD = (
    "invalid ?sender",
    "failedtoresolvesender",
    "invalid transaction signature",
    "invalidtxsignature",
    "invalid ?(tx)?chain ?id",
    "wrong chain ?id",
    "chain ?id not supported",
    "incompatible eip-155",
    "only replay-protected",
    "senderiscontract",
    "sender (is )?not an eoa",
    "not authorized to send",
    # But not a block list of IP addresses, which may not apply to another machine or later.
    "^(?!.*\\bip\\b).*(black|block|deny)-?list",
    "sanction",
    "prohibited list",
    "\\bfiltered\\b",
)
_PASSING = _any_of(
    "pool is full",
    "nonce (is )?too (high|distant|far)",
    "noncegap",
    "noncetoofar",
    "future (nonce|transaction)",
    "invalid nonce",
    "too distant from",
    "in-flight transaction limit",
    "already reserved",
    "try again",
    "sync",
    "limit exceeded",
    "time(d)? ?out",
    "temporar",
    "unavailable",
    "bad gateway",
    "\\bbackends?\\b",
    "internal (server )?error",
    "header not found",
    "\\bip\\b",
    "(access|api|auth)[ -]?(token|key)",
    "project is not",
)
_FOR_GOOD = _any_of(*_GAS_FOR_GOOD, *_FEES_FOR_GOOD, *_FORM_FOR_GOOD, *_SENDER_FOR_GOOD)


def classify_publish_error(error: RpcError) -> PublishOutcome:
    """The outcome that a node's error object stands for."""
    text = error.message
    if "execution reverted" in text.lower():
        return PublishOutcome.REFUSED_UNEXPLAINED
    for pattern, publication in (
        (_KNOWN, PublishOutcome.ACCEPTED),
        (_NONCE, PublishOutcome.NONCE_TOO_LOW),
        (_FUNDS, PublishOutcome.UNAFFORDABLE),
        # Before _PRICE, which also matches "fee cap": here the node's own cap is meant.
        (_FOR_GOOD, PublishOutcome.REFUSED_FOR_GOOD),
        (_PRICE, PublishOutcome.UNDERPRICED),
        (_PASSING, PublishOutcome.REFUSED),
    ):
        if pattern.search(text):
            return publication
    is_rate = error.refusal is not None and error.refusal.kind is RefusalKind.RATE
    return PublishOutcome.REFUSED if is_rate else PublishOutcome.REFUSED_UNEXPLAINED
