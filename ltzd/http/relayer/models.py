"""The request and responses of /relay (spec 2.7)."""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import ConfigDict, Field, ValidationError, model_validator

from ltzd.chain.typed_data import signature_of
from ltzd.errors import InvalidFields, MissingFields
from ltzd.http.models import RequestModel, ResponseModel
from ltzd.http.requests.fields import (
    AddressText,
    HexData,
    HexWord,
    IdempotencyKey,
    Natural,
    RecoveryId,
    Uint256,
    Uint256Text,
    faults_in,
    uint256_of,
)
from ltzd.http.requests.idempotency_key import key_faults
from ltzd.rules.relayer.calls import RelayProgress, RelayRequest, RelayStatus, SignedPermit
from ltzd.values import address_of, bytes_of, checksummed, hex_of

REQUIRED = ("to", "data", "userAddress")

Label = Annotated[str, Field(max_length=200)]


class RelayPermit(RequestModel):
    """An EIP-2612 permit, executed before the call in the same transaction."""

    owner: AddressText
    spender: AddressText
    value: Uint256Text = Field(description="In LTZ's smallest unit; below 2^256")
    deadline: Uint256 = Field(description="Unix seconds; below 2^256")
    v: RecoveryId
    r: HexWord
    s: HexWord

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, permit: Any) -> Any:
        """Report null as a missing field."""
        if not isinstance(permit, dict):
            return permit
        return {name: value for name, value in permit.items() if value is not None}

    def to_permit(self) -> SignedPermit:
        return SignedPermit(
            owner=address_of(self.owner),
            spender=address_of(self.spender),
            value=uint256_of(self.value),
            deadline=self.deadline,
            signature=signature_of(self.v, int(self.r, 16), int(self.s, 16)),
        )


class RelayMetadata(RequestModel):
    """Context of a call. `action` and `perkId` are free text of the caller's."""

    action: Label | None = None
    perk_id: Label | None = None
    idempotency_key: IdempotencyKey | None = Field(
        None,
        description="Printable characters. For browsers, which may not send the Idempotency-Key "
        "header",
    )
    permit: RelayPermit | None = None


class RelayBody(RequestModel):
    """A call for the operator to send (spec 2.7)."""

    to: AddressText = Field(description="PerkNFT, LTZ, PointsSale or BusinessEscrow")
    data: HexData = Field(description="The encoded call")
    user_address: AddressText = Field(description="A wallet of the token's user")
    value: Uint256Text | None = Field(None, description="In wei; only 0, the default, is allowed")
    gas_limit: Natural | None = Field(
        None,
        description="Default: estimated. At most 1,000,000; at least the intrinsic cost of the "
        "data, 21,000 and 10 for each zero byte and 40 for each other byte",
    )
    metadata: RelayMetadata | None = None

    def to_request(self, idempotency_key: str | None, fingerprint: bytes) -> RelayRequest:
        permit = None if self.metadata is None else self.metadata.permit
        return RelayRequest(
            to=address_of(self.to),
            data=bytes_of(self.data),
            user=address_of(self.user_address),
            value=uint256_of(self.value or "0"),
            gas_limit=self.gas_limit,
            permit=None if permit is None else permit.to_permit(),
            idempotency_key=idempotency_key,
            fingerprint=fingerprint,
        )


def relay_request(body: dict[str, Any], key_headers: Sequence[str]) -> RelayRequest:
    """`key_headers` are the request's Idempotency-Key lines.

    Raises MissingFields before anything else, and InvalidFields with every fault.
    """
    missing = [name for name in REQUIRED if body.get(name) is None]
    if missing:
        raise MissingFields(missing)
    in_body = _key_in(body)
    faults = _all_key_faults(key_headers, in_body)
    try:
        call = RelayBody.model_validate(body)
    except ValidationError as error:
        raise InvalidFields([*faults_in(error), *faults]) from None
    if faults:
        raise InvalidFields(faults)
    key = key_headers[0] if key_headers else in_body
    return call.to_request(key, fingerprint(body))


def _key_in(body: dict[str, Any]) -> Any:
    metadata = body.get("metadata")
    return metadata.get("idempotencyKey") if isinstance(metadata, dict) else None


def _all_key_faults(headers: Sequence[str], in_body: object) -> list[str]:
    """Faults of the header, and a difference between header and body.

    The model checks the key in the body.
    """
    faults = key_faults(headers)
    if not faults and headers and in_body is not None and in_body != headers[0]:
        return ["metadata.idempotencyKey: must be the same as in the Idempotency-Key header"]
    return faults


def fingerprint(body: dict[str, Any]) -> bytes:
    """A hash of the content, without the idempotency key.

    Independent of the order of fields and of whitespace. A null field is absent, and so is metadata
    in which nothing is left: the key may be in the header one time and in metadata the next.
    """
    content = _present(body)
    if isinstance(body.get("metadata"), dict):
        content["metadata"] = _present(body["metadata"])
        content["metadata"].pop("idempotencyKey", None)
        if not content["metadata"]:
            del content["metadata"]
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).digest()


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class RelayResponse(ResponseModel):
    """A relay in its present state (spec 2.7).

    The facts of its block and receipt are null until it is mined.
    """

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    success: bool = Field(description="False once the transaction has failed on chain")
    transaction_hash: str = Field(
        description="Hash of a transaction that a node has accepted. A replacement changes it; "
        "every earlier hash still finds the relay"
    )
    gas_used: str | None
    effective_gas_price: str | None = Field(description="Wei per gas")
    block_number: int | None
    from_: str = Field(alias="from", description="The operator's wallet")
    to: str
    status: Literal["pending", "confirmed", "final", "failed"]
    explorer_url: str | None = Field(
        None, description="Present if an explorer is configured or known for the chain"
    )
    reason: str | None = Field(None, description="Why the transaction failed")

    @staticmethod
    def body(relay: RelayProgress, explorer_url: str | None) -> dict[str, object]:
        assert relay.transaction_hash is not None, (
            "a relay that no node has accepted is RelayPending"
        )
        assert relay.sender is not None
        transaction_hash = hex_of(relay.transaction_hash)
        body: dict[str, object] = {
            "success": relay.status is not RelayStatus.FAILED,
            "transactionHash": transaction_hash,
            "gasUsed": _text(relay.gas_used),
            "effectiveGasPrice": _text(relay.effective_gas_price),
            "blockNumber": relay.block_number,
            "from": checksummed(relay.sender),
            "to": checksummed(relay.to),
            "status": relay.status.value,
        }
        if explorer_url is not None:
            body["explorerUrl"] = f"{explorer_url}/tx/{transaction_hash}"
        if relay.status is RelayStatus.FAILED:
            body["reason"] = relay.reason
        return body


def _text(amount: int | None) -> str | None:
    return None if amount is None else str(amount)
