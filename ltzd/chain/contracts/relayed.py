"""Calls that PerkNFT, PointsSale and BusinessEscrow share (contracts/src/IRelayed.sol)."""

from collections.abc import Sequence

from ltzd.chain.contracts import abi_words
from ltzd.chain.typed_data import Permit

MULTICALL = abi_words.selector("multicall(bytes[])")
PERMIT_LTZ = abi_words.selector("permitLTZ(address,uint256,uint256,uint8,bytes32,bytes32)")


def multicall(calls: Sequence[bytes]) -> bytes:
    """Encode calls that succeed or revert together. LTZ has this function too."""
    return MULTICALL + abi_words.encode_uint(32) + abi_words.encode_bytes_list(calls)


def permit_ltz_call(permit: Permit, signature: bytes) -> bytes:
    """Leave out the spender, which is the called contract, and the nonce, which LTZ knows."""
    return b"".join(
        (
            PERMIT_LTZ,
            abi_words.encode_address(permit.owner),
            abi_words.encode_uint(permit.value),
            abi_words.encode_uint(permit.deadline),
            signature_words(signature),
        )
    )


def signature_words(signature: bytes) -> bytes:
    """The arguments v, r, s of a signature of 65 bytes. Raises ValueError."""
    if len(signature) != 65:
        raise ValueError(f"a signature has 65 bytes, this has {len(signature)}")
    return abi_words.encode_uint(signature[64], 8) + signature[:64]
