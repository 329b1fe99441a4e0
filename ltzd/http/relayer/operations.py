"""/relay as the OpenAPI document describes it."""

from ltzd.actions.relayer.outcomes import REFUSED_BY_THE_NETWORK
from ltzd.chain.contracts.abi_words import encode_uint, selector
from ltzd.errors import (
    InvalidFields,
    MissingFields,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    TransactionFailed,
    Unavailable,
    ValidationFailed,
)
from ltzd.http.openapi.operations import (
    IDEMPOTENCY_KEY,
    USER_TOKEN,
    Examples,
    Operation,
    Parameter,
    RateWindow,
    Response,
)
from ltzd.http.relayer.address_limit import too_many_requests
from ltzd.http.relayer.errors import ERRORS
from ltzd.http.relayer.handlers import BODY_LIMIT, PATH, RelayHandlers
from ltzd.http.relayer.models import RelayBody, RelayResponse
from ltzd.http.requests.rate_limits import PER_CLIENT
from ltzd.rules.relayer.calls import RelayProgress, RelayStatus
from ltzd.rules.relayer.gas_budgets import identity_exhausted, total_exhausted
from ltzd.rules.relayer.limits import FAILURES_REASON, KEPT_FAILURES
from ltzd.values import LTZ, Hash32, address_of, checksummed, hex_of

_USER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_OPERATOR = address_of("0xfb6916095ca1df60bb79ce92ce3ea74c37c5d359")
_PERK_NFT = address_of("0xdbf03b407c01e7cd3cbea99509d93f8dddc8c6fb")
_TRANSACTION = Hash32(bytes.fromhex("9f" * 32))
_CLAIM_FOR = "claimFor(address,uint256,uint256,uint256,bytes32)"
_EXPLORER = "https://explorer.example"


def _call_example(**more: object) -> dict[str, object]:
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
    "a claim": _call_example(),
    "a claim with a permit": _call_example(
        metadata={
            "action": "claim_perk",
            "perkId": "6f1c2a3e-0b1d-4d52-9a55-0c8f4c3f0b1a",
            "idempotencyKey": "claim-7-once",
            "permit": _PERMIT,
        }
    ),
}


def _relay_example(status: RelayStatus, reason: str | None = None) -> dict[str, object]:
    is_mined = status is not RelayStatus.PENDING
    relay = RelayProgress(
        id=1,
        user=address_of(_USER),
        data=b"",
        transaction_hash=_TRANSACTION,
        sender=_OPERATOR,
        to=_PERK_NFT,
        status=status,
        block_number=4_711 if is_mined else None,
        gas_used=183_402 if is_mined else None,
        effective_gas_price=1_200_000_000 if is_mined else None,
        reason=reason,
    )
    return RelayResponse.body(relay, _EXPLORER)


_WINDOW = RateWindow(
    "Requests that the window allows: of the address a minute, or, once the user is known, "
    "relays of the user an hour"
)
_TOO_MANY_REQUESTS = too_many_requests(PER_CLIENT.relayer, 42)
_FOREIGN_ORIGIN = ValidationFailed("Origin not allowed")

OPERATIONS = (
    Operation(
        RelayHandlers.relay,
        "POST",
        PATH,
        "Send a call of the user's in a transaction that the operator pays for",
        request=RelayBody,
        request_examples=REQUEST_EXAMPLES,
        parameters=(IDEMPOTENCY_KEY,),
        success={
            200: Response(
                "Mined", RelayResponse, {"confirmed": _relay_example(RelayStatus.CONFIRMED)}
            ),
            202: Response(
                "Accepted by a node, but not mined within a minute: GET has the outcome later",
                RelayResponse,
                {"pending": _relay_example(RelayStatus.PENDING)},
            ),
        },
        errors=ERRORS,
        error_examples={
            "missing fields": MissingFields(["data", "userAddress"]),
            "invalid fields": InvalidFields(
                [
                    "to: must be an address, 0x and 40 hex digits",
                    "metadata.permit.deadline: is required",
                ]
            ),
            "foreign origin": _FOREIGN_ORIGIN,
            "validation failed": ValidationFailed(
                "userAddress is not a wallet of the token's user"
            ),
            "total gas budget spent": total_exhausted(3_600),
            "limit of the address": _TOO_MANY_REQUESTS,
            "too many relays": RateLimited(
                "Too many transactions: 35 an hour for each user",
                limit=35,
                retryAfterSeconds=1_800,
            ),
            "too many failed calls": RateLimited(
                "Too many calls of this user would have failed today",
                limit=KEPT_FAILURES,
                reason=FAILURES_REASON,
                retryAfterSeconds=3_600,
            ),
            "gas budget of the user spent": identity_exhausted(3_600),
            "reverts": TransactionFailed("Transaction failed", reason="SoldOut(id: 1)"),
            "failed on chain": TransactionFailed(
                "Transaction failed",
                reason="execution reverted",
                transactionHash=hex_of(_TRANSACTION),
                blockNumber=4_711,
            ),
            "not sent in time": Unavailable(""),
            "outcome unknown": OutcomeUnknown(""),
        },
        body_limit=BODY_LIMIT,
        rate_window=_WINDOW,
        credential=USER_TOKEN,
    ),
    Operation(
        RelayHandlers.status,
        "GET",
        f"{PATH}/{{transactionHash}}",
        "Read the state of a relay",
        parameters=(
            Parameter(
                "transactionHash", "path", {"type": "string", "pattern": "^0x[0-9A-Fa-f]{64}$"}
            ),
        ),
        success={
            200: Response(
                "The relay",
                RelayResponse,
                {
                    "pending": _relay_example(RelayStatus.PENDING),
                    "confirmed": _relay_example(RelayStatus.CONFIRMED),
                    "final": _relay_example(RelayStatus.FINAL),
                    "failed": _relay_example(RelayStatus.FAILED, "execution reverted"),
                    "refused by the network": _relay_example(
                        RelayStatus.FAILED, REFUSED_BY_THE_NETWORK
                    ),
                },
            ),
        },
        errors=ERRORS,
        error_examples={
            "foreign origin": _FOREIGN_ORIGIN,
            "unknown relay": NotFound("Relay not found"),
            "limit of the address": _TOO_MANY_REQUESTS,
        },
        rate_window=_WINDOW,
        credential=USER_TOKEN,
    ),
)
