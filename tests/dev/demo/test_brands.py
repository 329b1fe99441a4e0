"""The demo brands are applied once and keep later changes."""

import json
from pathlib import Path

import asyncpg
import pytest

from ltzd.dev.demo import brands as demo_brands
from ltzd.rules.brands.configuration import Brand
from ltzd.store import database
from ltzd.store.brands import configurations as brands
from ltzd.store.encryption.sealing import Sealer


class Demo:
    """A data directory with its database."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.port = 8123
        self.database_url = database_url
        self.sealer = Sealer.from_file(folder / "master.key", create=True)

    def _inbox(self, brand_id: str) -> str:
        return f"http://127.0.0.1:{self.port}/inbox/{brand_id}"

    async def apply(self) -> Brand:
        """Applies the brand as a start does; returns the stored configuration."""
        demo = await demo_brands.apply(
            self.folder, self.database_url, self.sealer, "brand", self._inbox
        )
        connection = await database.connect(self.database_url, "test")
        try:
            stored = await brands.load(connection, demo.brand.address)
        finally:
            await connection.close()
        assert stored is not None
        return stored

    async def execute(self, sql: str) -> None:
        connection = await asyncpg.connect(self.database_url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


@pytest.fixture
def demo(tmp_path: Path, database_url: str) -> Demo:
    return Demo(tmp_path, database_url)


async def test_a_brand_from_before_there_were_perks_gets_them_and_keeps_all_else(
    demo: Demo,
) -> None:
    first = await demo.apply()
    await demo.execute(
        "UPDATE brands SET configuration = configuration - 'perks' || '{\"name\": \"Mine\"}'"
    )

    again = await demo.apply()

    assert len(first.perks) == 3
    assert again == first.model_copy(update={"name": "Mine"})


async def test_a_brand_whose_perks_somebody_has_taken_away_does_not_get_them_back(
    demo: Demo,
) -> None:
    await demo.apply()
    await demo.execute("UPDATE brands SET configuration = configuration || '{\"perks\": []}'")

    assert (await demo.apply()).perks == ()


async def test_the_webhook_address_follows_the_sandbox_to_another_port(demo: Demo) -> None:
    first = await demo.apply()
    demo.port = 8124
    again = await demo.apply()
    assert first.webhook_url == f"http://127.0.0.1:8123/inbox/{first.id}"
    assert again.webhook_url == f"http://127.0.0.1:8124/inbox/{first.id}"


@pytest.mark.parametrize("theirs", ["null", '"https://shop.example/inbox"'])
async def test_a_webhook_address_that_somebody_has_chosen_stays(demo: Demo, theirs: str) -> None:
    chosen = (await demo.apply()).model_copy(update={"webhook_url": json.loads(theirs)})
    await demo.execute(
        f"UPDATE brands SET configuration = configuration || '{{\"webhook_url\": {theirs}}}'"
    )
    assert await demo.apply() == chosen
