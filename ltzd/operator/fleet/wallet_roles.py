"""Reads from the contracts which of the roles that its kind needs a wallet lacks."""

from collections.abc import Mapping, Sequence

from ltzd.chain.contracts.access_control import decode_has_role, has_role_call
from ltzd.chain.deployment.plan import hot_roles
from ltzd.chain.node.answers.typed import Revert
from ltzd.operator.policy import MINT
from ltzd.values import Address


def role_calls(
    contracts: Mapping[str, Address], wallet: Address, kind: str
) -> list[tuple[Address, bytes]]:
    """The calls whose answers `missing_roles` reads; `contracts` has addresses by name."""
    roles = hot_roles(is_mint=kind == MINT)
    return [(contracts[contract], has_role_call(role, wallet)) for contract, role in roles]


def missing_roles(answers: Sequence[bytes | Revert], kind: str) -> tuple[str, ...]:
    """Names such as `LTZ.MINTER`. A contract that reverts is not asked for roles.

    Raises ValueError for an answer of another form.
    """
    return tuple(
        f"{contract}.{role}"
        for (contract, role), answer in zip(hot_roles(is_mint=kind == MINT), answers, strict=False)
        if not isinstance(answer, Revert) and not decode_has_role(answer)
    )
