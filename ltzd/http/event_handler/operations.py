"""The event handler's endpoints as the OpenAPI document describes them."""

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import msgspec

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.actions.event_handler.record import EventStatus
from ltzd.errors import InvalidFields, NotFound
from ltzd.http.errors import http_error_of
from ltzd.http.event_handler import models
from ltzd.http.event_handler.bulk_models import MAX_EVENTS, BulkEventsBody, BulkEventsResponse
from ltzd.http.event_handler.errors import ERRORS, error_body
from ltzd.http.event_handler.handlers import DEBUG_TEXT, WORKER_VERSION, EventHandlers
from ltzd.http.openapi.operations import (
    ERROR_HEADERS,
    Operation,
    Parameter,
    Response,
    error_of,
    signature_headers,
)
from ltzd.http.surface import API_PREFIX
from ltzd.rules.brands.configuration import EventRule
from ltzd.rules.event_handler.brand_limits import rate_limited, refuse_unmintable_reward
from ltzd.values import Hash32, address_of, iso

_BRAND = "0x" + "ab" * 20
_EVENT = {
    "brandId": _BRAND,
    "eventType": "account_creation",
    "userEmail": "ada@example.com",
    "domain": "shop.example",
}
_RECORDED = RecordedEvent(
    event_id=UUID("6f1c2a3e-0b1d-4d52-9a55-0c8f4c3f0b1a"),
    event_type="account_creation",
    ltz=100,
    wallet=address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"),
    wallet_created=True,
    transaction_hash=Hash32(b"\x22" * 32),
    status="published",
)
_QUEUED = msgspec.structs.replace(_RECORDED, transaction_hash=None, status="queued")
_UNREWARDED = msgspec.structs.replace(_QUEUED, ltz=0, status="final")
_CREATED_AT = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
_STATUS = EventStatus(
    event_id=_RECORDED.event_id,
    event_type=_RECORDED.event_type,
    status="minted",
    ltz=_RECORDED.ltz,
    wallet=_RECORDED.wallet,
    transaction_hash=_RECORDED.transaction_hash,
    block_number=4_711,
    created_at=_CREATED_AT,
)
_RULES = (
    EventRule(type="account_creation", reward=100, url_patterns=("/welcome",)),
    EventRule(type="purchase", reward_per_dollar=Decimal("1.5"), max_claims_per_user=-1),
)
_PURCHASE = _EVENT | {"eventType": "purchase", "metadata": {"amount": "10.50"}}
_ONE_OF_TWO = {
    "success": False,
    "processed": 1,
    "results": [
        models.ManualEventResponse.body(_RECORDED) | {"index": 0},
        error_body(http_error_of(InvalidFields(["userEmail: is required"])))
        | {"index": 1, "status": 400},
    ],
}

# Read if the brand demands signatures of the type, or of events that skip rules.
_SIGNATURE = signature_headers(required=False, are_always_read=False)
_RETRY = (ERROR_HEADERS["Retry-After"],)


def _health(status: str, database: str) -> dict[str, object]:
    return {"status": status, "timestamp": iso(_CREATED_AT), "services": _states(database)}


def _diagnostic(status: str, database: str) -> dict[str, object]:
    return {"status": status, "timestamp": iso(_CREATED_AT), **_states(database)}


def _states(database: str) -> dict[str, str]:
    return {"database": database, "blockchain": "connected", "identity-provider": "connected"}


OPERATIONS = (
    Operation(
        EventHandlers.manual_event,
        "POST",
        f"{API_PREFIX}/manual-event",
        "Record a customer event and mint its reward",
        request=models.ManualEventBody,
        request_examples={"an account": _EVENT, "a purchase": _PURCHASE},
        parameters=_SIGNATURE,
        success={
            200: Response(
                "Recorded. The mint is published, or the reward is 0",
                models.ManualEventResponse,
                {
                    "published": models.ManualEventResponse.body(_RECORDED),
                    "no reward": models.ManualEventResponse.body(_UNREWARDED),
                },
            ),
            202: Response(
                "Recorded. The mint is queued",
                models.ManualEventResponse,
                {"queued": models.ManualEventResponse.body(_QUEUED)},
            ),
        },
        errors=ERRORS,
        error_examples={
            "reward too large": error_of(
                lambda: refuse_unmintable_reward(_RULES[1], 20_000, 10_000)
            ),
            "too many new wallets": rate_limited("new wallets an hour", 500, 1_200),
        },
    ),
    Operation(
        EventHandlers.bulk_events,
        "POST",
        f"{API_PREFIX}/bulk-events",
        f"Record up to {MAX_EVENTS} events in order, independently of each other",
        request=BulkEventsBody,
        request_examples={"two events": {"events": [_EVENT, _PURCHASE]}},
        parameters=_SIGNATURE,
        success={
            200: Response(
                "The outcome of each event, also if every event is refused",
                BulkEventsResponse,
                {"all recorded": BulkEventsResponse.body([_RECORDED]), "one recorded": _ONE_OF_TWO},
            ),
        },
        errors=ERRORS,
        error_examples={"no events": InvalidFields(["events: must hold at least 1"])},
    ),
    Operation(
        EventHandlers.event,
        "GET",
        f"{API_PREFIX}/events/{{eventId}}",
        "Read the state of an event",
        parameters=(Parameter("eventId", "path", {"type": "string", "format": "uuid"}),),
        success={
            200: Response(
                "The event",
                models.EventStatusResponse,
                {"minted": models.EventStatusResponse.of(_STATUS).model_dump(by_alias=True)},
            )
        },
        errors=ERRORS,
        error_examples={
            "invalid id": models.invalid_event_id(),
            "not found": NotFound("Event not found"),
        },
    ),
    Operation(
        EventHandlers.event_config,
        "GET",
        f"{API_PREFIX}/event-config",
        "List the events that a brand rewards",
        parameters=(
            Parameter("brandId", "query", {"type": "string", "pattern": "^0x[0-9a-f]{40}$"}),
        ),
        success={
            200: Response(
                "The brand's events; may be cached for five minutes",
                models.EventConfigResponse,
                {
                    "two events": models.EventConfigResponse.of(_BRAND, _RULES).model_dump(
                        by_alias=True
                    )
                },
            ),
        },
        errors=ERRORS,
        error_examples={"unknown brand": NotFound("Brand not found")},
    ),
    Operation(
        EventHandlers.health,
        "GET",
        f"{API_PREFIX}/health",
        "Report the state of the service and of the services it depends on",
        success={
            200: Response(
                "Healthy, or degraded: events are accepted",
                models.HealthResponse,
                {"healthy": _health("healthy", "connected")},
            ),
            503: Response(
                "The database is unavailable",
                models.HealthResponse,
                {"no database": _health("unavailable", "unavailable")},
                headers=_RETRY,
            ),
        },
        errors=ERRORS,
        may_be_busy=False,
    ),
    Operation(
        EventHandlers.diagnostic,
        "GET",
        f"{API_PREFIX}/diagnostic",
        "Report what /health reports, without nesting",
        success={
            200: Response(
                "Healthy, or degraded: events are accepted",
                models.DiagnosticResponse,
                {"healthy": _diagnostic("healthy", "connected")},
            ),
            503: Response(
                "The database is unavailable",
                models.DiagnosticResponse,
                {"no database": _diagnostic("unavailable", "unavailable")},
                headers=_RETRY,
            ),
        },
        errors=ERRORS,
        may_be_busy=False,
    ),
    Operation(
        EventHandlers.debug,
        "GET",
        f"{API_PREFIX}/debug",
        "Report the request as the server sees it",
        success={
            200: Response(
                "The request",
                models.DebugResponse,
                {
                    "a request": {
                        "debug": DEBUG_TEXT,
                        "hostname": "api.example",
                        "path": f"{API_PREFIX}/debug",
                        "method": "GET",
                        "timestamp": iso(_CREATED_AT),
                        "worker_version": WORKER_VERSION,
                    }
                },
            )
        },
        errors=ERRORS,
        may_be_busy=False,
    ),
)
