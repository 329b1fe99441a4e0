"""Request and answers of /relay, as validated, as sent and as documented (spec 2.7, 7.2)."""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import ConfigDict, Field, ValidationError, model_validator

from ltzd.actions.relayer.relayer import RelayRequest
from ltzd.chain.typed_data import signature_of
from ltzd.errors import InvalidFields, MissingFields
from ltzd.http.event_handler.models import Answered, Sent
from ltzd.http.requests.fields import (
    IDEMPOTENCY_KEY_RULE,
    AddressText,
    HexData,
    HexWord,
    IdempotencyKey,
    RecoveryId,
    Uint256,
    Uint256Text,
    faults_in,
    idempotency_key,
    uint256_of,
)
from ltzd.rules.relayer.calls import RelayAsk, Relayed, RelayStatus, SignedPermit
from ltzd.values import address_of, bytes_of, checksummed, hex_of

REQUIRED = ("to", "data", "userAddress")

Label = Annotated[str, Field(max_length=200)]


class RelayPermit(Sent):
    """An EIP-2612 permit, sent in the same transaction as the call and before it."""

    owner: AddressText
    spender: AddressText
    value: Uint256Text = Field(description="In LTZ's smallest unit")
    deadline: Uint256 = Field(description="Unix seconds")
    v: RecoveryId
    r: HexWord
    s: HexWord

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, said: Any) -> Any:
        """So that it is told as missing."""
        if not isinstance(said, dict):
            return said
        return {name: value for name, value in said.items() if value is not None}

    def given(self) -> SignedPermit:
        return SignedPermit(
            owner=address_of(self.owner),
            spender=address_of(self.spender),
            value=uint256_of(self.value),
            deadline=self.deadline,
            signature=signature_of(self.v, int(self.r, 16), int(self.s, 16)),
        )


class RelayMetadata(Sent):
    """Context of a call; `action` and `perkId` are the caller's own words."""

    action: Label | None = None
    perk_id: Label | None = None
    idempotency_key: IdempotencyKey | None = Field(
        None, description="In place of the header, which a browser may not send"
    )
    permit: RelayPermit | None = None


class RelayCall(Sent):
    """A call that the operator is asked to send (spec 2.7)."""

    to: AddressText = Field(description="PerkNFT, LTZ, PointsSale or BusinessEscrow")
    data: HexData = Field(description="The encoded call")
    user_address: AddressText = Field(description="A wallet of the token's user")
    value: Uint256Text | None = Field(None, description="In wei; default 0, and nothing else may")
    gas_limit: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Default: estimated; at most 1,000,000, at least what the data costs "
        "(21,000 and 10 for each zero byte, 40 for each other byte)",
    )
    metadata: RelayMetadata | None = None

    def ask(self) -> RelayAsk:
        permit = None if self.metadata is None else self.metadata.permit
        return RelayAsk(
            to=address_of(self.to),
            data=bytes_of(self.data),
            user=address_of(self.user_address),
            value=uint256_of(self.value or "0"),
            gas_limit=self.gas_limit,
            permit=None if permit is None else permit.given(),
        )


def relay_request(body: dict[str, Any], key_headers: Sequence[str]) -> RelayRequest:
    """`key_headers` are the request's Idempotency-Key lines.

    Raises MissingFields before anything else, and InvalidFields with every fault.
    """
    missing = [name for name in REQUIRED if body.get(name) is None]
    if missing:
        raise MissingFields(missing)
    in_body = _key_in(body)
    faults = _key_faults(key_headers, in_body)
    try:
        call = RelayCall.model_validate(body)
    except ValidationError as error:
        raise InvalidFields([*faults_in(error), *faults]) from None
    if faults:
        raise InvalidFields(faults)
    key = key_headers[0] if key_headers else in_body
    return RelayRequest(call.ask(), key, fingerprint(body))


def _key_in(body: dict[str, Any]) -> Any:
    metadata = body.get("metadata")
    return metadata.get("idempotencyKey") if isinstance(metadata, dict) else None


def _key_faults(headers: Sequence[str], in_body: object) -> list[str]:
    """Those of the header; the model knows those of the body."""
    if not headers:
        return []
    if len(headers) > 1:
        return ["Idempotency-Key: must be given once"]
    try:
        idempotency_key(headers[0])
    except ValueError:
        return [f"Idempotency-Key: {IDEMPOTENCY_KEY_RULE}"]
    if in_body is not None and in_body != headers[0]:
        return ["metadata.idempotencyKey: must be the same as in the Idempotency-Key header"]
    return []


def fingerprint(body: dict[str, Any]) -> bytes:
    """The same for the same content, whatever its order and spaces and wherever its key is."""
    said = dict(body)
    if isinstance(body.get("metadata"), dict):
        said["metadata"] = {
            name: value for name, value in body["metadata"].items() if name != "idempotencyKey"
        }
    return hashlib.sha256(msgspec.json.encode(said, order="sorted")).digest()


class RelayedAnswer(Answered):
    """A relay, as far as it has come (spec 2.7).

    What is not known before it is mined is null until then.
    """

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    success: bool = Field(description="False once it has failed on chain")
    transaction_hash: str = Field(
        description="Of bytes that a node has taken. May change through a replacement; all find it"
    )
    gas_used: str | None
    effective_gas_price: str | None = Field(description="Wei per gas")
    block_number: int | None
    from_: str = Field(alias="from", description="The operator's wallet")
    to: str
    status: Literal["pending", "confirmed", "final", "failed"]
    explorer_url: str | None = Field(
        None, description="Where an explorer is configured or known for the chain"
    )
    reason: str | None = Field(None, description="Why it failed")

    @staticmethod
    def body(relayed: Relayed, explorer_url: str | None) -> dict[str, object]:
        transaction_hash = hex_of(relayed.transaction_hash)
        body: dict[str, object] = {
            "success": relayed.status is not RelayStatus.FAILED,
            "transactionHash": transaction_hash,
            "gasUsed": _text(relayed.gas_used),
            "effectiveGasPrice": _text(relayed.effective_gas_price),
            "blockNumber": relayed.block_number,
            "from": checksummed(relayed.sender),
            "to": checksummed(relayed.to),
            "status": relayed.status.value,
        }
        if explorer_url is not None:
            body["explorerUrl"] = f"{explorer_url}/tx/{transaction_hash}"
        if relayed.status is RelayStatus.FAILED:
            body["reason"] = relayed.reason
        return body


def _text(amount: int | None) -> str | None:
    return None if amount is None else str(amount)


class RelayRefusal(Answered):
    """Every answer that is no relay (spec 7.2)."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    error: str = Field(description="For people")
    code: str = Field(description="For programs")
    details: dict[str, Any] | None = Field(
        None, description="Facts by code; `errors` lists field faults as `field: reason`"
    )
