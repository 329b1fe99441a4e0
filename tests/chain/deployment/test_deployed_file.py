"""The deployment file is written and read back; other files are refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from ltzd.chain.deployment import deployed_file
from ltzd.chain.deployment.plan import DeployedContract, Deployment
from ltzd.errors import Misconfigured
from ltzd.values import ZERO_ADDRESS, Address, Hash32, hex_of

GENESIS = Hash32(b"\x07" * 32)
AT = {
    name: Address(bytes((place,)) * 20)
    for place, name in enumerate(("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow"), start=1)
}
ALL = Deployment(
    31337,
    GENESIS,
    Address(b"\x09" * 20),
    12,
    {name: DeployedContract(address, nonce) for nonce, (name, address) in enumerate(AT.items())},
)
OF_0_1 = {"genesis": hex_of(GENESIS), "LTZ": hex_of(AT["LTZ"]), "firstBlock": 4}
"""As ltzd 0.1 left it in a data directory."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "contracts.json"


def test_a_written_deployment_is_read_back(path: Path) -> None:
    deployed_file.write(path, ALL)

    assert deployed_file.read(path) == ALL
    assert deployed_file.read_dev_file(path, 1) == ALL


def test_a_file_of_version_0_1_has_only_ltz(path: Path) -> None:
    path.write_text(json.dumps(OF_0_1))

    deployment = deployed_file.read_dev_file(path, 31337)

    contracts = {"LTZ": DeployedContract(AT["LTZ"])}
    assert deployment == Deployment(31337, GENESIS, ZERO_ADDRESS, 4, contracts)


def test_a_missing_file_is_no_deployment(path: Path) -> None:
    assert deployed_file.read(path) is None
    assert deployed_file.read_dev_file(path, 31337) is None


def without_ltz() -> dict[str, Any]:
    written = deployed_file.as_json(ALL)
    del written["contracts"]["LTZ"]
    return written


@pytest.mark.parametrize(
    "written",
    [
        *(7, [], None, "text", {}, without_ltz()),
        OF_0_1 | {"LTZ": 5},
        OF_0_1 | {"LTZ": "0x12"},
        OF_0_1 | {"firstBlock": None},
        deployed_file.as_json(ALL) | {"nonces": 5},
        deployed_file.as_json(ALL) | {"contracts": {"LTZ": 5}},
        deployed_file.as_json(ALL) | {"genesis": "0x12"},
    ],
)
def test_a_file_without_a_deployment_is_refused(path: Path, written: Any) -> None:
    path.write_text(json.dumps(written))

    with pytest.raises(Misconfigured, match="is not a deployment file"):
        deployed_file.read(path)
    with pytest.raises(Misconfigured, match="is not a deployment file"):
        deployed_file.read_dev_file(path, 31337)
