"""An example of every call that may be relayed, and a chain that answers its reads.

Data is encoded by eth-abi from the compiled ABI, signatures are made by eth-account.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eth_abi.abi import encode
from eth_account import Account

from ltzd.chain import typed_data
from ltzd.chain.contracts import contract_abi, ltz
from ltzd.chain.contracts.business_escrow import DEAL, Deal, DealStatus
from ltzd.chain.relayer.calls import DecodedRelay, RelayContracts, decode_relay
from ltzd.chain.typed_data import (
    Buy,
    Claim,
    Permit,
    Refund,
    Release,
    TransferWithAuthorization,
    TypedMessage,
)
from ltzd.rules.relayer.calls import RelayPlan, RelayRequest, SignedPermit
from ltzd.values import Address, address_of


class Person:
    def __init__(self, key: int) -> None:
        self.key = key.to_bytes(32, "big")
        self.address = address_of(str(Account.from_key(self.key).address))

    def sign(self, contract: str, message: TypedMessage) -> bytes:
        digest = typed_data.digest(message, CONTRACTS.separator(contract))
        return bytes(Account.unsafe_sign_hash(digest, self.key).signature)


USER, STRANGER = Person(0x1111), Person(0x2222)
OPERATORS: Final = (Address(b"\xa1" * 20), Address(b"\xa2" * 20))
CONTRACTS: Final = RelayContracts(
    chain_id=31337,
    ltz=Address(b"\xc1" * 20),
    perk_nft=Address(b"\xc2" * 20),
    points_sale=Address(b"\xc3" * 20),
    business_escrow=Address(b"\xc4" * 20),
)
AT: Final = CONTRACTS.by_name()
CHARGING: Final = ("PerkNFT", "PointsSale", "BusinessEscrow")

NONCE: Final = 20
DEADLINE: Final = 2_000_000_000
AMOUNT: Final = 5 * 10**18
REFERENCE: Final = b"\x5e" * 32
DEAL_ID: Final = b"\xde" * 32
SHOP: Final = Address(b"\x5b" * 20)
USERS_DEAL: Final = Deal(USER.address, AMOUNT, SHOP, DEADLINE, DealStatus.LOCKED)


@dataclass(frozen=True)
class Chain:
    """The contracts' answers."""

    nonce: int = NONCE
    allowance: int = 0
    deal: Deal = USERS_DEAL

    def answers(self, relay: DecodedRelay) -> list[bytes]:
        return [self._answer(to, data) for to, data in relay.required_views]

    def _answer(self, to: Address, data: bytes) -> bytes:
        if data[:4] == DEAL:
            assert to == CONTRACTS.business_escrow
            deal = self.deal
            row = (deal.user, deal.amount, deal.business, deal.refund_after, int(deal.status))
            return encode(["(address,uint96,address,uint40,uint8)"], [row])
        assert to == CONTRACTS.ltz
        number = {ltz.NONCES: self.nonce, ltz.ALLOWANCE: self.allowance}[data[:4]]
        return encode(["uint256"], [number])


def relayed(ask: RelayRequest, chain: Chain | None = None) -> RelayPlan:
    relay = decode_relay(ask, CONTRACTS)
    return relay.plan((chain or Chain()).answers(relay), OPERATORS)


def an_ask(contract: str, data: bytes, user: Address = USER.address, **more: Any) -> RelayRequest:
    return RelayRequest(AT[contract], data, user, **more)


def multicall(*calls: bytes) -> bytes:
    return contract_abi.encode_call("LTZ", "multicall", calls)


def split(signature: bytes) -> tuple[int, bytes, bytes]:
    return signature[64], signature[:32], signature[32:64]


def a_permit(
    spender: Address,
    value: int = AMOUNT,
    owner: Person = USER,
    nonce: int = NONCE,
    signer: Person | None = None,
) -> SignedPermit:
    message = Permit(owner.address, spender, value, nonce, DEADLINE)
    signature = (signer or owner).sign("LTZ", message)
    return SignedPermit(owner.address, spender, value, DEADLINE, signature)


def permit(given: SignedPermit) -> bytes:
    """The permit as a call of LTZ's `permit`."""
    arguments = (given.owner, given.spender, given.value, given.deadline)
    return contract_abi.encode_call("LTZ", "permit", *arguments, *split(given.signature))


def permit_ltz(given: SignedPermit) -> bytes:
    """The permit as a call of the spender's `permitLTZ`."""
    return contract_abi.encode_call(
        "PerkNFT", "permitLTZ", given.owner, given.value, given.deadline, *split(given.signature)
    )


def permit_for(contract: str, **how: Any) -> bytes:
    """A permit call on `contract`: LTZ's is for PerkNFT."""
    if contract == "LTZ":
        return permit(a_permit(AT["PerkNFT"], **how))
    return permit_ltz(a_permit(AT[contract], **how))


def transfer_from(owner: Address = USER.address, value: int = AMOUNT) -> bytes:
    return contract_abi.encode_call("LTZ", "transferFrom", owner, SHOP, value)


def _claim_for(user: Person) -> bytes:
    return contract_abi.encode_call("PerkNFT", "claimFor", user.address, 7, AMOUNT, 2, REFERENCE)


def claim_with_sig(user: Person, signer: Person | None = None) -> bytes:
    arguments = (user.address, 7, AMOUNT, 2, REFERENCE, DEADLINE)
    return contract_abi.encode_call(
        "PerkNFT", "claimWithSig", *arguments, (signer or user).sign("PerkNFT", Claim(*arguments))
    )


def _buy_for(user: Person) -> bytes:
    return contract_abi.encode_call("PointsSale", "buyFor", user.address, 9, 2, AMOUNT, REFERENCE)


def _buy_with_sig(user: Person, signer: Person | None = None) -> bytes:
    arguments = (user.address, 9, 2, AMOUNT, REFERENCE, DEADLINE)
    signature = (signer or user).sign("PointsSale", Buy(*arguments))
    return contract_abi.encode_call("PointsSale", "buyWithSig", *arguments, signature)


def _lock_for(user: Person) -> bytes:
    return contract_abi.encode_call(
        "BusinessEscrow", "lockFor", user.address, SHOP, AMOUNT, DEADLINE, DEAL_ID
    )


def _release_with_sig(user: Person, signer: Person | None = None) -> bytes:
    signature = (signer or user).sign("BusinessEscrow", Release(DEAL_ID, DEADLINE))
    return contract_abi.encode_call(
        "BusinessEscrow", "releaseWithSig", DEAL_ID, DEADLINE, signature
    )


def _refund_with_sig(user: Person, signer: Person | None = None) -> bytes:
    signature = (signer or user).sign("BusinessEscrow", Refund(DEAL_ID, DEADLINE))
    return contract_abi.encode_call("BusinessEscrow", "refundWithSig", DEAL_ID, DEADLINE, signature)


def _reclaim(_user: Person) -> bytes:
    return contract_abi.encode_call("BusinessEscrow", "reclaim", DEAL_ID)


def transfer_with_authorization(user: Person, signer: Person | None = None) -> bytes:
    message = TransferWithAuthorization(user.address, SHOP, AMOUNT, 0, DEADLINE, REFERENCE)
    arguments = (user.address, SHOP, AMOUNT, 0, DEADLINE, REFERENCE)
    signature = (signer or user).sign("LTZ", message)
    return contract_abi.encode_call(
        "LTZ", "transferWithAuthorization", *arguments, *split(signature)
    )


SIGNED: Final[dict[str, Callable[..., bytes]]] = {
    "PerkNFT.claimWithSig": claim_with_sig,
    "PointsSale.buyWithSig": _buy_with_sig,
    "BusinessEscrow.releaseWithSig": _release_with_sig,
    "BusinessEscrow.refundWithSig": _refund_with_sig,
    "LTZ.transferWithAuthorization": transfer_with_authorization,
}
MOVES: Final[dict[str, Callable[[Person], bytes]]] = {
    "PerkNFT.claimFor": _claim_for,
    "PointsSale.buyFor": _buy_for,
    "BusinessEscrow.lockFor": _lock_for,
    "BusinessEscrow.reclaim": _reclaim,
    **SIGNED,
}
"""All that may be relayed without a permit."""
PERMITS: Final[dict[str, Callable[[Person], bytes]]] = {
    "LTZ.permit": lambda user: permit_for("LTZ", owner=user),
    "PerkNFT.permitLTZ": lambda user: permit_for("PerkNFT", owner=user),
    "PointsSale.permitLTZ": lambda user: permit_for("PointsSale", owner=user),
    "BusinessEscrow.permitLTZ": lambda user: permit_for("BusinessEscrow", owner=user),
}
SPENDING: Final[dict[str, Callable[[Person], bytes]]] = {
    "LTZ.transferFrom": lambda user: multicall(
        permit(a_permit(OPERATORS[1], owner=user)), transfer_from(user.address)
    )
}
ROWS: Final = MOVES | PERMITS | SPENDING

FORBIDDEN: Final[Sequence[tuple[str, bytes]]] = [
    (contract, contract_abi.encode_call(contract, function, *arguments))
    for contract, function, arguments in [
        ("LTZ", "mintReward", (USER.address, AMOUNT, REFERENCE)),
        ("LTZ", "mintRewardBatch", ([(USER.address, AMOUNT, REFERENCE)],)),
        ("LTZ", "grantRole", (contract_abi.role_id("MINTER"), USER.address)),
        ("LTZ", "renounceRole", (contract_abi.role_id("MINTER"), OPERATORS[0])),
        ("LTZ", "approve", (USER.address, AMOUNT)),
        ("LTZ", "transfer", (USER.address, AMOUNT)),
        ("LTZ", "transferFrom", (USER.address, SHOP, AMOUNT)),
        ("LTZ", "transferFrom", (STRANGER.address, USER.address, AMOUNT)),
        ("LTZ", "burn", (AMOUNT,)),
        ("LTZ", "burnFrom", (USER.address, AMOUNT)),
        ("LTZ", "setMintLimit", (USER.address, AMOUNT, 60)),
        ("PerkNFT", "redeemCharge", (1, USER.address, 1, 1, REFERENCE)),
        ("PerkNFT", "setPayout", (1, USER.address)),
        ("PerkNFT", "setBrand", (1, USER.address)),
        ("PerkNFT", "claim", (1, AMOUNT, REFERENCE)),
        ("PerkNFT", "updateCollection", (1, 0, 0, 0, True)),
        ("PerkNFT", "transferFrom", (USER.address, SHOP, 1)),
        ("PerkNFT", "setApprovalForAll", (USER.address, True)),
        ("PerkNFT", "grantRole", (contract_abi.role_id("RELAYER"), USER.address)),
        ("PointsSale", "renounceRole", (contract_abi.role_id("RELAYER"), OPERATORS[0])),
        ("BusinessEscrow", "release", (DEAL_ID,)),
        ("BusinessEscrow", "refund", (DEAL_ID,)),
        ("BusinessEscrow", "lock", (SHOP, AMOUNT, DEADLINE, DEAL_ID)),
        ("BusinessEscrow", "split", (DEAL_ID, AMOUNT)),
        ("BusinessEscrow", "setBusiness", (USER.address, True)),
    ]
]
