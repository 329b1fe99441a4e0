"""What a user asks to have relayed: decoded, held against the table and made a plan. No I/O.

An ask is a call, a permit, or a permit and the call behind it, of one contract; multicalls and
`metadata.permit` are ways to say so. What only the chain knows is asked by `Understood.questions`,
views (to, data) whose answers make the plan or refuse it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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

Question = tuple[Address, bytes]

_READERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "nonce": ltz.decode_uint,
    "allowance": ltz.decode_uint,
    "deal": business_escrow.decode_deal,
}


@dataclass(frozen=True, slots=True)
class RelayContracts:
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
        """Those that take LTZ by allowance."""
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
            allowed=[checksummed(one) for one in known.values()],
        )

    def separator(self, contract: str) -> bytes:
        return domain_separator(DOMAIN_NAMES[contract], self.chain_id, self.by_name()[contract])


@dataclass(frozen=True, slots=True)
class DecodedRelay:
    """An ask that keeps the rules as far as they can be judged without the chain.

    `main` is the call, or the permit if that is all there is. `permit` stood in the data or beside.
    """

    request: RelayRequest
    contracts: RelayContracts
    contract: str
    main: DecodedCall
    permit: SignedPermit | None

    @property
    def function(self) -> str:
        return self.main.row.name

    @property
    def serialized_per_user(self) -> bool:
        return self.main.row.serialized_per_user

    @property
    def claim(self) -> RequestedClaim | None:
        said = self.main.arguments
        if "expectedClaims" not in said:
            return None
        return RequestedClaim(said["id"], said["expectedClaims"])

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(self._questions().values())

    def plan(self, answers: Sequence[bytes], operators: Sequence[Address]) -> RelayPlan:
        """`answers` in the order of `questions`. Raises ValidationFailed, NodeUnavailable."""
        heard = self._heard(answers)
        self._check_deal(heard)
        return RelayPlan(
            wallet=self._wallet(operators),
            data=self._data(heard),
            to=self.request.to,
            user=self.request.user,
            function=self.function,
            serialized_per_user=self.serialized_per_user,
            claim=self.claim,
            inner_call=self._swallowed(heard),
        )

    def _swallowed(self, heard: Mapping[str, Any]) -> Question | None:
        """A permitLTZ that is all there is does something, or is not sent."""
        if (
            self.permit is None
            or self.contract == "LTZ"
            or self.main.row.role is not CallRole.PERMIT
        ):
            return None
        signed = signed_permit(self.permit, heard["nonce"], self.contracts.separator("LTZ"))
        if signed.nonce != heard["nonce"]:
            check_used(self.permit, None)
        return self.contracts.ltz, ltz.permit_call(signed, self.permit.signature)

    def _questions(self) -> dict[str, Question]:
        asked: dict[str, Question] = {}
        token, permit = self.contracts.ltz, self.permit
        if permit is not None:
            asked["nonce"] = token, ltz.nonces_call(permit.owner)
            if self.contract == "LTZ" and self.main.row.role is not CallRole.PERMIT:
                asked["allowance"] = token, ltz.allowance_call(permit.owner, permit.spender)
        if isinstance(self.main.row.principal, DealParty):
            deal = business_escrow.deal_call(self.main.arguments["dealId"])
            asked["deal"] = self.request.to, deal
        return asked

    def _heard(self, answers: Sequence[bytes]) -> dict[str, Any]:
        pairs = list(zip(self._questions(), answers, strict=True))
        try:
            return {topic: _READERS[topic](answer) for topic, answer in pairs}
        except ValueError as error:
            raise NodeUnavailable("The node's answer is not what the contract returns") from error

    def _check_deal(self, heard: Mapping[str, Any]) -> None:
        principal = self.main.row.principal
        if not isinstance(principal, DealParty):
            return
        deal = heard["deal"]
        if deal.status is DealStatus.NONE:
            raise ValidationFailed(
                "There is no such deal", dealId=hex_of(self.main.arguments["dealId"])
            )
        if self.request.user != (deal.user if principal is DealParty.USER else deal.business):
            raise _foreign(self.main, principal.value, self.request.user)

    def _wallet(self, operators: Sequence[Address]) -> Address | None:
        if self.main.row.role is not CallRole.SPENDING or self.permit is None:
            return None
        if self.permit.spender not in operators:
            raise ValidationFailed(
                "The spender of a permit for transferFrom must be a wallet of the operator",
                spender=checksummed(self.permit.spender),
                allowed=[checksummed(one) for one in operators],
            )
        return self.permit.spender

    def _data(self, heard: Mapping[str, Any]) -> bytes:
        """The bytes as given, unless a permit is to be put before them or is used up."""
        if self.permit is None:
            return self.request.data
        signed = signed_permit(self.permit, heard["nonce"], self.contracts.separator("LTZ"))
        if self.contract == "LTZ" and signed.nonce != heard["nonce"]:
            check_used(self.permit, heard.get("allowance"))
            return self.main.data
        if self.request.permit is None:
            return self.request.data
        encode = ltz.permit_call if self.contract == "LTZ" else relayed.permit_ltz_call
        return relayed.multicall([encode(signed, self.permit.signature), self.main.data])


def decode_relay(request: RelayRequest, contracts: RelayContracts) -> DecodedRelay:
    """Raises ContractNotWhitelisted, ValidationFailed."""
    contract = contracts.name_of(request.to)
    permit, main = _arranged(contract, request)
    asked = DecodedRelay(request, contracts, contract, main, permit)
    _check_principal(asked)
    _check_permit(asked)
    _check_limits(request)
    return asked


def _arranged(contract: str, request: RelayRequest) -> tuple[SignedPermit | None, DecodedCall]:
    calls = calls_in(contract, request.data)
    permits = [each for each in calls if each.row.role is CallRole.PERMIT]
    moves = [each for each in calls if each.row.role is not CallRole.PERMIT]
    if len(permits) > 1 or len(moves) > 1 or calls != permits + moves:
        raise ValidationFailed(
            "A multicall holds one call, or one permit and the call behind it",
            contract=contract,
            functions=[each.row.function for each in calls],
        )
    if permits and request.permit is not None:
        raise ValidationFailed("There is a permit in the data and in metadata.permit: two permits")
    permit = permit_in(permits[0], request.to) if permits else request.permit
    return permit, (moves or permits)[0]


def _check_principal(asked: DecodedRelay) -> None:
    main, user = asked.main, asked.request.user
    principal, message = main.row.principal, main.row.signs
    if not isinstance(principal, DealParty) and main.arguments[principal] != user:
        raise _foreign(main, principal, user)
    if message is not None:
        check_signature(main, message, user, asked.contracts.separator(asked.contract))


def _check_permit(asked: DecodedRelay) -> None:
    permit, main, contract = asked.permit, asked.main, asked.contract
    if permit is None:
        if main.row.role is CallRole.SPENDING:
            raise ValidationFailed(f"{main.row.name} must follow its permit in one multicall")
        return
    check_owner(permit, asked.request.user)
    if main.row.role is CallRole.SPENDING:
        check_spent_whole(permit, main)  # Its spender is left to the plan, which knows the wallets.
    elif contract != "LTZ":
        check_spender(permit, [asked.request.to])
    elif asked.request.permit is None:
        check_spender(permit, asked.contracts.spenders())
    else:
        raise ValidationFailed("On LTZ metadata.permit serves transferFrom alone")


def _check_limits(request: RelayRequest) -> None:
    if request.value != 0:
        raise ValidationFailed("A relayed call carries no native value", value=str(request.value))
    check_gas_limit(request.data, request.gas_limit)


def _foreign(call: DecodedCall, principal: str, user: Address) -> ValidationFailed:
    return ValidationFailed(
        f"{call.row.name}: {principal} must be the authenticated user",
        contract=call.row.contract,
        function=call.row.function,
        userAddress=checksummed(user),
    )
