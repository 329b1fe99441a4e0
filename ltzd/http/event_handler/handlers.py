"""The event handler's endpoints, spec 4.1, under /service-api.

`/health` answers 503 only while the database is unavailable: nothing works without it. Without a
node or the identity provider it reports `degraded`, since events are still accepted, and minted
later.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sanic import Blueprint
from sanic.request import Request

from ltzd.actions.event_handler.record import EventRequest
from ltzd.concurrency.cached_value import CachedValue
from ltzd.errors import (
    AutomationDisabled,
    BrandUnknown,
    Broken,
    BudgetExhausted,
    ChannelNotAllowed,
    CooldownActive,
    DatabaseUnavailable,
    DomainUnauthorized,
    DuplicateEvent,
    EventNotConfigured,
    IdentityUnavailable,
    InvalidFields,
    MaxClaimsReached,
    NotFound,
    RateLimited,
    Refused,
    RewardTooLarge,
    SignatureRefused,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable, retry_header
from ltzd.http.event_handler import models
from ltzd.http.event_handler.bulk_models import BulkEventsBody, BulkEventsResponse
from ltzd.http.event_handler.errors import ERRORS
from ltzd.http.models import ResponseModel
from ltzd.http.openapi.operations import raises
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.fields import UUID_TEXT
from ltzd.http.requests.json_body import parse_object, read_json, without_control_characters
from ltzd.http.requests.query_string import TOO_MANY, has_too_many_parameters
from ltzd.http.requests.signature_headers import signed_request_of
from ltzd.http.requests.validation_turns import ValidationTurns, are_slow
from ltzd.http.responses import JSON, Reply, json_reply
from ltzd.http.routes import add_route
from ltzd.http.services import Health, Services
from ltzd.http.surface import API_PREFIX, READ_METHODS, Surface
from ltzd.values import address_of, iso

DEBUG_TEXT = "ltzd event handler"
WORKER_VERSION = "v2.0.0"
"""Spec 9 shows v2.0.0 and 1.0.0; the REST reference of /debug is labelled v2.0."""

CACHE_HEADERS = {"Cache-Control": "public, max-age=300"}
"""Spec 8: event-config is cached for five minutes. Errors are not cached."""


def surface(services: Services) -> Surface:
    handlers = EventHandlers(services)
    blueprint = Blueprint("event_handler", url_prefix=API_PREFIX)
    # ignore_body: `read_json` reads the body, under this surface's own limit.
    add_route(blueprint, handlers.manual_event, "/manual-event", ["POST"], ignore_body=True)
    add_route(blueprint, handlers.bulk_events, "/bulk-events", ["POST"], ignore_body=True)
    add_route(blueprint, handlers.event, "/events/<event_id:str>", READ_METHODS)
    add_route(blueprint, handlers.event_config, "/event-config", READ_METHODS)
    add_route(blueprint, handlers.health, "/health", READ_METHODS)
    add_route(blueprint, handlers.diagnostic, "/diagnostic", READ_METHODS)
    add_route(blueprint, handlers.debug, "/debug", READ_METHODS)
    return Surface(blueprint, ((API_PREFIX, ERRORS),))


class EventHandlers:
    def __init__(self, services: Services) -> None:
        self._events = services.events
        self._health = CachedValue(services.health)
        self._turns = ValidationTurns()

    @raises(
        BodyUnreadable,
        InvalidFields,
        EventNotConfigured,
        RewardTooLarge,
        SignatureRefused,
        BrandUnknown,
        AutomationDisabled,
        DomainUnauthorized,
        ChannelNotAllowed,
        DuplicateEvent,
        BodyTooLarge,
        CooldownActive,
        MaxClaimsReached,
        BudgetExhausted,
        RateLimited,
        IdentityUnavailable,
        Broken,
        DatabaseUnavailable,
    )
    async def manual_event(self, request: Request) -> Reply:
        """200 once the mint is published, 202 if its hash takes too long."""
        raw = await read_json(request)
        body = parse_object(raw)
        if are_slow(body.values()):
            await self._turns.take()
        event = _event_request(body, self._caller(request, raw))
        recorded = await self._events.record(event)
        status = 202 if recorded.status == "queued" else 200
        return json_reply(models.ManualEventResponse.body(recorded), status)

    @raises(BodyUnreadable, InvalidFields, BodyTooLarge, Broken)
    async def bulk_events(self, request: Request) -> Reply:
        """200 with an outcome for each event, also if every event is refused."""
        raw = await read_json(request)
        bulk = BulkEventsBody.from_json(parse_object(raw))
        caller = self._caller(request, raw)
        items = []
        for index, item in enumerate(bulk.events):
            if isinstance(item, dict) and are_slow(item.values()):
                await self._turns.take()
            items.append(_event_or_error(item, index, caller))
        return json_reply(BulkEventsResponse.body(await self._events.record_all(items)))

    def _caller(self, request: Request, raw: bytes) -> models.Caller:
        origin = request.headers.getone("origin", None)
        signed = signed_request_of(request, raw)
        request_id = None if signed is None else uuid4()
        return models.Caller(origin, client_network(request), signed, request_id)

    @raises(InvalidFields, NotFound, DatabaseUnavailable)
    async def event(self, _request: Request, event_id: str) -> Reply:
        if not UUID_TEXT.fullmatch(event_id):
            raise models.invalid_event_id()
        return _reply(models.EventStatusResponse.of(await self._events.find(UUID(event_id))))

    @raises(InvalidFields, NotFound)
    async def event_config(self, request: Request) -> Reply:
        """Spec 2.3. An unknown brand is a 404 at this endpoint only."""
        if has_too_many_parameters(request):
            raise InvalidFields([f"query: {TOO_MANY}"])
        texts = request.get_args(keep_blank_values=True).getlist("brandId", [])
        brand_ids = without_control_characters(texts)
        query = models.EventConfigQuery.from_query(brand_ids)
        try:
            rules = self._events.configuration(address_of(query.brand_id))
        except BrandUnknown as error:
            raise NotFound("Brand not found") from error
        return _reply(models.EventConfigResponse.of(query.brand_id, rules), headers=CACHE_HEADERS)

    async def health(self, _request: Request) -> Reply:
        health = await self._health.get()
        response = models.HealthResponse(
            status=_status(health), timestamp=_now(), services=_states(health)
        )
        return _health_reply(response, health)

    async def diagnostic(self, _request: Request) -> Reply:
        health = await self._health.get()
        states = _states(health).model_dump()
        response = models.DiagnosticResponse(status=_status(health), timestamp=_now(), **states)
        return _health_reply(response, health)

    async def debug(self, request: Request) -> Reply:
        response = models.DebugResponse(
            debug=DEBUG_TEXT,
            hostname=_header_text(request.headers.getone("host", "")),
            path=request.path,
            method=request.method,
            timestamp=_now(),
            worker_version=WORKER_VERSION,
        )
        return _reply(response)


def _event_request(body: dict[str, Any], caller: models.Caller) -> EventRequest:
    """Raises InvalidFields with every fault."""
    event = models.ManualEventBody.from_json(body)
    return event.to_request(body.get("metadata") or {}, caller)


def _event_or_error(item: object, index: int, caller: models.Caller) -> EventRequest | Refused:
    if not isinstance(item, dict):
        return InvalidFields([f"events.{index}: must be an object"])
    try:
        return _event_request(item, caller)
    except InvalidFields as error:
        return error


def _header_text(header: str) -> str:
    """The header as text that JSON can carry: Sanic keeps invalid UTF-8 as surrogates."""
    text: str = without_control_characters(header.encode(errors="replace").decode())
    return text


def _now() -> str:
    return iso(datetime.now(UTC))


def _status(health: Health) -> str:
    if not health.database:
        return "unavailable"
    is_healthy = health.blockchain and health.identity_provider
    return "healthy" if is_healthy and not _chain_is_degraded(health) else "degraded"


def _chain_is_degraded(health: Health) -> bool:
    return health.nodes_disagree or health.index_is_old


def _states(health: Health) -> models.ServiceStates:
    def state(connected: bool) -> models.ServiceState:
        return "connected" if connected else "unavailable"

    is_degraded = health.blockchain and _chain_is_degraded(health)
    return models.ServiceStates(
        database=state(health.database),
        blockchain="degraded" if is_degraded else state(health.blockchain),
        identity_provider=state(health.identity_provider),
    )


def _health_reply(response: ResponseModel, health: Health) -> Reply:
    if health.database:
        return _reply(response)
    return _reply(response, 503, headers=retry_header(DatabaseUnavailable))


def _reply(
    response: ResponseModel, status: int = 200, headers: dict[str, str] | None = None
) -> Reply:
    return Reply(response.model_dump_json(by_alias=True), status, headers, JSON)
