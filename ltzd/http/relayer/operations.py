"""How /relay is described to the OpenAPI document, each of its answers with an example.

Examples of refusals are made by the code that answers them.
"""

from ltzd.actions.relayer.relayer import REFUSED_BY_THE_NETWORK
from ltzd.chain.contracts.abi_words import encode_uint, selector
from ltzd.errors import (
    ClaimLimitReached,
    ContractNotWhitelisted,
    DatabaseUnavailable,
    IdempotencyKeyReused,
    IdentityUnavailable,
    InvalidFields,
    LtzdError,
    MissingFields,
    NodeUnavailable,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    RelayPending,
    TransactionFailed,
    Unauthorized,
    ValidationFailed,
)
from ltzd.http.errors import (
    BodyTooLarge,
    BodyUnreadable,
    answer_of,
    relayer_envelope,
)
from ltzd.http.openapi.operations import (
    WAIT_FOR_WINDOW,
    WAIT_TO_SEND,
    AnswerHeader,
    Examples,
    Operation,
    Parameter,
)
from ltzd.http.relayer.handlers import BODY_LIMIT, PATH
from ltzd.http.relayer.models import RelayCall, RelayedAnswer, RelayRefusal
from ltzd.rules.relayer.calls import Relayed, RelayStatus
from ltzd.rules.relayer.gas_budgets import identity_exhausted, total_exhausted
from ltzd.values import LTZ, Hash32, address_of, checksummed, hex_of

_USER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_OPERATOR = address_of("0xfb6916095ca1df60bb79ce92ce3ea74c37c5d359")
_PERK_NFT = address_of("0xdbf03b407c01e7cd3cbea99509d93f8dddc8c6fb")
_TRANSACTION = Hash32(bytes.fromhex("9f" * 32))
_CLAIM_FOR = "claimFor(address,uint256,uint256,uint256,bytes32)"
_EXPLORER = "https://explorer.example"


def _a_call(**more: object) -> dict[str, object]:
    claim = (int(_USER, 16), 7, 25 * LTZ, 0, 1)
    data = selector(_CLAIM_FOR) + b"".join(map(encode_uint, claim))
    return {"to": checksummed(_PERK_NFT), "data": hex_of(data), "userAddress": _USER} | more


_PERMIT = {
    "owner": _USER,
    "spender": checksummed(_PERK_NFT),
    "value": "25000000000000000000",
    "deadline": 1_795_000_000,
    "v": 27,
    "r": "0x" + "1b" * 32,
    "s": "0x" + "2c" * 32,
}

REQUEST_EXAMPLES: Examples = {
    "a claim": _a_call(),
    "a claim with a permit": _a_call(
        metadata={
            "action": "claim_perk",
            "perkId": "6f1c2a3e-0b1d-4d52-9a55-0c8f4c3f0b1a",
            "idempotencyKey": "claim-7-once",
            "permit": _PERMIT,
        }
    ),
}


def _relayed(status: RelayStatus, reason: str | None = None) -> dict[str, object]:
    is_mined = status is not RelayStatus.PENDING
    relayed = Relayed(
        transaction_hash=_TRANSACTION,
        sender=_OPERATOR,
        to=_PERK_NFT,
        status=status,
        block_number=4_711 if is_mined else None,
        gas_used=183_402 if is_mined else None,
        effective_gas_price=1_200_000_000 if is_mined else None,
        reason=reason,
    )
    return RelayedAnswer.body(relayed, _EXPLORER)


def _refusals(**examples: LtzdError) -> dict[int, dict[str, dict[str, object]]]:
    """By status; underscores in their names are spaces."""
    by_status: dict[int, dict[str, dict[str, object]]] = {}
    for name, error in examples.items():
        answer = answer_of(error)
        of_status = by_status.setdefault(answer.status, {})
        of_status[name.replace("_", " ")] = relayer_envelope(answer)
    return by_status


_ALWAYS = _refusals(
    no_token=Unauthorized("Authorization must be given once, as Bearer and a token"),
    foreign_origin=ValidationFailed("Origin not allowed"),
    too_many_requests=RateLimited(
        "Rate limit exceeded",
        message="An address may ask 100 times a minute; try again in 42 seconds",
        limit=100,
        retryAfterSeconds=42,
    ),
    identity_provider_away=IdentityUnavailable(""),
    internal_error=LtzdError(""),
    database_away=DatabaseUnavailable(""),
)

_OF_POST = _refusals(
    missing_fields=MissingFields(["data", "userAddress"]),
    invalid_fields=InvalidFields(
        ["to: must be an address, 0x and 40 hex digits", "metadata.permit.deadline: is required"]
    ),
    unreadable_body=BodyUnreadable("Content-Type must be application/json"),
    validation_failed=ValidationFailed("userAddress is not a wallet of the token's user"),
    contract_not_whitelisted=ContractNotWhitelisted(
        "Contract not whitelisted", contract=_USER, allowed=[checksummed(_PERK_NFT)]
    ),
    claim_limit_reached=ClaimLimitReached(
        "Claim limit reached: the collection allows no more claims to this user",
        collectionId=7,
        currentClaims=1,
        maxPerUser=1,
    ),
    idempotency_key_reused=IdempotencyKeyReused(
        "This idempotency key came with another request before"
    ),
    body_too_large=BodyTooLarge(
        f"Request body is larger than {BODY_LIMIT} bytes", maxBytes=BODY_LIMIT
    ),
    too_many_relays=RateLimited(
        "Too many transactions: 35 an hour for each user",
        limit=35,
        retryAfterSeconds=1_800,
    ),
    gas_budget_of_user_spent=identity_exhausted(3_600),
    gas_budget_of_all_spent=total_exhausted(3_600),
    reverts=TransactionFailed("Transaction failed", reason="ClaimLimitExceeded"),
    failed_on_chain=TransactionFailed(
        "Transaction failed",
        reason="execution reverted",
        transactionHash=hex_of(_TRANSACTION),
        blockNumber=4_711,
    ),
    node_away=NodeUnavailable(""),
    outcome_not_known=OutcomeUnknown(""),
    no_node_has_taken_it=RelayPending(""),
)

_OF_GET = _refusals(unknown_relay=NotFound("Relay not found"))


def _examples(
    own: dict[int, dict[str, dict[str, object]]], answers: dict[int, Examples]
) -> dict[int, Examples]:
    statuses = sorted({*own, *_ALWAYS, *answers})
    return {
        status: {**answers.get(status, {}), **own.get(status, {}), **_ALWAYS.get(status, {})}
        for status in statuses
    }


_HEADERS = (
    AnswerHeader(
        "X-RateLimit-Limit",
        "How many the window allows: requests of the address a minute, or, once the user is "
        "known, his relays an hour",
        {"type": "integer"},
    ),
    AnswerHeader("X-RateLimit-Remaining", "How many are left", {"type": "integer"}),
    AnswerHeader("X-RateLimit-Reset", "When the window ends, in Unix seconds", {"type": "integer"}),
    AnswerHeader("WWW-Authenticate", "Bearer", {"type": "string"}, frozenset({401})),
)

_NOT_TAKEN = (
    "Database or node unavailable; or signed, and no node has taken it yet (`RELAY_PENDING`): the "
    "same request joins it"
)

OPERATIONS = (
    Operation(
        "POST",
        PATH,
        "Have the operator send a call of the user's, who pays no gas",
        request=RelayCall,
        request_examples=REQUEST_EXAMPLES,
        parameters=(
            Parameter(
                "Idempotency-Key",
                "header",
                {"type": "string", "minLength": 1, "maxLength": 255},
                required=False,
            ),
        ),
        answers={
            200: ("Mined", RelayedAnswer),
            202: (
                "A node has taken it, but it is not mined within a minute; GET tells more",
                RelayedAnswer,
            ),
            400: ("Unreadable body, missing or invalid fields", RelayRefusal),
            401: ("No token, or one that is invalid or expired", RelayRefusal),
            403: (
                "Not a call that this user may have relayed, or everybody's gas budget is spent",
                RelayRefusal,
            ),
            409: ("No more claims for this user, or a key of another body", RelayRefusal),
            413: (f"Body over {BODY_LIMIT:,} bytes", RelayRefusal),
            429: (
                "Too many requests of the address, too many relays or too much gas of the user",
                RelayRefusal,
            ),
            500: ("It reverts or failed on chain, or an internal error", RelayRefusal),
            503: (_NOT_TAKEN, RelayRefusal),
        },
        examples=_examples(
            _OF_POST,
            {
                200: {"confirmed": _relayed(RelayStatus.CONFIRMED)},
                202: {"pending": _relayed(RelayStatus.PENDING)},
            },
        ),
        headers=(*_HEADERS, WAIT_TO_SEND),
        needs_token=True,
    ),
    Operation(
        "GET",
        f"{PATH}/{{transactionHash}}",
        "What became of a relay",
        parameters=(
            Parameter(
                "transactionHash", "path", {"type": "string", "pattern": "^0x[0-9A-Fa-f]{64}$"}
            ),
        ),
        answers={
            200: ("The relay", RelayedAnswer),
            401: ("No token, or one that is invalid or expired", RelayRefusal),
            403: ("A page of a foreign origin asks", RelayRefusal),
            404: ("No relay of this user has or had this hash", RelayRefusal),
            429: ("Too many requests of the address", RelayRefusal),
            500: ("Identity provider unavailable, or an internal error", RelayRefusal),
            503: ("Database unavailable", RelayRefusal),
        },
        examples=_examples(
            _OF_GET,
            {
                200: {
                    "pending": _relayed(RelayStatus.PENDING),
                    "confirmed": _relayed(RelayStatus.CONFIRMED),
                    "final": _relayed(RelayStatus.FINAL),
                    "failed": _relayed(RelayStatus.FAILED, "execution reverted"),
                    "refused by the network": _relayed(RelayStatus.FAILED, REFUSED_BY_THE_NETWORK),
                },
            },
        ),
        headers=(*_HEADERS, WAIT_FOR_WINDOW),
        needs_token=True,
    ),
)
