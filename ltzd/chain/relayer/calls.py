"""Decodes a relay request, checks it against the table of allowed calls and plans it, without I/O.

A request is a call, a permit, or a permit followed by a call, of one contract. A permit comes in a
multicall or as `metadata.permit`. Some checks need facts from the chain: the caller reads the
`required_views` and hands their results to `plan`, which accepts or refuses the request.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ltzd.chain.contracts import business_escrow, ltz, relayed
from ltzd.chain.contracts.business_escrow import DealStatus
from ltzd.chain.relayer.decoding import DecodedCall, calls_in
from ltzd.chain.relayer.permits import (
    check_owner,
    check_spender,
    check_spent_whole,
    check_used,
    permit_in,
    signed_permit,
)
from ltzd.chain.relayer.signatures import check_signature
from ltzd.chain.typed_data import DOMAIN_NAMES, domain_separator
from ltzd.errors import ContractNotWhitelisted, NodeUnavailable, ValidationFailed
from ltzd.rules.relayer.allowed_calls import CallRole, DealParty
from ltzd.rules.relayer.calls import RelayPlan, RelayRequest, RequestedClaim, SignedPermit
from ltzd.rules.relayer.limits import check_gas_limit
from ltzd.values import Address, checksummed, hex_of

ViewCall = tuple[Address, bytes]
"""A contract and call data for `eth_call`."""

_DECODERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "nonce": ltz.decode_uint,
    "allowance": ltz.decode_uint,
    "deal": business_escrow.decode_deal,
}


class RelayContracts(msgspec.Struct, frozen=True):
    """The whitelisted contracts of one chain."""

    chain_id: int
    ltz: Address
    perk_nft: Address
    points_sale: Address
    business_escrow: Address

    def by_name(self) -> dict[str, Address]:
        return {
            "PerkNFT": self.perk_nft,
            "LTZ": self.ltz,
            "PointsSale": self.points_sale,
            "BusinessEscrow": self.business_escrow,
        }

    def spenders(self) -> list[Address]:
        """Contracts that take LTZ by allowance."""
        return [address for name, address in self.by_name().items() if name != "LTZ"]

    def name_of(self, contract: Address) -> str:
        """Raises ContractNotWhitelisted."""
        known = self.by_name()
        for name, address in known.items():
            if address == contract:
                return name
        raise ContractNotWhitelisted(
            "The contract is not whitelisted",
            contract=checksummed(contract),
            allowed=[checksummed(address) for address in known.values()],
        )

    def separator(self, contract: str) -> bytes:
        """The contract's EIP-712 domain separator."""
        return domain_separator(DOMAIN_NAMES[contract], self.chain_id, self.by_name()[contract])


class DealParties(msgspec.Struct, frozen=True):
    """The parties of a deal never change after its lock."""

    user: Address
    business: Address


class DecodedRelay(msgspec.Struct, frozen=True):
    """A request that passes all checks that need no facts from the chain.

    `main` is the call, or the permit of a request without a call. `permit` is the permit of the
    data or of `metadata.permit`. `deal_parties` are of the call's deal, if the caller knows them;
    without them the deal is one of the `required_views`.
    """

    request: RelayRequest
    contracts: RelayContracts
    contract: str
    main: DecodedCall
    permit: SignedPermit | None
    deal_parties: DealParties | None = None

    @property
    def deal_id(self) -> bytes | None:
        """The id of the deal whose parties `plan` must know, if the call is of one."""
        if not isinstance(self.main.row.principal, DealParty):
            return None
        deal_id: bytes = self.main.arguments["dealId"]
        return deal_id

    @property
    def function(self) -> str:
        return self.main.row.name

    @property
    def serialized_per_user(self) -> bool:
        return self.main.row.serialized_per_user

    @property
    def claim(self) -> RequestedClaim | None:
        """The claim of a perk that the call makes, if it makes one."""
        arguments = self.main.arguments
        if "expectedClaims" not in arguments:
            return None
        return RequestedClaim(arguments["id"], arguments["expectedClaims"])

    @property
    def required_views(self) -> tuple[ViewCall, ...]:
        """Views whose results `plan` needs."""
        return tuple(self._views().values())

    def plan(
        self,
        results: Sequence[bytes],
        operators: Sequence[Address],
        offered: Sequence[Address] | None = None,
    ) -> RelayPlan:
        """Decide with `results`, which are in the order of `required_views`.

        A permit for `transferFrom` may name any of the `operators`; a refusal names the `offered`
        ones of them, by default all. Raises ValidationFailed, and NodeUnavailable for a malformed
        result.
        """
        facts = self._decode_results(results)
        self._check_deal(facts)
        return RelayPlan(
            wallet=self._wallet(operators, operators if offered is None else offered),
            data=self._data(facts),
            to=self.request.to,
            user=self.request.user,
            function=self.function,
            serialized_per_user=self.serialized_per_user,
            claim=self.claim,
            inner_call=self._inner_call(facts),
        )

    def _inner_call(self, facts: Mapping[str, Any]) -> ViewCall | None:
        """The `permit` that a lone `permitLTZ` must carry out: without effect it is not sent."""
        if (
            self.permit is None
            or self.contract == "LTZ"
            or self.main.row.role is not CallRole.PERMIT
        ):
            return None
        signed = signed_permit(self.permit, facts["nonce"], self.contracts.separator("LTZ"))
        if signed.nonce != facts["nonce"]:
            check_used(self.permit, None)
        return self.contracts.ltz, ltz.permit_call(signed, self.permit.signature)

    def _views(self) -> dict[str, ViewCall]:
        views: dict[str, ViewCall] = {}
        token, permit = self.contracts.ltz, self.permit
        if permit is not None:
            views["nonce"] = token, ltz.nonces_call(permit.owner)
            if self.contract == "LTZ" and self.main.row.role is not CallRole.PERMIT:
                views["allowance"] = token, ltz.allowance_call(permit.owner, permit.spender)
        if self.deal_id is not None and self.deal_parties is None:
            views["deal"] = self.request.to, business_escrow.deal_call(self.deal_id)
        return views

    def _decode_results(self, results: Sequence[bytes]) -> dict[str, Any]:
        pairs = list(zip(self._views(), results, strict=True))
        try:
            return {name: _DECODERS[name](result) for name, result in pairs}
        except ValueError as error:
            raise NodeUnavailable(
                "The node's answer is not what the contract returns", kind="malformed"
            ) from error

    def _check_deal(self, facts: Mapping[str, Any]) -> None:
        principal = self.main.row.principal
        if not isinstance(principal, DealParty):
            return
        deal = self.deal_parties or self._deal_on_chain(facts)
        if self.request.user != (deal.user if principal is DealParty.USER else deal.business):
            raise _foreign(self.main, principal.value, self.request.user)

    def _deal_on_chain(self, facts: Mapping[str, Any]) -> DealParties:
        deal = facts["deal"]
        if deal.status is DealStatus.NONE:
            raise ValidationFailed(
                "There is no such deal", dealId=hex_of(self.main.arguments["dealId"])
            )
        return DealParties(deal.user, deal.business)

    def _wallet(self, operators: Sequence[Address], offered: Sequence[Address]) -> Address | None:
        if self.main.row.role is not CallRole.SPENDING or self.permit is None:
            return None
        if self.permit.spender not in operators:
            raise ValidationFailed(
                "The spender of a permit for transferFrom must be a wallet of the operator",
                spender=checksummed(self.permit.spender),
                allowed=[checksummed(operator) for operator in offered],
            )
        return self.permit.spender

    def _data(self, facts: Mapping[str, Any]) -> bytes:
        """The data to send: as given, with `metadata.permit` in front, or without a used permit."""
        if self.permit is None:
            return self.request.data
        signed = signed_permit(self.permit, facts["nonce"], self.contracts.separator("LTZ"))
        if self.contract == "LTZ" and signed.nonce != facts["nonce"]:
            check_used(self.permit, facts.get("allowance"))
            return self.main.data
        if self.request.permit is None:
            return self.request.data
        encode = ltz.permit_call if self.contract == "LTZ" else relayed.permit_ltz_call
        return relayed.multicall([encode(signed, self.permit.signature), self.main.data])


def decode_relay(request: RelayRequest, contracts: RelayContracts) -> DecodedRelay:
    """Raises ContractNotWhitelisted, ValidationFailed."""
    contract = contracts.name_of(request.to)
    permit, main = _split_permit(contract, request)
    relay = DecodedRelay(request, contracts, contract, main, permit)
    _check_principal(relay)
    _check_permit(relay)
    _check_limits(request)
    return relay


def _split_permit(contract: str, request: RelayRequest) -> tuple[SignedPermit | None, DecodedCall]:
    calls = calls_in(contract, request.data)
    permits = [call for call in calls if call.row.role is CallRole.PERMIT]
    others = [call for call in calls if call.row.role is not CallRole.PERMIT]
    if len(permits) > 1 or len(others) > 1 or calls != permits + others:
        raise ValidationFailed(
            "A multicall must hold one call, or one permit followed by one call",
            contract=contract,
            functions=[call.row.function for call in calls],
        )
    if permits and request.permit is not None:
        raise ValidationFailed("Both the data and metadata.permit hold a permit: send one")
    permit = permit_in(permits[0], request.to) if permits else request.permit
    return permit, (others or permits)[0]


def _check_principal(relay: DecodedRelay) -> None:
    main, user = relay.main, relay.request.user
    principal, message = main.row.principal, main.row.signs
    if not isinstance(principal, DealParty) and main.arguments[principal] != user:
        raise _foreign(main, principal, user)
    if message is not None:
        check_signature(main, message, user, relay.contracts.separator(relay.contract))


def _check_permit(relay: DecodedRelay) -> None:
    permit, main, contract = relay.permit, relay.main, relay.contract
    if permit is None:
        if main.row.role is CallRole.SPENDING:
            raise ValidationFailed(f"{main.row.name} must follow its permit in one multicall")
        return
    check_owner(permit, relay.request.user)
    if main.row.role is CallRole.SPENDING:
        check_spent_whole(permit, main)  # `plan` checks the spender: it knows the wallets.
    elif contract != "LTZ":
        check_spender(permit, [relay.request.to])
    elif relay.request.permit is None:
        check_spender(permit, relay.contracts.spenders())
    else:
        raise ValidationFailed("On LTZ metadata.permit is allowed only with transferFrom")


def _check_limits(request: RelayRequest) -> None:
    if request.value != 0:
        raise ValidationFailed(
            "A relayed call must not carry native value", value=str(request.value)
        )
    check_gas_limit(request.data, request.gas_limit)


def _foreign(call: DecodedCall, principal: str, user: Address) -> ValidationFailed:
    return ValidationFailed(
        f"{call.row.name}: {principal} must be the authenticated user",
        contract=call.row.contract,
        function=call.row.function,
        userAddress=checksummed(user),
    )
