"""The event handler's requests and responses (spec 2.1 to 2.3, 4.1)."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Self
from uuid import UUID

from pydantic import ConfigDict, Field

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.actions.event_handler.record import EventRequest, EventStatus
from ltzd.errors import InvalidFields
from ltzd.http.models import RequestModel, ResponseModel
from ltzd.http.requests.fields import (
    BrandId,
    Domain,
    Email,
    EventType,
    SourceUrl,
    UserIdentifier,
)
from ltzd.rules.brands.configuration import CATALOGUES, EventRule
from ltzd.rules.event_handler.claims import MAX_PURCHASE_DOLLARS
from ltzd.rules.request_signatures import SignedRequest
from ltzd.values import address_of, checksummed, hex_of, iso


class Caller(NamedTuple):
    """The caller of a request, as far as the request's headers and connection tell.

    `request_id` is a signed request's among others with the same nonce.
    """

    origin: str | None
    network: str
    signed: SignedRequest | None
    request_id: UUID | None


def _describe_further_keys(schema: dict[str, Any]) -> None:
    """Add the keys that no rule checks in every event: in some they may hold anything."""
    schema["properties"] |= {
        "amount": {
            "description": "Required for `purchase`: dollars, a number or decimal text above 0 and "
            f"at most {MAX_PURCHASE_DOLLARS}"
        },
        "source": {
            "description": "One of the brand's bypass sources: the event skips the cooldown and "
            "the maximum of claims per user"
        },
    }


class EventMetadata(RequestModel):
    """Free-form event data. The rules of events read `amount` and `source` from it too."""

    model_config = ConfigDict(
        alias_generator=None, extra="allow", json_schema_extra=_describe_further_keys
    )

    channel_id: str | None = Field(None, description="Channel id or name")
    skip_cooldown: bool | None = Field(None, description="Skip the cooldown check")


class ManualEventBody(RequestModel):
    """A customer event of a brand (spec 2.1)."""

    brand_id: BrandId
    event_type: EventType
    user_email: Email
    domain: Domain | None = Field(
        None, description="Default: the host of sourceUrl, else of the Origin header"
    )
    source_url: SourceUrl | None = None
    user_identifier: UserIdentifier | None = None
    metadata: EventMetadata | None = None

    def to_request(self, metadata: dict[str, Any], caller: Caller) -> EventRequest:
        """`metadata` is the object that was sent: the model has only some of its keys."""
        return EventRequest(
            brand_id=address_of(self.brand_id),
            event_type=self.event_type,
            email=self.user_email,
            domain=self.domain,
            source_url=self.source_url,
            user_identifier=self.user_identifier,
            metadata=metadata,
            origin=caller.origin,
            network=caller.network,
            signed=caller.signed,
            request_id=caller.request_id,
        )


class EventConfigQuery(RequestModel):
    """Query of GET /event-config."""

    brand_id: BrandId

    @classmethod
    def from_query(cls, brand_ids: Sequence[str]) -> Self:
        """Raises InvalidFields, also for a repeated parameter: a proxy may have read another
        value. A parameter without a value counts as absent."""
        if len(brand_ids) > 1:
            raise InvalidFields(["brandId: must be given once"])
        return cls.from_json({"brandId": brand_ids[0]} if any(brand_ids) else {})


class ManualEventReward(ResponseModel):
    amount: int
    event_type: str
    wallet_address: str
    transaction_hash: str | None


class ManualEventResponse(ResponseModel):
    """A recorded event (spec 2.2).

    While `status` is `queued` the hash is null: GET /events/{eventId} has it later.
    """

    success: Literal[True]
    event_id: str = Field(json_schema_extra={"format": "uuid"})
    message: str
    reward_amount: int = Field(description="Whole LTZ")
    event_type: str
    wallet_created: bool
    wallet_address: str
    transaction_hash: str | None
    status: Literal["published", "queued", "final"]
    reward: ManualEventReward

    @staticmethod
    def body(event: RecordedEvent) -> dict[str, object]:
        """A plain dict: building the model would cost more than the rest of the response."""
        wallet = checksummed(event.wallet)
        mint = None if event.transaction_hash is None else hex_of(event.transaction_hash)
        return {
            "success": True,
            "eventId": event.event_id,
            "message": _message(event),
            "rewardAmount": event.ltz,
            "eventType": event.event_type,
            "walletCreated": event.wallet_created,
            "walletAddress": wallet,
            "transactionHash": mint,
            "status": event.status,
            "reward": {
                "amount": event.ltz,
                "eventType": event.event_type,
                "walletAddress": wallet,
                "transactionHash": mint,
            },
        }


def _message(event: RecordedEvent) -> str:
    match event.status:
        case "queued":
            return f"Event recorded; {event.ltz} LTZ will be minted"
        case "final":
            return "Event recorded; it earns no LTZ"
        case _:
            return f"Event recorded; {event.ltz} LTZ distributed"


class EventStatusResponse(ResponseModel):
    """The state of an event."""

    success: Literal[True] = True
    event_id: str = Field(json_schema_extra={"format": "uuid"})
    event_type: str
    status: Literal["queued", "published", "minted", "final", "failed"]
    reward_amount: int
    wallet_address: str
    transaction_hash: str | None = Field(description="May change through a replacement or a reorg")
    block_number: int | None
    created_at: str = Field(json_schema_extra={"format": "date-time"})

    @classmethod
    def of(cls, event: EventStatus) -> Self:
        mint = event.transaction_hash
        return cls.model_validate(
            {
                "event_id": str(event.event_id),
                "event_type": event.event_type,
                "status": event.status,
                "reward_amount": event.ltz,
                "wallet_address": checksummed(event.wallet),
                "transaction_hash": None if mint is None else hex_of(mint),
                "block_number": event.block_number,
                "created_at": iso(event.created_at),
            }
        )


class DetectionConfig(ResponseModel):
    url_patterns: list[str]
    success_selectors: list[str]
    channels: list[str]


class EventConfigEntry(ResponseModel):
    """One event type of a brand (spec 2.3)."""

    event_id: str
    event_type: str
    reward_amount: int | float = Field(description="Whole LTZ; for `purchase`, LTZ per dollar")
    max_claims: int = Field(description="Per user; -1 is unlimited")
    cooldown_hours: int | float
    detection_method: str
    detection_config: DetectionConfig
    is_custom: bool

    @classmethod
    def of(cls, rule: EventRule) -> Self:
        per_dollar = rule.reward_per_dollar
        return cls(
            event_id=rule.type,
            event_type=rule.type,
            reward_amount=rule.ltz if per_dollar is None else _number(per_dollar),
            max_claims=rule.max_claims_per_user,
            cooldown_hours=_number(rule.cooldown_hours),
            detection_method=rule.detection_method,
            detection_config=DetectionConfig(
                url_patterns=list(rule.url_patterns),
                success_selectors=list(rule.success_selectors),
                channels=list(rule.channels),
            ),
            is_custom=rule.type not in CATALOGUES,
        )


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


class EventConfigResponse(ResponseModel):
    success: Literal[True] = True
    brand_id: str
    events: list[EventConfigEntry]
    count: int

    @classmethod
    def of(cls, brand_id: str, rules: Sequence[EventRule]) -> Self:
        events = [EventConfigEntry.of(rule) for rule in rules]
        return cls(brand_id=brand_id, events=events, count=len(events))


ServiceState = Literal["connected", "unavailable"]
BlockchainState = Literal["connected", "degraded", "unavailable"]


class ServiceStates(ResponseModel):
    database: ServiceState
    blockchain: BlockchainState = Field(
        description="`degraded`: each node that answers contradicts other nodes or itself, or the "
        "index of the chain is stopped"
    )
    identity_provider: ServiceState = Field(alias="identity-provider")


class HealthResponse(ResponseModel):
    status: Literal["healthy", "degraded", "unavailable"]
    timestamp: str = Field(json_schema_extra={"format": "date-time"})
    services: ServiceStates


class DiagnosticResponse(ServiceStates):
    status: Literal["healthy", "degraded", "unavailable"]
    timestamp: str = Field(json_schema_extra={"format": "date-time"})


class DebugResponse(ResponseModel):
    debug: str
    hostname: str = Field(description="The request's Host")
    path: str
    method: str
    timestamp: str = Field(json_schema_extra={"format": "date-time"})
    worker_version: str = Field(alias="worker_version")


def invalid_event_id() -> InvalidFields:
    return InvalidFields(["eventId: must be a UUID"])
