"""The section `contracts` by the file of `ltzd deploy`."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ltzd.daemon.settings.contracts import ContractSettings

NAMES = ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow")
DEPLOYED: dict[str, Any] = {
    "contracts": {name: "0x" + f"{number:040x}" for number, name in enumerate(NAMES, 1)},
    "firstBlock": 7,
}


def settings_of(folder: Path, document: object, **others: object) -> ContractSettings:
    file = folder / "contracts.json"
    file.write_text(json.dumps(document))
    return ContractSettings.model_validate({"file": str(file), **others})


def test_the_file_names_all_four_and_the_first_block(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, DEPLOYED)
    assert [int.from_bytes(address) for address in settings.addresses().values()] == [1, 2, 3, 4]
    assert settings.first_block == 7


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        "no",
        {"contracts": 7},
        {"contracts": DEPLOYED["contracts"]},
        {**DEPLOYED, "contracts": {"LTZ": "0x" + "11" * 20}},
    ],
)
def test_a_file_of_an_unfinished_deployment_is_refused(tmp_path: Path, document: object) -> None:
    with pytest.raises(ValidationError, match="run `ltzd deploy` again, to its end"):
        settings_of(tmp_path, document)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="run `ltzd deploy` first"):
        ContractSettings.model_validate({"file": str(tmp_path / "none.json")})


def test_an_address_beside_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="remove ltz, or file"):
        settings_of(tmp_path, DEPLOYED, ltz="0x" + "11" * 20)


def test_wrong_values_of_the_file_are_refused_as_in_the_settings(tmp_path: Path) -> None:
    same = dict.fromkeys(NAMES, "0x" + "11" * 20)
    with pytest.raises(ValidationError, match="two contracts cannot have one address"):
        settings_of(tmp_path, DEPLOYED | {"contracts": same})
