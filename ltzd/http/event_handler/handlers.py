"""The event handler's surface, spec 4.1, under /service-api.

`/health` answers 503 only while the database is gone: without it nothing works. A node or identity
provider that is away makes it `degraded`, since events are still accepted and minted later.
"""

from typing import Any
from uuid import UUID

from sanic import Blueprint
from sanic.request import Request

from ltzd.actions.event_handler.record import EventRequest
from ltzd.errors import BrandUnknown, InvalidFields, NotFound, Refused
from ltzd.http.admin.health import RecentHealth
from ltzd.http.clock import timestamp
from ltzd.http.event_handler import models
from ltzd.http.event_handler.bulk_models import BulkAnswer, BulkEvents
from ltzd.http.openapi.operations import Operation, Parameter
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.fields import UUID_TEXT
from ltzd.http.requests.json_body import parsed, read_json, without_control
from ltzd.http.requests.signature_headers import signed_of
from ltzd.http.responses import Reply, json_reply
from ltzd.http.services import Health, Services
from ltzd.values import address_of

PREFIX = "/service-api"

WORKER_VERSION = "v2.0.0"
"""Spec 9 shows v2.0.0 and 1.0.0; the REST reference it belongs to is labelled v2.0."""

CONFIG_CACHE = {"Cache-Control": "public, max-age=300"}
"""Spec 8: five minutes. Errors carry none."""

READ = ("GET", "HEAD")


def surface(services: Services) -> Blueprint:
    handlers = EventHandlerSurface(services)
    blueprint = Blueprint("event_handler", url_prefix=PREFIX)
    # ignore_body: `read_json` reads it, under this surface's own limit.
    blueprint.add_route(handlers.manual_event, "/manual-event", ["POST"], ignore_body=True)
    blueprint.add_route(handlers.bulk_events, "/bulk-events", ["POST"], ignore_body=True)
    blueprint.add_route(handlers.event, "/events/<event_id:str>", READ)
    blueprint.add_route(handlers.event_config, "/event-config", READ)
    blueprint.add_route(handlers.health, "/health", READ)
    blueprint.add_route(handlers.diagnostic, "/diagnostic", READ)
    blueprint.add_route(handlers.debug, "/debug", READ)
    return blueprint


class EventHandlerSurface:
    def __init__(self, services: Services) -> None:
        self._events = services.events
        self._health = RecentHealth(services.health)

    async def manual_event(self, request: Request) -> Reply:
        """Spec 4.1: 200 once the mint is published, 202 if its hash takes too long."""
        raw = await read_json(request)
        asked = _asked(parsed(raw), self._caller(request, raw))
        recorded = await self._events.record(asked)
        status = 202 if recorded.status == "queued" else 200
        return json_reply(models.RecordedAnswer.body(recorded), status)

    async def bulk_events(self, request: Request) -> Reply:
        """Spec 4.1: 200 with an outcome for each; 400 only for a list that is none."""
        raw = await read_json(request)
        bulk = BulkEvents.from_json(parsed(raw))
        caller = self._caller(request, raw)
        items = [_asked_or_refused(item, index, caller) for index, item in enumerate(bulk.events)]
        return json_reply(BulkAnswer.body(await self._events.record_all(items)))

    def _caller(self, request: Request, raw: bytes) -> models.Caller:
        origin = request.headers.getone("origin", None)
        return models.Caller(origin, client_network(request), signed_of(request, raw))

    async def event(self, _request: Request, event_id: str) -> Reply:
        if not UUID_TEXT.fullmatch(event_id):
            raise models.no_uuid()
        return _sent(models.EventAnswer.of(await self._events.find(UUID(event_id))))

    async def event_config(self, request: Request) -> Reply:
        """Spec 2.3. Only here an unknown brand is 404."""
        given = request.args.get("brandId")
        query = models.ConfigQuery.from_query(without_control(given))
        try:
            rules = self._events.configuration(address_of(query.brand_id))
        except BrandUnknown as error:
            raise NotFound("Brand not found") from error
        return _sent(models.ConfigAnswer.of(query.brand_id, rules), headers=CONFIG_CACHE)

    async def health(self, _request: Request) -> Reply:
        health = await self._health.ask()
        answer = models.HealthAnswer(
            status=_status(health), timestamp=timestamp(), services=_states(health)
        )
        return _sent(answer, 200 if health.database else 503)

    async def diagnostic(self, _request: Request) -> Reply:
        health = await self._health.ask()
        states = _states(health).model_dump()
        answer = models.DiagnosticAnswer(status=_status(health), timestamp=timestamp(), **states)
        return _sent(answer, 200 if health.database else 503)

    async def debug(self, request: Request) -> Reply:
        answer = models.DebugAnswer(
            debug="ltzd event handler",
            hostname=_shown(request.headers.getone("host", "")),
            path=request.path,
            method=request.method,
            timestamp=timestamp(),
            worker_version=WORKER_VERSION,
        )
        return _sent(answer)


def _asked(body: dict[str, Any], caller: models.Caller) -> EventRequest:
    """Raises InvalidFields with every fault."""
    return models.ManualEvent.from_json(body).asked(body.get("metadata") or {}, caller)


def _asked_or_refused(item: object, index: int, caller: models.Caller) -> EventRequest | Refused:
    if not isinstance(item, dict):
        return InvalidFields([f"events.{index}: must be an object"])
    try:
        return _asked(item, caller)
    except InvalidFields as refusal:
        return refusal


def _shown(header: str) -> str:
    """A header as text that JSON can carry: Sanic keeps bytes that are no UTF-8 as surrogates."""
    shown: str = without_control(header.encode(errors="replace").decode())
    return shown


def _status(health: Health) -> str:
    if not health.database:
        return "unavailable"
    return "healthy" if health.blockchain and health.identity_provider else "degraded"


def _states(health: Health) -> models.ServiceStates:
    def state(connected: bool) -> models.ServiceState:
        return "connected" if connected else "unavailable"

    return models.ServiceStates(
        database=state(health.database),
        blockchain=state(health.blockchain),
        identity_provider=state(health.identity_provider),
    )


def _sent(
    answer: models.Answered, status: int = 200, headers: dict[str, str] | None = None
) -> Reply:
    return Reply(answer.model_dump_json(by_alias=True), status, headers, "application/json")


OPERATIONS = (
    Operation(
        "POST",
        f"{PREFIX}/manual-event",
        "Record a customer event and reward it",
        request=models.ManualEvent,
        answers={
            200: ("Recorded; the mint is published, or there is none", models.RecordedAnswer),
            202: ("Recorded; the mint is queued", models.RecordedAnswer),
            400: (
                "Unreadable body, invalid fields, unknown type, too large a reward",
                models.Refusal,
            ),
            401: ("The request is signed, and not rightly", models.Refusal),
            403: ("Domain, brand or channel not allowed, or automation off", models.Refusal),
            409: ("Duplicate; details.existingEventId names the first", models.Refusal),
            413: ("Body over 10,240 bytes", models.Refusal),
            429: (
                "Cooldown, a maximum or one of the brand's own limits; Retry-After if it ends",
                models.Refusal,
            ),
            500: ("Identity provider unavailable, or an internal error", models.Refusal),
            503: ("Database unavailable", models.Refusal),
        },
    ),
    Operation(
        "POST",
        f"{PREFIX}/bulk-events",
        "Record up to 50 events, each for itself, in their order",
        request=BulkEvents,
        answers={
            200: ("An outcome for each event, also where all are refused", BulkAnswer),
            400: ("Unreadable body, or events is no list of 1 to 50", models.Refusal),
            413: ("Body over 10,240 bytes", models.Refusal),
            500: ("An internal error", models.Refusal),
        },
    ),
    Operation(
        "GET",
        f"{PREFIX}/events/{{eventId}}",
        "What became of an event",
        parameters=(Parameter("eventId", "path", {"type": "string", "format": "uuid"}),),
        answers={
            200: ("The event", models.EventAnswer),
            400: ("Not a UUID", models.Refusal),
            404: ("Unknown event", models.Refusal),
            503: ("Database unavailable", models.Refusal),
        },
    ),
    Operation(
        "GET",
        f"{PREFIX}/event-config",
        "The events that a brand rewards",
        parameters=(
            Parameter("brandId", "query", {"type": "string", "pattern": "^0x[0-9a-f]{40}$"}),
        ),
        answers={
            200: ("The brand's events; may be cached for five minutes", models.ConfigAnswer),
            400: ("Missing or malformed brandId", models.Refusal),
            404: ("Unknown brand", models.Refusal),
        },
    ),
    Operation(
        "GET",
        f"{PREFIX}/health",
        "Whether the service and what it needs answer",
        answers={
            200: ("Healthy, or degraded: events are accepted", models.HealthAnswer),
            503: ("The database does not answer", models.HealthAnswer),
        },
    ),
    Operation(
        "GET",
        f"{PREFIX}/diagnostic",
        "The same facts as /health in one level",
        answers={
            200: ("Healthy or degraded", models.DiagnosticAnswer),
            503: ("The database does not answer", models.DiagnosticAnswer),
        },
    ),
    Operation(
        "GET",
        f"{PREFIX}/debug",
        "The request as the server sees it",
        answers={200: ("The request", models.DebugAnswer)},
    ),
)
