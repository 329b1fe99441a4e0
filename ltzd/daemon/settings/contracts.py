"""The section `contracts`: four addresses and a first block, or the file of `ltzd deploy`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from ltzd.daemon.settings.section import Section
from ltzd.daemon.settings.value_types import ContractAddress
from ltzd.values import Address

CONTRACT_NAMES = {
    "ltz": "LTZ",
    "perk_nft": "PerkNFT",
    "points_sale": "PointsSale",
    "business_escrow": "BusinessEscrow",
}
"""The name of each contract, by its setting."""


class ContractSettings(Section):
    file: Path | None = None
    """The contracts.json of `ltzd deploy`, instead of the other settings of this section."""
    ltz: ContractAddress
    perk_nft: ContractAddress
    points_sale: ContractAddress
    business_escrow: ContractAddress
    first_block: Annotated[int, Field(ge=0)]

    def addresses(self) -> dict[str, Address]:
        """By the setting's name."""
        return {setting: getattr(self, setting) for setting in CONTRACT_NAMES}

    def by_contract(self) -> dict[str, Address]:
        """By the contract's name."""
        return {CONTRACT_NAMES[setting]: at for setting, at in self.addresses().items()}

    @model_validator(mode="before")
    @classmethod
    def _are_in_the_file(cls, section: Any) -> Any:
        if not isinstance(section, Mapping) or section.get("file") is None:
            return section
        others = sorted(section.keys() - {"file"})
        if others:
            raise ValueError(f"file is given: remove {', '.join(others)}, or file")
        path = Path(str(section["file"]))
        return {"file": path, **_read(path)}

    @model_validator(mode="after")
    def _are_four(self) -> Self:
        if len(set(self.addresses().values())) < len(self.addresses()):
            raise ValueError("two contracts cannot have one address")
        return self


def _read(path: Path) -> dict[str, Any]:
    """Raises ValueError with a sentence."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        contracts = document["contracts"]
        addresses = {key: contracts[name] for key, name in CONTRACT_NAMES.items()}
        return {**addresses, "first_block": document["firstBlock"]}
    except OSError as error:
        raise ValueError(
            f"file {path} cannot be read ({error.strerror}): run `ltzd deploy` first"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"file {path} does not name four contracts: run `ltzd deploy` again, to its end"
        ) from error
