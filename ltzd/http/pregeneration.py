"""POST /service-api/pregenerate-user, spec 4.5: an account's wallet before its owner logs in.

Checks come in one order: size and JSON, missing fields, types, the provider, the form of the id,
the brand, its limits, and then those of `actions/pregeneration.py`. So every well-formed request of
a known brand counts, whatever becomes of it, and every answer to one shows a window of the brand.
"""

from sanic import Blueprint
from sanic.request import Request

from ltzd.http.errors import PREGENERATION
from ltzd.http.json_body import parsed, read_json
from ltzd.http.pregeneration_models import PregeneratedAnswer, PregenerationOrder
from ltzd.http.replies import Reply, json_reply
from ltzd.http.services import Pregeneration


def surface(pregeneration: Pregeneration) -> Blueprint:
    handlers = PregenerationSurface(pregeneration)
    blueprint = Blueprint("pregeneration")
    # ignore_body: `read_json` reads it, under this surface's own limit.
    blueprint.add_route(handlers.pregenerate, PREGENERATION, ["POST"], ignore_body=True)
    return blueprint


class PregenerationSurface:
    def __init__(self, pregeneration: Pregeneration) -> None:
        self._pregeneration = pregeneration

    async def pregenerate(self, request: Request) -> Reply:
        asked = PregenerationOrder.from_json(parsed(await read_json(request))).asked()
        request.ctx.window = await self._pregeneration.admit(asked.brand_id)
        recorded = await self._pregeneration.pregenerate(asked)
        return json_reply(PregeneratedAnswer.body(asked.account, recorded))
