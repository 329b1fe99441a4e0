"""The error bodies of pregeneration: exactly the fields that spec 7.3 shows for each cause."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, RootModel

from ltzd.http.errors import ErrorReply, HttpError, RequestError, message_with_faults
from ltzd.http.models import ResponseModel

REQUIRED = ("brand_id", "oauth_provider", "oauth_user_id")

SAFE_TO_REPEAT = "Repeat the same request: it creates no second wallet"

SHOWN_DETAILS: Mapping[str, tuple[str, ...]] = {
    "PROVIDER_UNKNOWN": ("valid_providers",),
    "OAUTH_ID_INVALID": ("details", "example"),
    "ACCOUNT_REFUSED": ("hint", "provider"),
}
"""By code: the details that become fields of the body."""


class ProviderUnknown(RequestError):
    """There is no OAuth provider of this name. Details: `valid_providers`."""

    code = "PROVIDER_UNKNOWN"
    condition = "the provider is unknown"


class PregenerationError(ResponseModel):
    """An error that its text explains."""

    model_config = ConfigDict(alias_generator=None)

    error: str


class DetailedError(PregenerationError):
    """`details` names the invalid field and its rule, or says what to do."""

    details: str


class RequiredFieldsError(PregenerationError):
    """A required field is missing, null or empty."""

    required: list[str] = Field(description="Every required field")


class UnknownProviderError(PregenerationError):
    """There is no such provider."""

    valid_providers: list[str]


class InvalidAccountIdError(PregenerationError):
    """The id does not have the form of the provider's ids."""

    details: str
    example: str


class InvalidCredentialsError(PregenerationError):
    """The account is an obvious fake, unknown to its provider, or another person's."""

    hint: str
    provider: str


class BadRequestError(
    RootModel[
        RequiredFieldsError
        | UnknownProviderError
        | InvalidAccountIdError
        | InvalidCredentialsError
        | DetailedError
        | PregenerationError
    ]
):
    """The body of a 400, by its cause."""


class PregenerationErrors:
    """The error format. Every error that the caller did not cause has status 500 (spec 7.3).

    A busy process answers 429, which spec 7.3 has, in place of 503, which it lacks: 500 would read
    as a fault.
    """

    def reply(self, error: HttpError, _path: str) -> ErrorReply:
        if error.code == "OVERLOADED":
            return ErrorReply(429, {"error": error.message}, error.headers)
        return ErrorReply(min(error.status, 500), _body(error), error.headers)

    def model_of(self, status: int) -> type[BaseModel]:
        return {400: BadRequestError, 500: DetailedError}.get(status, PregenerationError)


def _body(error: HttpError) -> dict[str, object]:
    body: dict[str, object] = {"error": error.message}
    if error.status >= 500:
        return body | {"details": SAFE_TO_REPEAT}
    match error.code:
        case "MISSING_FIELDS":
            return body | {"required": list(REQUIRED)}
        case "INVALID_FIELDS":
            return body | {"details": message_with_faults(error)}
        case code:
            return body | {name: error.details[name] for name in SHOWN_DETAILS.get(code, ())}


ERRORS = PregenerationErrors()
