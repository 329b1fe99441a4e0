"""Classifies the nodes' error texts of `eth_sendRawTransaction` into a few outcomes.

Only a text that rules out these very bytes permanently is REFUSED_FOR_GOOD: the operator then gives
their nonce to a self-transfer. A text of a full pool or of the access to the node is REFUSED, which
passes, and so is a refusal for the rate or of the method (`refusals.py`). A text that no pattern
matches is REFUSED_UNEXPLAINED: such as a provider's policy, which may concern these bytes alone.
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
    "existing txn? with same hash",
    "(tx|transaction) (is )?already (exists )?in (the )?(\\w+ )?(mem)?(pool|cache)",
)
_NONCE = _any_of("nonce too low", "nonce is too low", "oldnonce", "invalid nonce.*low")
_FUNDS = _any_of(
    "insufficient (funds|balance)",
    "enough (funds|balance)",
    "insufficientfunds",
    "upfront cost exceeds",
    "would cause overdraft",
)
_PRICE = _any_of(
    "underpriced",
    "max fee per gas less than block base fee",
    "fee ?cap",
    "fee ?too ?low",
    "gas price (is )?(too )?low",
    "less than block base fee",
    "is too low for the next block",
    "same nonce in the (queue|tx pool)",
    "gas price below (configured minimum|minimum|current base fee)",
    "priority fee below minimum",
    "could not replace existing tx",
    "replaced by transaction with higher tip",
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
    "gas limit of rejected tx",
    "greater than the allowed max of",
    "gas ?limit (is )?too high",
    "gas ?limit ?cap ?exceeded",
    "gas limit \\(\\d+\\) is greater than the cap",
    "exceeds (the )?(max(imum)? )?transaction gas (limit|cap)",
    "transaction gas limit exceeds maximum",
    "gas ?uint(64)? ?overflow",
)
_FEES_FOR_GOOD = (
    "exceeds the configured cap",
    "transaction fee cap exceeded",
    "priority fee per gas (is )?(higher than|greater than|exceeds) max fee per gas",
    "maxpriorityfeepergas .*is bigger than maxfeepergas",
    "tip higher than fee cap",
    "fee per gas higher than 2\\^256",
    "int256overflow",
    "transaction cost overflow",
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
    "unsupported transaction type",
    "transaction type is not activated",
    "invalid transaction type",
    "nonce has max value",
    "negative value",
    "^(transaction )?invalid(,|$)",
    "transaction too large",
)
_SENDER_FOR_GOOD = (
    "invalid ?sender",
    "failedtoresolvesender",
    "failed to recover sender",
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
_OF_CONNECTIONS = (
    # A gateway's or a sequencer's, of its connection to the node that would take the bytes.
    "connection (refused|reset|closed)",
    "network is unreachable",
    "no such host",
    "dial tcp",
    "\\beof\\b",
    "\\bbackends?\\b",
    "currently (not )?healthy",
    "no healthy upstream",
    "route your request",
    "not the chosen sequencer",
)
_OF_ACCESS = (
    "\\bip\\b",
    "(access|api|auth)[ -]?(token|key)",
    "project (id )?(is not|settings)",
    "invalid project id",
    "authenticat",
    "unauthori[sz]ed",
    "\\bforbidden\\b(?! sender)",
)
_PASSING = _any_of(
    "(pool|queue)( is)? full",
    "size constraints",
    "nonce (is )?too (high|distant|far)",
    "noncegap",
    "lower nonce exists",
    "same nonce is in progress",
    "delegat(ed|ion|or)",  # Only the next nonce of an account with code is taken (EIP-7702).
    "noncetoofar",
    "future (nonce|transaction)",
    "invalid nonce",
    "too distant from",
    "already reserved",
    "(try again|please retry)",
    "sync",
    "limit exceeded",
    "congestion",
    "time(d)? ?out",
    "deadline exceeded",
    "temporar",
    "unavailable",
    "at this time",
    "cannot fulfill request",
    "shutting down",
    "bad gateway",
    "internal (server )?error",
    "header not found",
    *_OF_CONNECTIONS,
    *_OF_ACCESS,
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
    kind = error.refusal.kind if error.refusal is not None else None
    is_about_access = kind in {RefusalKind.RATE, RefusalKind.UNSUPPORTED}
    return PublishOutcome.REFUSED if is_about_access else PublishOutcome.REFUSED_UNEXPLAINED
