"""Perk charges over HTTP: signatures, the order of checks, fields, error bodies and responses."""

import base64
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
import pytest_asyncio
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs
from pydantic import BaseModel
from yarl import URL

from ltzd.actions.perk_charges import IndexedHeight
from ltzd.actions.request_signatures import RequestSignatures
from ltzd.errors import (
    DatabaseUnavailable,
    HolderChanged,
    InvalidFields,
    NodeUnavailable,
    OutcomeUnknown,
    TransactionFailed,
    Unavailable,
)
from ltzd.http.openapi.operations import Operation
from ltzd.http.perk_charges.handlers import BODY_LIMIT
from ltzd.http.perk_charges.models import (
    CheckPerkStatusQuery,
    CheckPerkStatusResponse,
    ListPerkHoldersResponse,
    RedeemPerkResponse,
    TokenQuery,
    cursor_after,
)
from ltzd.http.perk_charges.operations import OPERATIONS
from ltzd.http.relayer.errors import RelayerError
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.relayer.gas_budgets import brand_exhausted
from ltzd.rules.request_signatures import signature
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, open_pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import address_of
from tests.support.services.postgres import Databases
from tests.support.surfaces.http_surface import (
    BRAND_ID,
    CHECKSUMMED_WALLET,
    COLLECTION,
    MINT,
    PERK,
    SECURITY_KEY,
    WALLET,
    RunningSurfaces,
    a_perk,
    a_surface,
)
from tests.support.surfaces.json_response import CodedResponse
from tests.support.surfaces.openapi import assert_headers_described

REDEEM, STATUS, HOLDERS = "/redeem-perk", "/check-perk-status", "/list-perk-holders"
OF_PERK = f"{STATUS}?collectionId={COLLECTION}&tokenId={PERK}"
OF_COLLECTION = f"{HOLDERS}?collectionId={COLLECTION}"
SIGNED = ("X-LTZ-Brand-Id", "X-LTZ-Timestamp", "X-LTZ-Nonce", "X-LTZ-Signature")
NOT_THIS_BRAND = "The request is not signed by this brand"
MOST = 2**256 - 1
TOKEN_RULE = "tokenId: must be a whole number below 2^256, as decimal text or an integer"
COLLECTION_RULE = "collectionId: must be a whole number from 1 to below 2^256"
AMOUNT_RULE = "amount: must be a whole number from 1 to 65535"
KEY_RULE = "idempotencyKey: must be 8 to 64 printable characters"
LIMIT_RULE = "limit: must be a whole number from 1 to 100"
CURSOR_RULE = "cursor: must be the nextCursor of an answer"
ANSWERS: dict[str, type[BaseModel]] = {
    REDEEM: RedeemPerkResponse,
    STATUS: CheckPerkStatusResponse,
    HOLDERS: ListPerkHoldersResponse,
}


@pytest_asyncio.fixture(scope="module")
async def running() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


@pytest.fixture
def surface(running: RunningSurfaces) -> RunningSurfaces:
    running.reset_perks()
    return running


def signed(
    method: str,
    target: str,
    body: bytes = b"",
    *,
    key: str = SECURITY_KEY,
    brand_id: str = BRAND_ID,
    nonce: str | None = None,
    age: float = 0,
) -> dict[str, str]:
    timestamp, nonce = str(int(time.time() - age)), nonce or uuid4().hex
    made = signature(key, timestamp, nonce, method, target.encode(), body)
    return dict(zip(SIGNED, (brand_id, timestamp, nonce, made), strict=True))


async def ask(
    surface: RunningSurfaces, method: str, path: str, raw: bytes | None, headers: Mapping[str, str]
) -> CodedResponse:
    """Send exactly this request. The response must fit its model, whatever its status."""
    sent = {"Content-Type": "application/json"} | dict(headers)
    sent = {name: value for name, value in sent.items() if value}
    async with surface.client.request(
        method,
        URL(surface.url + path, encoded=True),
        data=raw,
        headers=sent,
        skip_auto_headers=() if "Content-Type" in sent else ("Content-Type",),
    ) as reply:
        got = await reply.read()
        answer = CodedResponse(reply.status, json.loads(got) if got else None, reply.headers)
    if method != "HEAD":
        is_told = answer.status in {200, 202}
        (ANSWERS[path.partition("?")[0]] if is_told else RelayerError).model_validate(answer.body)
    return answer


def a_body(**changes: object) -> bytes:
    """A field of `...` is left out."""
    fields = {"collectionId": COLLECTION, "tokenId": str(PERK)} | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


async def redeem(
    surface: RunningSurfaces, raw: bytes | None = None, **changes: Any
) -> CodedResponse:
    raw = a_body(**changes) if raw is None else raw
    return await ask(surface, "POST", REDEEM, raw, signed("POST", REDEEM, raw))


async def get(surface: RunningSurfaces, path: str, **query: object) -> CodedResponse:
    target = f"{path}?{urlencode(query)}" if query else path
    return await ask(surface, "GET", target, None, signed("GET", target))


# --- redeeming ----------------------------------------------------------------------------------


async def test_a_redemption_is_200_with_every_field(surface: RunningSurfaces) -> None:
    answer = await redeem(surface)
    (redemption,) = surface.perks.by_key.values()
    assert answer.status == 200
    assert answer.body == {
        "success": True,
        "redemptionId": str(redemption.id),
        "collectionId": COLLECTION,
        "tokenId": str(PERK),
        "holder": CHECKSUMMED_WALLET,
        "chargesRedeemed": 1,
        "chargesRemaining": 2,
        "maxCharges": 3,
        "transactionHash": "0x" + MINT.hex(),
        "redeemedAt": "2026-03-14T09:30:00.000Z",
    }


async def test_what_is_not_mined_in_time_is_202_with_the_same_keys_and_a_status(
    surface: RunningSurfaces,
) -> None:
    mined = await redeem(surface)
    surface.perks.is_mining = False
    pending = await redeem(surface, idempotencyKey="till-3-4711")
    again = await redeem(surface, idempotencyKey="till-3-4711")
    assert (pending.status, again.status) == (202, 202)
    assert set(pending.body) == set(mined.body) | {"status"}
    assert (pending.body["status"], pending.body["redeemedAt"]) == ("pending", None)
    assert again.body == pending.body | {"alreadyProcessed": True}


async def test_the_same_key_redeems_once_and_says_so_from_the_second_time_on(
    surface: RunningSurfaces,
) -> None:
    user = CHECKSUMMED_WALLET
    first = await redeem(surface, idempotencyKey="till-3-4711", userAddress=user)
    again = await redeem(
        surface,
        idempotencyKey="till-3-4711",
        userAddress=user.lower(),
        tokenId=PERK,
        amount=1,
        reference=None,
    )
    assert "alreadyProcessed" not in first.body
    assert (again.status, again.body) == (200, first.body | {"alreadyProcessed": True})
    assert surface.perks.tokens[PERK].used == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"amount": 2},
        {"reference": "other"},
        {"userAddress": CHECKSUMMED_WALLET},
        {"tokenId": PERK + 1},
        {"collectionId": 9},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_the_same_key_with_other_content_is_refused(
    surface: RunningSurfaces, changes: dict[str, Any]
) -> None:
    await redeem(surface, idempotencyKey="till-3-4711")
    answer = await redeem(surface, **({"idempotencyKey": "till-3-4711"} | changes))
    assert answer.code == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_every_field_reaches_the_action(surface: RunningSurfaces) -> None:
    raw = a_body(
        amount=2,
        userAddress=CHECKSUMMED_WALLET,
        reference="receipt 4711",
        idempotencyKey="till-3-4711",
        somethingElse=True,
    )
    sent = signed("POST", REDEEM, raw)
    assert (await ask(surface, "POST", REDEEM, raw, sent)).status == 200
    (request,) = surface.perks.requests
    assert request.brand == address_of(BRAND_ID)
    assert request.nonce == sent["X-LTZ-Nonce"]
    assert (request.collection_id, request.token_id, request.amount) == (COLLECTION, PERK, 2)
    assert (request.user, request.reference) == (WALLET, "receipt 4711")
    assert request.idempotency_key == "till-3-4711"


async def test_null_in_an_optional_field_is_absence(surface: RunningSurfaces) -> None:
    answer = await redeem(
        surface, amount=None, userAddress=None, reference=None, idempotencyKey=None
    )
    assert (answer.status, answer.body["chargesRedeemed"]) == (200, 1)
    (request,) = surface.perks.requests
    assert (request.user, request.reference, request.idempotency_key) == (None, None, None)


@pytest.mark.parametrize("token_id", [str(PERK), PERK, f"000{PERK}"])
async def test_a_token_id_may_be_text_or_an_integer(
    surface: RunningSurfaces, token_id: object
) -> None:
    answer = await redeem(surface, tokenId=token_id)
    assert (answer.status, answer.body["tokenId"]) == (200, str(PERK))


@pytest.mark.parametrize("changes", [{"tokenId": str(MOST)}, {"tokenId": MOST}, {"tokenId": 0}])
async def test_ids_as_large_as_the_chains_are_looked_for(
    surface: RunningSurfaces, changes: dict[str, Any]
) -> None:
    assert (await redeem(surface, **changes)).code == (404, "TOKEN_NOT_FOUND")
    assert (await redeem(surface, collectionId=MOST)).code == (404, "COLLECTION_NOT_FOUND")
    assert (await get(surface, STATUS, collectionId=COLLECTION, **changes)).code == (
        404,
        "TOKEN_NOT_FOUND",
    )


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        *(
            ({"tokenId": value}, TOKEN_RULE)
            for value in (
                MOST + 1,
                str(MOST + 1),
                -1,
                "-1",
                "0x10",
                "",
                " 1",
                "\u0661",
                1.5,
                float(2**53),
                True,
                [1],
            )
        ),
        *(({"collectionId": value}, COLLECTION_RULE) for value in (0, -1, MOST + 1)),
        *(
            ({"collectionId": value}, "collectionId: must be an integer")
            for value in ("7", 7.5, float(2**53), True, [7])
        ),
        *(({"amount": value}, AMOUNT_RULE) for value in (0, -1, 65_536)),
        *(({"amount": value}, "amount: must be an integer") for value in ("1", 1.5, True)),
        ({"userAddress": "0x12"}, "userAddress: must be an address, 0x and 40 hex digits"),
        ({"userAddress": 5}, "userAddress: must be a string"),
        (
            {"userAddress": CHECKSUMMED_WALLET[:-1] + "D"},
            "userAddress: must have the right checksum (EIP-55), or letters of one case",
        ),
        ({"reference": "x" * 129}, "reference: must be at most 128 characters"),
        ({"reference": 4711}, "reference: must be a string"),
        *(
            ({"idempotencyKey": value}, KEY_RULE)
            for value in ("", "7 chars", "x" * 65, "é\u2028" * 5)
        ),
        ({"idempotencyKey": 12345678}, "idempotencyKey: must be a string"),
    ],
    ids=str,
)
async def test_a_bad_field_is_named_with_its_rule(
    surface: RunningSurfaces, changes: dict[str, Any], fault: str
) -> None:
    assert (await redeem(surface, **changes)).faults == [fault]
    assert surface.perks.requests == []


@pytest.mark.parametrize(
    "changes",
    [
        {"amount": 1},
        {"amount": 1.0, "collectionId": float(COLLECTION), "tokenId": float(PERK)},
        {"reference": "x" * 128},
        {"reference": ""},
        {"idempotencyKey": "x" * 8},
        {"idempotencyKey": "Ü" * 64},
    ],
    ids=str,
)
async def test_a_field_at_its_bound_is_good(
    surface: RunningSurfaces, changes: dict[str, Any]
) -> None:
    assert (await redeem(surface, **changes)).status == 200


async def test_every_fault_is_told_at_once_and_none_with_its_value(
    surface: RunningSurfaces,
) -> None:
    answer = await redeem(
        surface, tokenId="secret", collectionId=0, amount=70_000, idempotencyKey="secret"
    )
    assert answer.faults == [COLLECTION_RULE, TOKEN_RULE, AMOUNT_RULE, KEY_RULE]
    assert "secret" not in str(answer.body)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"collectionId": ..., "tokenId": ...}, ["collectionId", "tokenId"]),
        ({"tokenId": None, "amount": "wrong"}, ["tokenId"]),
        ({"collectionId": ...}, ["collectionId"]),
    ],
    ids=str,
)
async def test_missing_fields_are_told_all_and_before_wrong_ones(
    surface: RunningSurfaces, changes: dict[str, Any], missing: list[str]
) -> None:
    answer = await redeem(surface, **changes)
    assert answer.code == (400, "MISSING_FIELDS")
    assert answer.body["error"] == f"Missing required fields: {', '.join(missing)}"
    assert answer.body["details"] == {"missing": missing}


# --- refusals of the action ---------------------------------------------------------------------


async def test_a_token_without_enough_charges_is_409_with_what_is_left(
    surface: RunningSurfaces,
) -> None:
    assert (await redeem(surface, amount=2)).body["chargesRemaining"] == 1
    answer = await redeem(surface, amount=2)
    assert answer.code == (409, "NO_CHARGES_REMAINING")
    assert answer.body["details"] == {
        "tokenId": str(PERK),
        "chargesRemaining": 1,
        "requested": 2,
    }
    assert (await redeem(surface, amount=65_535)).code == (409, "NO_CHARGES_REMAINING")


async def test_a_user_who_no_longer_holds_it_is_409_with_who_does(surface: RunningSurfaces) -> None:
    answer = await redeem(surface, userAddress=BRAND_ID)
    assert answer.code == (409, "HOLDER_CHANGED")
    assert answer.body["details"] == {"tokenId": str(PERK), "holder": CHECKSUMMED_WALLET}


@pytest.mark.parametrize(
    ("collection", "token", "code"),
    [
        (COLLECTION, PERK + 9, (404, "TOKEN_NOT_FOUND")),
        (9, PERK, (404, "COLLECTION_NOT_FOUND")),
        (8, PERK, (403, "VALIDATION_FAILED")),
    ],
)
async def test_what_is_not_there_is_404_and_what_is_anothers_403(
    surface: RunningSurfaces, collection: int, token: int, code: tuple[int, str]
) -> None:
    assert (await redeem(surface, collectionId=collection, tokenId=token)).code == code
    assert (await get(surface, STATUS, collectionId=collection, tokenId=token)).code == code
    listed = await get(surface, HOLDERS, collectionId=collection)
    assert listed.status == (200 if collection == COLLECTION else code[0])


@pytest.mark.parametrize(
    ("refusal", "status", "body"),
    [
        (
            HolderChanged("The token has changed hands", reason="HolderChanged(1)"),
            409,
            {
                "error": "The token has changed hands",
                "code": "HOLDER_CHANGED",
                "details": {"reason": "HolderChanged(1)"},
            },
        ),
        (
            TransactionFailed("Transaction failed: Paused", reason="Paused"),
            500,
            {
                "error": "Transaction failed: Paused",
                "code": "TRANSACTION_FAILED",
                "details": {"reason": "Paused"},
            },
        ),
        (
            NodeUnavailable("http://node.internal"),
            503,
            {"error": "Blockchain node unavailable", "code": "NODE_UNAVAILABLE"},
        ),
        (
            DatabaseUnavailable("at db.internal"),
            503,
            {"error": "Database unavailable", "code": "DATABASE_UNAVAILABLE"},
        ),
        (
            Unavailable("No relay wallet could send the redemption in time"),
            503,
            {"error": "Service unavailable", "code": "UNAVAILABLE"},
        ),
        (
            OutcomeUnknown("The call may be stored"),
            503,
            {
                "error": "The transaction may have been sent, or may still be sent; repeat the "
                "request with the same idempotency key",
                "code": "OUTCOME_UNKNOWN",
            },
        ),
        (
            ValueError("unforeseen"),
            500,
            {"error": "Internal server error", "code": "INTERNAL_ERROR"},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_each_refusal_of_the_action_has_its_status_code_and_body(
    surface: RunningSurfaces, refusal: Exception, status: int, body: object
) -> None:
    surface.perks.refusal = refusal
    for answer in (
        await redeem(surface),
        await get(surface, OF_PERK),
        await get(surface, OF_COLLECTION),
    ):
        assert (answer.status, answer.body) == (status, body)


async def test_a_spent_gas_budget_of_the_brand_tells_when_to_come_back(
    surface: RunningSurfaces,
) -> None:
    surface.perks.refusal = brand_exhausted(3_600)
    answer = await redeem(surface)
    assert answer.code == (429, "BUDGET_EXHAUSTED")
    assert answer.body["details"] == {
        "reason": "brand_gas_budget_exhausted",
        "retryAfterSeconds": 3_600,
    }
    assert answer.headers["Retry-After"] == "3600"


# --- looking at a token -------------------------------------------------------------------------


async def test_the_status_of_a_token_has_every_field(surface: RunningSurfaces) -> None:
    answer = await get(surface, OF_PERK)
    assert (answer.status, answer.body) == (
        200,
        {
            "success": True,
            "collectionId": COLLECTION,
            "tokenId": str(PERK),
            "holder": CHECKSUMMED_WALLET,
            "maxCharges": 3,
            "chargesUsed": 0,
            "chargesRemaining": 3,
            "status": "active",
            "lastRedeemedAt": None,
            "asOfBlock": 1_000,
            "finality": "safe",
        },
    )


async def test_a_token_whose_charges_are_used_up_is_exhausted(surface: RunningSurfaces) -> None:
    used = datetime(2026, 3, 14, 9, 30, 0, 5_000, UTC)
    surface.perks.tokens[PERK] = a_perk(used=3, last_redeemed_at=used)
    body = (await get(surface, OF_PERK)).body
    assert (body["status"], body["chargesUsed"], body["chargesRemaining"]) == ("exhausted", 3, 0)
    assert body["lastRedeemedAt"] == "2026-03-14T09:30:00.005Z"


@pytest.mark.parametrize(
    ("block", "finality"),
    [(1_000, "seen"), (969, "seen"), (968, "safe"), (901, "safe"), (900, "final"), (1, "final")],
)
async def test_finality_is_that_of_the_newest_fact(
    surface: RunningSurfaces, block: int, finality: str
) -> None:
    surface.perks.tokens[PERK] = a_perk(block_number=block)
    assert (await get(surface, OF_PERK)).body["finality"] == finality


async def test_what_is_final_need_not_be_deep(surface: RunningSurfaces) -> None:
    surface.perks.as_of = IndexedHeight(1_000, 999)
    surface.perks.tokens[PERK] = a_perk(block_number=999)
    assert (await get(surface, OF_PERK)).body["finality"] == "final"


async def test_head_is_answered_without_a_body(surface: RunningSurfaces) -> None:
    answer = await ask(surface, "HEAD", OF_PERK, None, signed("HEAD", OF_PERK))
    assert (answer.status, answer.body) == (200, None)


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("", ["collectionId", "tokenId"]),
        ("?collectionId=&tokenId=", ["collectionId", "tokenId"]),
        ("?collectionId=x", ["tokenId"]),
        ("?collectionid=7&tokenId=1", ["collectionId"]),
    ],
)
async def test_a_query_must_say_what_is_asked(
    surface: RunningSurfaces, query: str, missing: list[str]
) -> None:
    answer = await get(surface, STATUS + query)
    assert answer.code == (400, "MISSING_FIELDS")
    assert answer.body["details"] == {"missing": missing}


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        *(
            (f"collectionId={value}&tokenId=1", f"{COLLECTION_RULE}, in decimal digits")
            for value in ("0", "-1", "0x7", "7.0", "+7", "%D9%A7", str(MOST + 1), "9" * 200)
        ),
        *(
            (f"collectionId=7&tokenId={value}", TOKEN_RULE)
            for value in ("-1", "0x7", "1.0", "x", str(MOST + 1), "%ff", "9" * 5_000)
        ),
        ("collectionId=7&collectionId=8&tokenId=1", "collectionId: must be given once"),
        ("collectionId=7&tokenId=1&tokenId=1", "tokenId: must be given once"),
        ("collectionId=7&tokenId=1&tokenId=", "tokenId: must be given once"),
    ],
)
async def test_a_bad_query_is_named_with_its_rule(
    surface: RunningSurfaces, query: str, fault: str
) -> None:
    assert (await get(surface, f"{STATUS}?{query}")).faults == [fault]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (OF_PERK, 200),
        (OF_COLLECTION, 200),
        (f"{STATUS}?collectionId={COLLECTION}&tokenId={PERK + 9}", 404),
        (f"{HOLDERS}?collectionId={COLLECTION}&limit=x", 400),
    ],
)
async def test_no_cache_may_give_a_signed_answer_to_others(
    surface: RunningSurfaces, path: str, status: int
) -> None:
    answer = await get(surface, path)
    assert (answer.status, answer.headers["Cache-Control"]) == (status, "no-store")


# --- listing holders ----------------------------------------------------------------------------


async def test_a_page_of_holders_has_every_field(surface: RunningSurfaces) -> None:
    used = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
    surface.perks.tokens[PERK + 1] = a_perk(2, used=1, last_redeemed_at=used)
    answer = await get(surface, OF_COLLECTION)
    common = {"walletAddress": CHECKSUMMED_WALLET, "maxCharges": 3}
    claimed = {"claimedAt": "2026-03-01T09:30:00.000Z"}
    fresh = {"tokenId": str(PERK), "chargesUsed": 0, "chargesRemaining": 3}
    begun = {"tokenId": str(PERK + 1), "chargesUsed": 1, "chargesRemaining": 2}
    assert (answer.status, answer.body) == (
        200,
        {
            "success": True,
            "collectionId": COLLECTION,
            "holders": [
                common | fresh | claimed | {"lastRedeemedAt": None},
                common | begun | claimed | {"lastRedeemedAt": "2026-03-14T09:30:00.000Z"},
            ],
            "count": 2,
            "total": 2,
            "nextCursor": None,
        },
    )


async def test_a_collection_that_nobody_claimed_from_is_an_empty_page(
    surface: RunningSurfaces,
) -> None:
    surface.perks.tokens.clear()
    body = (await get(surface, OF_COLLECTION)).body
    assert (body["holders"], body["count"], body["total"], body["nextCursor"]) == ([], 0, 0, None)


@pytest.mark.parametrize(
    ("limit", "sizes"), [(None, [50, 50, 50]), (100, [100, 50]), (75, [75, 75])]
)
async def test_cursors_lead_through_all_tokens_once(
    surface: RunningSurfaces, limit: int | None, sizes: list[int]
) -> None:
    surface.perks.tokens = {a_perk(n).id: a_perk(n) for n in range(1, 151)}
    query: dict[str, object] = {"collectionId": COLLECTION}
    query |= {} if limit is None else {"limit": limit}
    seen, counts = [], []
    while True:
        body = (await get(surface, HOLDERS, **query)).body
        seen += [holder["tokenId"] for holder in body["holders"]]
        counts.append(body["count"])
        assert body["total"] == 150
        if body["nextCursor"] is None:
            break
        query["cursor"] = body["nextCursor"]
    assert counts == sizes
    assert seen == [str(token_id) for token_id in sorted(surface.perks.tokens)]


async def test_the_largest_id_has_a_cursor(surface: RunningSurfaces) -> None:
    largest = 2**256 - 1
    collection = largest >> 32
    surface.perks.owners[collection] = address_of(BRAND_ID)
    surface.perks.tokens = {
        token.id: token
        for token in (
            structs.replace(a_perk(), id=largest - 1, collection_id=collection),
            structs.replace(a_perk(), id=largest, collection_id=collection),
        )
    }
    first = await get(surface, HOLDERS, collectionId=collection, limit=1)
    cursor = first.body["nextCursor"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{44}", cursor)
    last = await get(surface, HOLDERS, collectionId=collection, limit=1, cursor=cursor)
    assert [holder["tokenId"] for holder in last.body["holders"]] == [str(largest)]
    assert last.body["nextCursor"] is None


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "0",
        str(PERK),
        cursor_after(PERK) + "=",
        cursor_after(PERK) + "A",
        cursor_after(PERK)[:-3],
        "AQd",
        "A" * 45,
        base64.urlsafe_b64encode(b"\x02" + PERK.to_bytes(5, "big")).decode().rstrip("="),
        base64.urlsafe_b64encode(b"\x01" + PERK.to_bytes(9, "big")).decode().rstrip("="),
        "AQ",
        "%00",
        "%ff",
    ],
)
async def test_a_cursor_that_is_none_of_ours_is_refused(
    surface: RunningSurfaces, cursor: str
) -> None:
    assert (await get(surface, f"{OF_COLLECTION}&cursor={cursor}")).faults == [CURSOR_RULE]


async def test_a_cursor_of_another_collection_is_refused(surface: RunningSurfaces) -> None:
    answer = await get(surface, HOLDERS, collectionId=8, cursor=cursor_after(PERK))
    assert answer.faults == ["cursor: must be the nextCursor of this collection's list"]


@pytest.mark.parametrize("limit", ["0", "101", "-1", "1.0", "all", "9" * 100])
async def test_a_limit_out_of_its_bounds_is_refused(surface: RunningSurfaces, limit: str) -> None:
    assert (await get(surface, f"{OF_COLLECTION}&limit={limit}")).faults == [LIMIT_RULE]


async def test_all_faults_of_a_query_are_told_at_once(surface: RunningSurfaces) -> None:
    answer = await get(surface, f"{HOLDERS}?collectionId=0&limit=0&cursor=x")
    assert answer.faults == [f"{COLLECTION_RULE}, in decimal digits", LIMIT_RULE, CURSOR_RULE]
    answer = await get(surface, f"{OF_COLLECTION}&limit=1&limit=2&cursor=x&cursor=&z=1&z=2")
    assert answer.faults == ["limit: must be given once", "cursor: must be given once"]


# --- the order of checks ------------------------------------------------------------------------


async def test_size_comes_before_the_signature_and_that_before_everything_else(
    surface: RunningSurfaces,
) -> None:
    huge = b"x" * (BODY_LIMIT + 1)
    unsigned = dict.fromkeys(SIGNED, "")
    answer = await ask(surface, "POST", REDEEM, huge, unsigned)
    assert answer.code == (413, "PAYLOAD_TOO_LARGE")
    assert answer.body["details"] == {"maxBytes": BODY_LIMIT}
    assert surface.perks.calls == []

    for raw in (b"{", b"", b"[]", a_body(tokenId=...), a_body(tokenId="x"), a_body()):
        answer = await ask(surface, "POST", REDEEM, raw, unsigned)
        assert answer.code == (401, "UNAUTHORIZED")
    answer = await ask(surface, "POST", REDEEM, a_body(), unsigned | {"Content-Type": ""})
    assert answer.code == (401, "UNAUTHORIZED")
    assert set(surface.perks.calls) == {"brand_of"}


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        (b"{", {}),
        (b"", {}),
        (b"[]", {}),
        (b"\xff", {}),
        (b'{"tokenId": ' + b"1" * 5_000 + b"}", {}),
        (b"[" * 60_000, {}),
        (a_body(), {"Content-Type": "text/plain"}),
        (a_body(), {"Content-Type": ""}),
        (a_body(), {"Content-Encoding": "gzip"}),
    ],
    ids=["cut", "empty", "list", "no UTF-8", "digits", "deep", "text", "untyped", "compressed"],
)
async def test_a_signed_body_that_is_no_json_is_400(
    surface: RunningSurfaces, raw: bytes, headers: dict[str, str]
) -> None:
    answer = await ask(surface, "POST", REDEEM, raw, signed("POST", REDEEM, raw) | headers)
    assert answer.code == (400, "INVALID_BODY")
    assert surface.perks.calls == ["brand_of", "spend"]


async def test_the_largest_body_is_read(surface: RunningSurfaces) -> None:
    raw = a_body()
    assert (await redeem(surface, raw + b" " * (BODY_LIMIT - len(raw)))).status == 200


@pytest.mark.parametrize("raw", [b"{", a_body(tokenId="x"), a_body(tokenId=...)])
async def test_a_redemption_uses_its_nonce_before_its_body_is_looked_at(
    surface: RunningSurfaces, raw: bytes
) -> None:
    nonce = uuid4().hex
    answer = await ask(surface, "POST", REDEEM, raw, signed("POST", REDEEM, raw, nonce=nonce))
    assert answer.status == 400
    raw = a_body()
    answer = await ask(surface, "POST", REDEEM, raw, signed("POST", REDEEM, raw, nonce=nonce))
    assert answer.code == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("is_read_first", [True, False])
async def test_a_nonce_works_once_for_a_read_and_a_redemption_together(
    surface: RunningSurfaces, is_read_first: bool
) -> None:
    nonce, raw = uuid4().hex, a_body()
    read = ("GET", OF_PERK, None, signed("GET", OF_PERK, nonce=nonce))
    redemption = ("POST", REDEEM, raw, signed("POST", REDEEM, raw, nonce=nonce))
    first, second = (read, redemption) if is_read_first else (redemption, read)
    assert (await ask(surface, *first)).status == 200
    assert (await ask(surface, *second)).body["error"] == "X-LTZ-Nonce was used before"


async def test_a_reading_request_uses_its_nonce_before_its_fields_are_looked_at(
    surface: RunningSurfaces,
) -> None:
    for path in (STATUS, HOLDERS):
        sent = signed("GET", path)
        assert (await ask(surface, "GET", path, None, sent)).code == (400, "MISSING_FIELDS")
        answer = await ask(surface, "GET", path, None, sent)
        assert answer.code == (401, "UNAUTHORIZED")
        assert answer.body["error"] == "X-LTZ-Nonce was used before"
    assert surface.perks.calls == ["brand_of", "spend"] * 4


async def test_signed_requests_know_no_limit_of_their_address(surface: RunningSurfaces) -> None:
    for _ in range(130):
        answer = await get(surface, OF_PERK)
    assert answer.status == 200
    assert not {"X-RateLimit-Limit", "Retry-After"} & set(answer.headers)


def window_of(answer: CodedResponse) -> tuple[int, int]:
    assert int(answer.headers["X-RateLimit-Reset"]) >= time.time() - 1
    return int(answer.headers["X-RateLimit-Limit"]), int(answer.headers["X-RateLimit-Remaining"])


async def test_requests_that_are_not_signed_rightly_count_in_the_relayers_limit(
    surface: RunningSurfaces,
) -> None:
    nonce = uuid4().hex
    replayed = signed("GET", OF_PERK, nonce=nonce)
    assert (await ask(surface, "GET", OF_PERK, None, replayed)).status == 200
    wrong: list[dict[str, str]] = [
        {},
        {"X-LTZ-Nonce": "x"},
        signed("GET", OF_PERK, key="ltzsk_" + "0" * 40),
        signed("GET", OF_PERK, brand_id="0x" + "ee" * 20),
        signed("GET", OF_PERK, age=301),
        replayed,
    ]
    for left, headers in enumerate(wrong, start=1):
        answer = await ask(surface, "GET", OF_PERK, None, headers)
        assert (answer.code, window_of(answer)) == ((401, "UNAUTHORIZED"), (100, 100 - left))
    for path in (REDEEM, HOLDERS):
        method = "POST" if path == REDEEM else "GET"
        left += 1
        answer = await ask(surface, method, path, None, {})
        assert (answer.status, window_of(answer)) == (401, (100, 100 - left))
    async with surface.client.get(surface.url + "/relay/x") as relay:
        assert relay.headers["X-RateLimit-Remaining"] == str(99 - left)


async def test_past_the_limit_only_requests_that_are_signed_rightly_are_heard(
    surface: RunningSurfaces,
) -> None:
    bad_key = "ltzsk_" + "0" * 40
    for _ in range(100):
        assert (await ask(surface, "GET", OF_PERK, None, {})).status == 401
    calls = len(surface.perks.calls)
    for method, path, raw in REQUESTS:
        answer = await ask(surface, method, path, raw or None, {})
        seconds = int(answer.headers["Retry-After"])
        assert answer.code == (429, "RATE_LIMIT_EXCEEDED")
        assert answer.body["details"]["message"] == (
            f"An address may ask 100 times a minute; try again in {seconds} seconds"
        )
        assert window_of(answer) == (100, 0)
    assert len(surface.perks.calls) == calls, "who is not signed at all is not looked at"
    for method, path, raw in REQUESTS:
        sent = signed(method, path, raw, key=bad_key)
        assert (await ask(surface, method, path, raw or None, sent)).status == 429
    async with surface.client.get(surface.url + "/relay/x") as relay:
        assert relay.status == 429

    answer = await get(surface, OF_PERK)
    assert (answer.status, "X-RateLimit-Limit" in answer.headers) == (200, False)
    assert (await redeem(surface)).status == 200


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: str(operation.path))
async def test_a_body_that_is_too_large_to_verify_counts_whatever_its_headers_say(
    surface: RunningSurfaces, operation: Operation
) -> None:
    method, path = operation.method, operation.path
    huge, junk = b"x" * (BODY_LIMIT + 1), {"X-LTZ-Brand-Id": "x"}
    for left in (99, 98):
        answer = await ask(surface, method, path, huge, junk)
        assert (answer.status, window_of(answer)) == (413, (100, left))
        assert_headers_described(operation, 413, answer.headers)
    for _ in range(98):
        await ask(surface, "GET", OF_PERK, None, {})
    answer = await ask(surface, method, path, huge, junk)
    assert (answer.code, window_of(answer)) == ((429, "RATE_LIMIT_EXCEEDED"), (100, 0))


async def test_a_signed_read_asks_nobody_about_its_address(
    surface: RunningSurfaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hit(*_: object) -> None:
        raise AssertionError("a limit was counted")

    monkeypatch.setattr(surface.limits, "hit", hit)
    assert (await get(surface, OF_PERK)).status == 200
    assert (await redeem(surface)).status == 200


@pytest.mark.parametrize("path", [REDEEM, STATUS, HOLDERS])
async def test_other_methods_are_405_in_the_relayers_envelope(
    surface: RunningSurfaces, path: str
) -> None:
    answer = await ask(surface, "PUT", path, b"{}", {})
    assert answer.code == (405, "METHOD_NOT_ALLOWED")


# --- signatures, judged for real ----------------------------------------------------------------


@dataclass
class SigningBrands:
    """Two brands of a database, and the action that verifies their signatures."""

    pool: Pool
    sealer: Sealer
    brands: BrandCache
    keys: dict[str, str]

    async def rotate(self, brand_id: str, *, revoke: bool = False) -> str:
        async with transaction(self.pool) as connection:
            rotation = await brand_keys.rotate(
                connection, address_of(brand_id), "security_key", self.sealer, revoke=revoke
            )
        await self.refresh()
        return rotation.key

    async def refresh(self) -> None:
        async with session(self.pool) as connection:
            await self.brands.refresh(connection)


OTHER_ID = "0x" + "cd" * 20


@pytest_asyncio.fixture(scope="module")
async def judges(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SigningBrands]:
    folder: Path = tmp_path_factory.mktemp("judges")
    sealer = Sealer.from_file(folder / "master.key", create=True)
    async with databases.fresh() as url:
        pool = await open_pool(url)
        signing_brands = SigningBrands(pool, sealer, BrandCache(), {})
        for number, brand_id in enumerate((BRAND_ID, OTHER_ID)):
            brand = Brand(id=brand_id, name=f"B{number}", domains=(f"b{number}.example",))
            async with transaction(pool) as connection:
                keys = (await brands.apply(connection, brand, sealer)).keys
            assert keys is not None
            signing_brands.keys[brand_id] = keys.security_key
        await signing_brands.refresh()
        yield signing_brands
        pool.terminate()


@pytest.fixture
def judged(surface: RunningSurfaces, judges: SigningBrands) -> RunningSurfaces:
    signatures = RequestSignatures(judges.pool, judges.sealer, judges.brands)
    surface.perks.check = signatures.check
    return surface


async def send(
    surface: RunningSurfaces, method: str, target: str, raw: bytes, headers: Mapping[str, str]
) -> CodedResponse:
    return await ask(surface, method, target, raw or None, headers)


def refused(answer: CodedResponse) -> str:
    assert answer.code == (401, "UNAUTHORIZED"), answer.body
    assert answer.headers["WWW-Authenticate"] == "LTZ-HMAC"
    assert set(answer.body) == {"error", "code"}
    return str(answer.body["error"])


REQUESTS = [("POST", REDEEM, a_body()), ("GET", OF_PERK, b""), ("GET", OF_COLLECTION, b"")]
of_each = pytest.mark.parametrize(
    ("method", "target", "raw"), REQUESTS, ids=["redeem", "check", "list"]
)


@of_each
async def test_who_signs_rightly_is_heard_once(
    judged: RunningSurfaces, judges: SigningBrands, method: str, target: str, raw: bytes
) -> None:
    sent = signed(method, target, raw, key=judges.keys[BRAND_ID])
    assert (await send(judged, method, target, raw, sent)).status == 200
    assert refused(await send(judged, method, target, raw, sent)) == "X-LTZ-Nonce was used before"
    assert judged.perks.tokens[PERK].used == (1 if method == "POST" else 0)


@of_each
async def test_a_missing_empty_or_malformed_header_is_401_and_named(
    judged: RunningSurfaces, judges: SigningBrands, method: str, target: str, raw: bytes
) -> None:
    good = signed(method, target, raw, key=judges.keys[BRAND_ID])
    reasons = {
        "X-LTZ-Brand-Id": "X-LTZ-Brand-Id must be the brand's address",
        "X-LTZ-Timestamp": "X-LTZ-Timestamp must be Unix seconds",
        "X-LTZ-Nonce": "X-LTZ-Nonce must be 16 to 64 letters, digits, _ and -",
        "X-LTZ-Signature": "X-LTZ-Signature must be v1= and 64 hex digits",
    }
    for name in SIGNED:
        for value in ("", "not this"):
            answer = await send(judged, method, target, raw, good | {name: value})
            assert refused(answer) == reasons[name]
    none = await send(judged, method, target, raw, dict.fromkeys(SIGNED, ""))
    assert refused(none) == "The request is not signed: X-LTZ headers are missing"
    assert judged.perks.requests == []


MALFORMED = [
    ("X-LTZ-Brand-Id", BRAND_ID[2:]),
    ("X-LTZ-Brand-Id", BRAND_ID + "00"),
    ("X-LTZ-Brand-Id", "0xab " + "ab" * 19),
    ("X-LTZ-Timestamp", "1.5e9"),
    ("X-LTZ-Timestamp", "-1"),
    ("X-LTZ-Timestamp", "9" * 13),
    ("X-LTZ-Nonce", "x" * 15),
    ("X-LTZ-Nonce", "x" * 65),
    ("X-LTZ-Nonce", "x" * 16 + "."),
    ("X-LTZ-Signature", "v1=" + "A" * 64),
    ("X-LTZ-Signature", "v1=" + "a" * 63),
    ("X-LTZ-Signature", "v2=" + "a" * 64),
    ("X-LTZ-Signature", ",".join(["v1=" + "a" * 64] * 5)),
]


@pytest.mark.parametrize(("name", "value"), MALFORMED)
async def test_a_header_of_another_form_is_refused(
    judged: RunningSurfaces, judges: SigningBrands, name: str, value: str
) -> None:
    good = signed("GET", OF_PERK, key=judges.keys[BRAND_ID])
    refused(await send(judged, "GET", OF_PERK, b"", good | {name: value}))
    assert not {"spend", "token"} & set(judged.perks.calls)


@pytest.mark.parametrize("name", SIGNED[:3])
async def test_a_header_that_is_there_twice_is_refused(
    judged: RunningSurfaces, judges: SigningBrands, name: str
) -> None:
    good = signed("GET", OF_PERK, key=judges.keys[BRAND_ID])
    doubled = [*good.items(), (name, good[name])]
    async with judged.client.get(judged.url + OF_PERK, headers=doubled) as answer:
        assert answer.status == 401
    assert (await send(judged, "GET", OF_PERK, b"", good)).status == 200


@of_each
@pytest.mark.parametrize(
    ("age", "is_good"), [(298, True), (-298, True), (302, False), (-302, False)]
)
async def test_a_timestamp_counts_for_five_minutes_either_way(
    judged: RunningSurfaces,
    judges: SigningBrands,
    method: str,
    target: str,
    raw: bytes,
    age: float,
    is_good: bool,
) -> None:
    sent = signed(method, target, raw, key=judges.keys[BRAND_ID], age=age)
    answer = await send(judged, method, target, raw, sent)
    if is_good:
        assert answer.status == 200
    else:
        assert refused(answer) == "X-LTZ-Timestamp is more than 300 seconds off"


TAMPERED = [
    ("HEAD", OF_PERK, b""),
    ("GET", f"{STATUS}?tokenId={PERK}&collectionId={COLLECTION}", b""),
    ("GET", OF_PERK + "&x=1", b""),
    ("GET", OF_PERK[:-1] + "2", b""),
    ("GET", OF_PERK.replace("&", "&&"), b""),
    ("GET", OF_PERK.replace("tokenId", "token%49d"), b""),
    ("GET", OF_COLLECTION, b""),
    ("GET", OF_PERK, b"{}"),
]


@pytest.mark.parametrize(("method", "target", "raw"), TAMPERED)
async def test_a_signature_is_good_for_these_very_bytes_alone(
    judged: RunningSurfaces, judges: SigningBrands, method: str, target: str, raw: bytes
) -> None:
    good = signed("GET", OF_PERK, key=judges.keys[BRAND_ID])
    answer = await send(judged, method, target, raw, good)
    assert answer.status == 401
    if method != "HEAD":
        assert refused(answer) == NOT_THIS_BRAND
    assert judged.perks.calls == ["brand_of"]
    assert (await send(judged, "GET", OF_PERK, b"", good)).status == 200


@pytest.mark.parametrize("raw", [a_body(amount=2), a_body() + b" ", a_body()[:-1], b""])
async def test_a_changed_body_is_refused(
    judged: RunningSurfaces, judges: SigningBrands, raw: bytes
) -> None:
    good = signed("POST", REDEEM, a_body(), key=judges.keys[BRAND_ID])
    assert refused(await send(judged, "POST", REDEEM, raw, good)) == NOT_THIS_BRAND
    with_query = await send(judged, "POST", REDEEM + "?x=1", a_body(), good)
    assert refused(with_query) == NOT_THIS_BRAND
    assert judged.perks.requests == []


async def test_a_reading_request_with_a_body_is_signed_with_it(
    judged: RunningSurfaces, judges: SigningBrands
) -> None:
    sent = signed("GET", OF_PERK, b"{}", key=judges.keys[BRAND_ID])
    assert (await send(judged, "GET", OF_PERK, b"{}", sent)).status == 200


async def test_another_brands_key_an_unknown_brand_and_a_wrong_key_are_one_refusal(
    judged: RunningSurfaces, judges: SigningBrands
) -> None:
    raw = a_body()
    bad = [
        signed("POST", REDEEM, raw, key=judges.keys[OTHER_ID]),
        signed("POST", REDEEM, raw, key=judges.keys[BRAND_ID], brand_id=OTHER_ID),
        signed("POST", REDEEM, raw, key=judges.keys[BRAND_ID], brand_id="0x" + "ee" * 20),
        signed("POST", REDEEM, raw, key="ltzsk_" + "0" * 40),
    ]
    bodies = []
    for sent in bad:
        answer = await send(judged, "POST", REDEEM, raw, sent)
        assert refused(answer) == NOT_THIS_BRAND
        bodies.append(answer.body)
    assert all(body == bodies[0] for body in bodies)


async def test_a_brand_reaches_its_own_collections_only(
    judged: RunningSurfaces, judges: SigningBrands
) -> None:
    sent = signed("GET", OF_PERK, key=judges.keys[OTHER_ID], brand_id=OTHER_ID)
    assert (await send(judged, "GET", OF_PERK, b"", sent)).code == (403, "VALIDATION_FAILED")


async def test_a_brand_id_may_be_written_with_its_checksum(
    judged: RunningSurfaces, judges: SigningBrands
) -> None:
    upper = "0x" + BRAND_ID[2:].upper()
    sent = signed("GET", OF_PERK, key=judges.keys[BRAND_ID], brand_id=upper)
    assert (await send(judged, "GET", OF_PERK, b"", sent)).status == 200


async def test_a_rotated_key_still_signs_and_a_revoked_one_does_not(
    judged: RunningSurfaces, judges: SigningBrands
) -> None:
    old = judges.keys[BRAND_ID]
    new = await judges.rotate(BRAND_ID)
    for key in (old, new):
        sent = signed("GET", OF_PERK, key=key)
        assert (await send(judged, "GET", OF_PERK, b"", sent)).status == 200
    judges.keys[BRAND_ID] = await judges.rotate(BRAND_ID, revoke=True)
    for key in (old, new):
        sent = signed("GET", OF_PERK, key=key)
        assert refused(await send(judged, "GET", OF_PERK, b"", sent)) == NOT_THIS_BRAND
    sent = signed("GET", OF_PERK, key=judges.keys[BRAND_ID])
    assert (await send(judged, "GET", OF_PERK, b"", sent)).status == 200


async def test_one_of_several_signatures_is_enough_while_keys_change(
    judged: RunningSurfaces, judges: SigningBrands
) -> None:
    wrong = "v1=" + "0" * 64
    for is_last in (False, True):
        sent = signed("GET", OF_PERK, key=judges.keys[BRAND_ID])
        both = sorted((wrong, sent["X-LTZ-Signature"]), key=lambda text: (text != wrong) is is_last)
        sent["X-LTZ-Signature"] = ", ".join(both)
        assert (await send(judged, "GET", OF_PERK, b"", sent)).status == 200


@given(collection=st.integers(0, 2**256), token=st.integers(0, 2**256))
@example(collection=0, token=0)
@example(collection=10**71, token=10**71)
def test_a_plain_query_means_what_any_other_order_of_it_does(collection: int, token: int) -> None:
    """The usual order is parsed by a faster path."""
    plain = f"collectionId={collection}&tokenId={token}"
    assert read(plain) == read(f"tokenId={token}&collectionId={collection}")
    assert read(plain.replace("=", "=00")) == read(f"tokenId=00{token}&collectionId=00{collection}")


def read(text: str) -> TokenQuery | str:
    try:
        return CheckPerkStatusQuery.from_text(text)
    except InvalidFields as refusal:
        return str(refusal.details)
