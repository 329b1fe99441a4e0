"""The one client of brands' own APIs, which purchase constraints ask about a user.

Every failure raises ExternalApiUnavailable, which the caller counts as not satisfied and does not
cache. The caller also joins equal requests.
"""

from decimal import Decimal

import msgspec

from ltzd import telemetry
from ltzd.errors import Unavailable
from ltzd.providers.outbound.bounded_json import InvalidJsonError, decode_json
from ltzd.providers.outbound.guarded_connector import HostResolver
from ltzd.providers.outbound.guarded_http import (
    Answer,
    GuardedHttpClient,
    GuardPolicy,
    RequestFailed,
)
from ltzd.rules.constraints.constraints import ExternalApi, filled_url, question
from ltzd.rules.constraints.json_paths import Json
from ltzd.values import Address

_EXACT = msgspec.json.Decoder(float_hook=Decimal)


class ExternalApiUnavailable(Unavailable):
    """`reason` is fit for a log: nothing of the URL, nothing that the API sent."""

    def __init__(self, reason: str) -> None:
        super().__init__("The API of a purchase constraint gave no usable answer", reason=reason)
        self.reason = reason


class ExternalApiClient:
    def __init__(self, policy: GuardPolicy, look_up: HostResolver | None = None) -> None:
        self._http = GuardedHttpClient(policy, look_up)

    async def close(self) -> None:
        await self._http.close()

    async def ask(self, constraint: ExternalApi, user: Address) -> Json:
        """The API's whole answer, for `constraints.is_satisfied`."""
        with telemetry.timed_provider("external_api"):
            try:
                return _json_in(await self._answer(constraint, user))
            except RequestFailed as error:
                raise ExternalApiUnavailable(error.reason) from error

    async def _answer(self, constraint: ExternalApi, user: Address) -> Answer:
        headers = {"Accept": "application/json"}
        body = None
        if constraint.method == "POST":
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode(question(constraint, user))
        url = filled_url(constraint, user)
        return await self._http.ask(constraint.method, url, body=body, headers=headers)


def _json_in(answer: Answer) -> Json:
    if not 200 <= answer.status < 300:
        raise ExternalApiUnavailable(f"status {answer.status}")
    kind = answer.content_type
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        raise ExternalApiUnavailable("the content type is not JSON's")
    try:
        decode_json(answer.body)  # refuses what is nested too deeply; its numbers are floats
        value: Json = _EXACT.decode(answer.body)
    except (InvalidJsonError, ArithmeticError) as error:  # exponents that no Decimal holds
        raise ExternalApiUnavailable("the body is not JSON") from error
    return value
