"""The webhooks that the brand's server of a cluster has received, and what they must be."""

import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from standardwebhooks.webhooks import Webhook

from tests.support.instances.instance import Instance


async def assert_announced(instance: Instance) -> tuple[int, int]:
    """Checks what came over the wire; returns how many webhooks came, and in how many requests.

    Each webhook came at least once and was accepted, each request has a valid signature, repeats
    have the same body, and the first arrivals of one subject are in the order of their rows.
    """
    brand = instance.dev_json["brand"]
    first_arrivals: list[str] = []
    bodies: dict[str, str] = {}
    accepted: set[str] = set()
    deliveries = [
        delivery
        for delivery in await _inbox(instance)
        if delivery["brandId"] == brand["brandId"].lower()
    ]
    for delivery in deliveries:
        headers, body = delivery["headers"], delivery["body"]
        id_ = headers["webhook-id"]
        sent_at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        signature = Webhook(brand["webhookSecret"]).sign(id_, sent_at, body)
        assert signature in headers["webhook-signature"].split(" ")
        if id_ not in bodies:
            first_arrivals.append(id_)
        assert json.loads(bodies.setdefault(id_, body)) == json.loads(body)
        if delivery["status"] == 200:
            accepted.add(id_)
    owed: dict[str, list[str]] = defaultdict(list)
    async with instance.database() as connection:
        rows = await connection.fetch(
            "SELECT id, subject FROM webhooks WHERE brand_id = $1 ORDER BY created_at, id",
            bytes.fromhex(brand["brandId"][2:]),
        )
    for row in rows:
        owed[str(row["subject"])].append(f"msg_{row['id'].hex}")
    assert accepted == {id_ for ids in owed.values() for id_ in ids}, "a webhook did not arrive"
    places = {id_: place for place, id_ in enumerate(first_arrivals)}
    for ids in owed.values():
        assert ids == sorted(ids, key=places.__getitem__), "a subject's webhooks are out of order"
    return len(rows), len(deliveries)


async def _inbox(instance: Instance) -> list[dict[str, Any]]:
    async with instance.http.get(instance.dev_json["sandbox"]["webhookInboxUrl"]) as reply:
        assert reply.status == 200, await reply.text()
        deliveries: list[dict[str, Any]] = await reply.json()
        return deliveries
