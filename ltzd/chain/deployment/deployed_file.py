"""The file that keeps a deployment: JSON, written whole and durably or not at all.

The file holds no secret. Besides the addresses it keeps what a later run needs to continue.
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
    """The deployment, or None if there is no such file. Raises Misconfigured."""
    try:
        return _deployment(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Misconfigured(
            f"{path} is not a deployment file; name another file, or correct it."
        ) from error


def _deployment(document: dict[str, Any]) -> Deployment:
    """Raises ValueError, KeyError, TypeError or AttributeError."""
    contracts = {
        name: DeployedContract(
            address_of(document["contracts"][name]), _nonce(document["nonces"].get(name))
        )
        for name in artifacts.CONTRACTS
        if name in document["contracts"]
    }
    if contracts and "LTZ" not in contracts:
        raise ValueError("the other contracts hold the address of LTZ")
    deployer = address_of(document["deployer"])
    chain_id, first_block = int(document["chainId"]), int(document["firstBlock"])
    return Deployment(chain_id, hash_of(document["genesis"]), deployer, first_block, contracts)


def _nonce(value: Any) -> int | None:
    return None if value is None else int(value)


def read_dev_file(path: Path, chain_id: int) -> Deployment | None:
    """As `read`, and reads the files of ltzd 0.1, which hold only LTZ and no chain id."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "LTZ" not in document:
            return read(path)
        contracts = {"LTZ": DeployedContract(address_of(document["LTZ"]))}
        genesis, first_block = hash_of(document["genesis"]), int(document["firstBlock"])
        return Deployment(chain_id, genesis, ZERO_ADDRESS, first_block, contracts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return read(path)


def write(path: Path, deployment: Deployment) -> None:
    """Raises Misconfigured."""
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(json.dumps(as_json(deployment), indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path)
    except OSError as error:
        raise Misconfigured(f"{path} cannot be written: {error.strerror}.") from error


def _sync_folder(path: Path) -> None:
    """Make the renaming of the file durable."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
