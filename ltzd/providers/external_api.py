"""The one client of brands' own APIs, which purchase constraints ask about a user.

Every failure raises ExternalApiUnavailable, which the caller counts as not satisfied and does not
cache. The caller also joins equal requests.
"""

from decimal import Decimal

import msgspec

from ltzd import telemetry
from ltzd.errors import Unavailable
from ltzd.providers.outbound.guarded_http import GuardedHttpClient, GuardPolicy
from ltzd.providers.outbound.http_client import AsyncCloseable, HttpResponse, RequestFailed
from ltzd.providers.outbound.json_bodies import InvalidJsonError, decode_json
from ltzd.rules.constraints.constraints import ExternalApi, fill_url, question
from ltzd.rules.constraints.json_paths import Json
from ltzd.values import Address

_decimal_decoder = msgspec.json.Decoder(float_hook=Decimal)


class ExternalApiUnavailable(Unavailable):
    """`reason` is fit for a log: it holds nothing of the URL and nothing that the API sent."""

    def __init__(self, reason: str) -> None:
        super().__init__("The API of a purchase constraint gave no usable answer", reason=reason)
        self.reason = reason


class ExternalApiClient(AsyncCloseable):
    def __init__(self, policy: GuardPolicy) -> None:
        self._http = GuardedHttpClient(policy)

    async def close(self) -> None:
        await self._http.close()

    async def ask(self, constraint: ExternalApi, user: Address) -> Json:
        """Return the API's whole answer, with fractions as Decimal, for `is_satisfied`.

        Raises ExternalApiUnavailable.
        """
        with telemetry.timed_provider("external_api"):
            try:
                return _json_in(await self._send(constraint, user))
            except RequestFailed as error:
                raise ExternalApiUnavailable(error.reason) from error

    async def _send(self, constraint: ExternalApi, user: Address) -> HttpResponse:
        headers = {"Accept": "application/json"}
        body = None
        if constraint.method == "POST":
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode(question(constraint, user))
        url = fill_url(constraint, user)
        return await self._http.request(constraint.method, url, body=body, headers=headers)


def _json_in(response: HttpResponse) -> Json:
    if not 200 <= response.status < 300:
        raise ExternalApiUnavailable(f"status {response.status}")
    if not _is_json(response.content_type):
        raise ExternalApiUnavailable("the content type is not JSON's")
    try:
        decode_json(response.body)  # refuses deep nesting; its numbers are floats
        value: Json = _decimal_decoder.decode(response.body)
    except (InvalidJsonError, ArithmeticError) as error:  # an exponent that no Decimal holds
        raise ExternalApiUnavailable("the body is not JSON") from error
    return value


def _is_json(content_type: str) -> bool:
    is_suffixed = content_type.startswith("application/") and content_type.endswith("+json")
    return content_type == "application/json" or is_suffixed
