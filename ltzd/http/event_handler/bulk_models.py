"""Request and answer of bulk-events: several events, each with an outcome of its own."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import Field, SkipValidation, ValidationError

from ltzd.actions.event_handler.record import RecordedEvent
from ltzd.http.errors import event_handler_envelope, told
from ltzd.http.event_handler.models import Answered, ManualEvent, RecordedAnswer, Refusal, Sent
from ltzd.http.requests.fields import invalid_fields

MOST_EVENTS = 50


class BulkEvents(Sent):
    """Events to be recorded in their order, independently of each other."""

    events: Annotated[
        # Anything: each is checked alone, since a bad one must not stop the others.
        list[SkipValidation[ManualEvent] | SkipValidation[Any]],
        Field(min_length=1, max_length=MOST_EVENTS),
    ]

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        """Raises InvalidFields."""
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise invalid_fields(error) from None


class BulkRecorded(RecordedAnswer):
    index: int = Field(description="Of the event in the request, from 0")


class BulkRefused(Refusal):
    index: int = Field(description="Of the event in the request, from 0")
    status: int = Field(description="The HTTP status that the event would have had alone")


class BulkAnswer(Answered):
    """`processed` counts successes; `success` says whether they all were."""

    success: bool
    processed: int
    results: list[BulkRecorded | BulkRefused]

    @staticmethod
    def body(outcomes: Sequence[RecordedEvent | BaseException]) -> dict[str, object]:
        results = [_result(index, outcome) for index, outcome in enumerate(outcomes)]
        processed = sum(isinstance(outcome, RecordedEvent) for outcome in outcomes)
        return {"success": processed == len(results), "processed": processed, "results": results}


def _result(index: int, outcome: RecordedEvent | BaseException) -> dict[str, object]:
    if isinstance(outcome, RecordedEvent):
        return RecordedAnswer.body(outcome) | {"index": index}
    answer = told(outcome)
    return event_handler_envelope(answer) | {"index": index, "status": answer.status}
