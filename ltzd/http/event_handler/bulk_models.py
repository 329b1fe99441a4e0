"""The request and response of bulk-events. The specification leaves their shape open.

A bulk request may fail in part: each result has the outcome of one event.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.http.errors import report
from ltzd.http.event_handler.errors import EventHandlerError, error_body
from ltzd.http.event_handler.models import ManualEventBody, ManualEventResponse
from ltzd.http.models import RequestModel, ResponseModel

MAX_EVENTS = 50


class BulkEventsBody(RequestModel):
    """Events to record in this order. Each succeeds or fails on its own."""

    events: Annotated[
        # Each item is validated by itself later, so that an invalid one does not stop the others.
        list[SkipValidation[ManualEventBody] | SkipValidation[Any]],
        Field(min_length=1, max_length=MAX_EVENTS),
    ]


class BulkEventResult(ManualEventResponse):
    index: int = Field(description="Position of the event in the request, from 0")


class BulkEventError(EventHandlerError):
    index: int = Field(description="Position of the event in the request, from 0")
    status: int = Field(description="The HTTP status that the event would have had by itself")
    retry_after: int | None = Field(
        None, description="The seconds of the Retry-After header that it would have had, if any"
    )


class BulkEventsResponse(ResponseModel):
    """`processed` counts the recorded events; `success` is true if all were recorded."""

    success: bool
    processed: int
    results: list[BulkEventResult | BulkEventError]

    @staticmethod
    def body(outcomes: Sequence[RecordedEvent | BaseException]) -> dict[str, object]:
        results = [_result(index, outcome) for index, outcome in enumerate(outcomes)]
        processed = sum(isinstance(outcome, RecordedEvent) for outcome in outcomes)
        return {"success": processed == len(results), "processed": processed, "results": results}


def _result(index: int, outcome: RecordedEvent | BaseException) -> dict[str, object]:
    if isinstance(outcome, RecordedEvent):
        return ManualEventResponse.body(outcome) | {"index": index}
    error = report(outcome)
    result = error_body(error) | {"index": index, "status": error.status}
    seconds = error.headers.get("Retry-After")
    return result if seconds is None else result | {"retryAfter": int(seconds)}
