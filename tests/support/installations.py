"""Settings files of whole installations, whose values a test makes wrong."""

from dataclasses import dataclass, field
from pathlib import Path

from ltzd.values import checksummed
from tests.support.chain.fake_node import ADDRESSES
from tests.support.secret_files import write_secret

MASTER_KEY = "ab" * 16 + "cd" * 16
SETTINGS = """
database_url = "{database_url}"
master_key_file = "{folder}/master.key"
roles = {roles}
{top}
[node]
urls = {node_urls}
{node}
[database]
{database}
[contracts]
ltz = "{ltz}"
perk_nft = "{perk_nft}"
points_sale = "{points_sale}"
business_escrow = "{business_escrow}"
first_block = {first_block}
[identity]
kind = "oidc"
issuer = "{issuer}"
audience = "ltzd"
[operator]
minter_key_file = "{folder}/minter.key"
relay_key_file = "{folder}/relay.key"
[http]
port = {port}
{http}
[admin]
port = {admin_port}
"""


@dataclass
class Installation:
    """`values` replace the names in SETTINGS; a test changes them and then writes the file."""

    folder: Path
    values: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, database_url: str, node_url: str) -> "Installation":
        write_secret(folder / "master.key", MASTER_KEY)
        write_secret(folder / "minter.key", "01" * 32)
        write_secret(folder / "relay.key", "02" * 32)
        addresses = {name: checksummed(address) for name, address in ADDRESSES.items()}
        return cls(
            folder,
            {
                "folder": folder,
                "database_url": database_url,
                "roles": '["http", "operator", "indexer", "deliveries"]',
                "top": "",
                "node_urls": f'["{node_url}"]',
                "node": "",
                "database": "",
                **addresses,
                "first_block": 1,
                "issuer": "https://login.invalid/",
                "port": 0,
                "http": "",
                "admin_port": 0,
            },
        )

    def write(self) -> Path:
        text = SETTINGS
        for name, value in self.values.items():
            text = text.replace("{" + name + "}", str(value))
        return write_secret(self.folder / "ltzd.toml", text)
