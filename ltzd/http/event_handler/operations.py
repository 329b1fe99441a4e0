"""The event handler's endpoints as the OpenAPI document describes them."""

from ltzd.errors import InvalidFields, NotFound
from ltzd.http.event_handler import models
from ltzd.http.event_handler.bulk_models import MAX_EVENTS, BulkEventsBody, BulkEventsResponse
from ltzd.http.event_handler.errors import ERRORS
from ltzd.http.event_handler.handlers import EventHandlers
from ltzd.http.openapi.operations import Operation, Parameter, Response
from ltzd.http.surface import API_PREFIX

OPERATIONS = (
    Operation(
        EventHandlers.manual_event,
        "POST",
        f"{API_PREFIX}/manual-event",
        "Record a customer event and mint its reward",
        request=models.ManualEventBody,
        success={
            200: Response(
                "Recorded. The mint is published, or the reward is 0", models.ManualEventResponse
            ),
            202: Response("Recorded. The mint is queued", models.ManualEventResponse),
        },
        errors=ERRORS,
    ),
    Operation(
        EventHandlers.bulk_events,
        "POST",
        f"{API_PREFIX}/bulk-events",
        f"Record up to {MAX_EVENTS} events in order, independently of each other",
        request=BulkEventsBody,
        success={
            200: Response(
                "The outcome of each event, also if every event is refused", BulkEventsResponse
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
        success={200: Response("The event", models.EventStatusResponse)},
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
                "The brand's events; may be cached for five minutes", models.EventConfigResponse
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
            200: Response("Healthy, or degraded: events are accepted", models.HealthResponse),
            503: Response("The database is unavailable", models.HealthResponse),
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
            200: Response("Healthy, or degraded: events are accepted", models.DiagnosticResponse),
            503: Response("The database is unavailable", models.DiagnosticResponse),
        },
        errors=ERRORS,
        may_be_busy=False,
    ),
    Operation(
        EventHandlers.debug,
        "GET",
        f"{API_PREFIX}/debug",
        "Report the request as the server sees it",
        success={200: Response("The request", models.DebugResponse)},
        errors=ERRORS,
        may_be_busy=False,
    ),
)
