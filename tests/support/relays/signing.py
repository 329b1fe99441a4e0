"""EIP-712 signatures of users' wallets, by eth-account from the specification's type strings."""

import secrets
from dataclasses import dataclass, replace
from typing import Any

from eth_account.signers.local import LocalAccount

from tests.support.instances.chain import HOUR, Chain
from tests.support.relays.calls import call

_NAMES = {"LTZ": "Loyalty Token"}
_AUTHORIZATION = (
    "address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce"
)
_TYPES = {
    "Permit": "address owner,address spender,uint256 value,uint256 nonce,uint256 deadline",
    "TransferWithAuthorization": _AUTHORIZATION,
    "Claim": "address user,uint256 collectionId,uint256 maxPrice,uint256 expectedClaims,"
    "bytes32 ref,uint256 deadline",
    "Buy": "address buyer,uint256 itemId,uint256 quantity,uint256 maxTotal,bytes32 ref,"
    "uint256 deadline",
    "Release": "bytes32 dealId,uint256 deadline",
    "Refund": "bytes32 dealId,uint256 deadline",
}


def a_word() -> bytes:
    """32 random bytes: a reference, a deal's id, a nonce."""
    return secrets.token_bytes(32)


def signature(chain: Chain, by: LocalAccount, contract: str, kind: str, *values: object) -> bytes:
    """Signs the fields of `kind`, in their order; returns 65 bytes."""
    fields = [field.split(" ") for field in _TYPES[kind].split(",")]
    domain = {
        "name": _NAMES.get(contract, contract),
        "version": "1",
        "chainId": chain.id,
        "verifyingContract": chain.contracts[contract],
    }
    types = {kind: [{"name": name, "type": solidity} for solidity, name in fields]}
    message = {name: value for (_, name), value in zip(fields, values, strict=True)}
    return bytes(by.sign_typed_data(domain, types, message).signature)


@dataclass(frozen=True)
class Permit:
    owner: str
    spender: str
    value: int
    deadline: int
    v: int
    r: bytes
    s: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The permit as `metadata.permit` of spec 2.7."""
        return {
            "owner": self.owner,
            "spender": self.spender,
            "value": str(self.value),
            "deadline": self.deadline,
            "v": self.v,
            "r": "0x" + self.r.hex(),
            "s": "0x" + self.s.hex(),
        }

    def but(self, **changes: Any) -> "Permit":
        """Changes the permit after it was signed."""
        return replace(self, **changes)

    @property
    def call(self) -> bytes:
        """LTZ's own `permit`."""
        return call("LTZ", "permit", self.owner, self.spender, *self._rest)

    def call_on(self, contract: str) -> bytes:
        """`permitLTZ` of the contract that is the spender."""
        return call(contract, "permitLTZ", self.owner, *self._rest)

    @property
    def _rest(self) -> tuple[int, int, int, bytes, bytes]:
        return (self.value, self.deadline, self.v, self.r, self.s)


async def permit(
    chain: Chain, by: LocalAccount, spender: str, value: int, seconds: int = HOUR
) -> Permit:
    """Signs a permit with the owner's nonce on chain, valid for an hour by default."""
    deadline = await chain.now() + seconds
    nonce = await chain.view("LTZ", "nonces", by.address)
    raw = signature(chain, by, "LTZ", "Permit", by.address, spender, value, nonce, deadline)
    return Permit(by.address, spender, value, deadline, raw[64], raw[:32], raw[32:64])


async def claim_with_sig(
    chain: Chain,
    by: LocalAccount,
    user: str,
    collection: int,
    *,
    most: int = 0,
    claims: int = 0,
    signed_collection: int | None = None,
) -> bytes:
    ref, deadline = a_word(), await chain.now() + HOUR
    signed = (user, signed_collection or collection, most, claims, ref, deadline)
    sig = signature(chain, by, "PerkNFT", "Claim", *signed)
    arguments = (user, collection, most, claims, ref, deadline)
    return call("PerkNFT", "claimWithSig", *arguments, sig)


async def buy_with_sig(
    chain: Chain, by: LocalAccount, buyer: str, item: int, quantity: int, most: int
) -> bytes:
    arguments = (buyer, item, quantity, most, a_word(), await chain.now() + HOUR)
    sig = signature(chain, by, "PointsSale", "Buy", *arguments)
    return call("PointsSale", "buyWithSig", *arguments, sig)


async def settle_with_sig(chain: Chain, by: LocalAccount, kind: str, deal: bytes) -> bytes:
    """`kind` is Release or Refund."""
    deadline = await chain.now() + HOUR
    sig = signature(chain, by, "BusinessEscrow", kind, deal, deadline)
    return call("BusinessEscrow", f"{kind.lower()}WithSig", deal, deadline, sig)


async def transfer(
    chain: Chain, by: LocalAccount, source: str, to: str, value: int, nonce: bytes | None = None
) -> bytes:
    """`transferWithAuthorization` from `source`, signed by `by`."""
    arguments = (source, to, value, 0, await chain.now() + HOUR, nonce or a_word())
    sig = signature(chain, by, "LTZ", "TransferWithAuthorization", *arguments)
    return call("LTZ", "transferWithAuthorization", *arguments, sig[64], sig[:32], sig[32:64])
