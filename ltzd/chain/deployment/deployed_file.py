"""The file that remembers a deployment: JSON, written whole and durably or not at all.

It holds no secret. Besides the addresses it keeps what another run needs to go on with this one.
"""

import json
import os
from pathlib import Path
from typing import Any

from ltzd.chain.contracts import artifacts
from ltzd.chain.deployment.plan import DeployedContract, Deployment
from ltzd.errors import Misconfigured
from ltzd.values import ZERO_ADDRESS, address_of, checksummed, hash_of, hex_of


def as_json(deployment: Deployment) -> dict[str, Any]:
    return {
        "chainId": deployment.chain_id,
        "genesis": hex_of(deployment.genesis),
        "firstBlock": deployment.first_block,
        "contracts": {
            name: checksummed(contracts.address) for name, contracts in deployment.contracts.items()
        },
        "deployer": checksummed(deployment.deployer),
        "nonces": {name: contracts.nonce for name, contracts in deployment.contracts.items()},
    }


def read(path: Path) -> Deployment | None:
    """None if there is no such file. Raises Misconfigured."""
    try:
        return _deployment(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Misconfigured(
            f"{path} does not tell of a deployment; name another file, or put it right."
        ) from error


def _deployment(said: dict[str, Any]) -> Deployment:
    """Raises ValueError, KeyError, TypeError or AttributeError."""
    contracts = {
        name: DeployedContract(
            address_of(said["contracts"][name]), _nonce(said["nonces"].get(name))
        )
        for name in artifacts.CONTRACTS
        if name in said["contracts"]
    }
    if contracts and "LTZ" not in contracts:
        raise ValueError("the others hold the address of LTZ")
    deployer = address_of(said["deployer"])
    chain_id, first_block = int(said["chainId"]), int(said["firstBlock"])
    return Deployment(chain_id, hash_of(said["genesis"]), deployer, first_block, contracts)


def _nonce(said: Any) -> int | None:
    return None if said is None else int(said)


def read_dev_file(path: Path, chain_id: int) -> Deployment | None:
    """As `read`; ltzd 0.1 wrote down LTZ alone, and no chain id."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if "LTZ" not in said:
            return read(path)
        contracts = {"LTZ": DeployedContract(address_of(said["LTZ"]))}
        genesis, first_block = hash_of(said["genesis"]), int(said["firstBlock"])
        return Deployment(chain_id, genesis, ZERO_ADDRESS, first_block, contracts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return read(path)


def write(path: Path, deployment: Deployment) -> None:
    """Raises Misconfigured."""
    unfinished = path.with_name(path.name + ".new")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(json.dumps(as_json(deployment), indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        _keep_the_name(path)
    except OSError as error:
        raise Misconfigured(f"{path} cannot be written: {error.strerror}.") from error


def _keep_the_name(path: Path) -> None:
    """A file that was replaced is durable once its folder is."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
