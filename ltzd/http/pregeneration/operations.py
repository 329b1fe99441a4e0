"""Pregeneration as the OpenAPI document describes it."""

from ltzd.actions.pregeneration import PER_DAY, PER_MINUTE, invalid_credentials, too_many
from ltzd.errors import AccountLookupUnavailable, IdentityUnavailable, InvalidFields, MissingFields
from ltzd.http.openapi.operations import (
    Operation,
    RateWindow,
    Response,
    signature_headers,
)
from ltzd.http.pregeneration.errors import ERRORS, ProviderUnknown
from ltzd.http.pregeneration.handlers import PATH, PregenerationHandlers
from ltzd.http.pregeneration.models import PregenerateUserBody, PregenerateUserResponse
from ltzd.http.requests.rate_limits import PER_CLIENT, address_limit_exceeded
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount
from ltzd.rules.oauth.ids import OAuthIdInvalid, check_id
from ltzd.store.users.pregenerations import AccountWallet, RecordedPregeneration
from ltzd.values import address_of

_ACCOUNT = OAuthAccount("discord", "175928847299117063", "ada.l")
_WALLET = AccountWallet(
    "did:privy:cm3np4u9j001rc8b73seqmqqk",
    address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"),
)
_BODY = {
    "brand_id": "0x" + "ab" * 20,
    "oauth_provider": _ACCOUNT.provider,
    "oauth_user_id": _ACCOUNT.user_id,
    "oauth_username": _ACCOUNT.username,
    "metadata": {"campaign": "spring"},
}
_GOOGLE_BODY = {
    "brand_id": "0x" + "ab" * 20,
    "oauth_provider": "google",
    "oauth_user_id": "108177034651932284561",
    "metadata": {"email": "ada@example.com", "name": "Ada Lovelace"},
}


def _malformed_id() -> OAuthIdInvalid:
    try:
        check_id("discord", "12345")
    except OAuthIdInvalid as error:
        return error
    raise AssertionError("a Discord id has more than five digits")


OPERATIONS = (
    Operation(
        PregenerationHandlers.pregenerate_user,
        "POST",
        PATH,
        "Get or create the wallet of an OAuth account before its owner logs in",
        request=PregenerateUserBody,
        # A signed request counts towards limits of its own.
        parameters=signature_headers(required=False),
        request_examples={"a Discord account": _BODY, "a Google account": _GOOGLE_BODY},
        success={
            200: Response(
                "The account's wallet. Every request for the account returns the same",
                PregenerateUserResponse,
                {
                    "created": PregenerateUserResponse.body(
                        _ACCOUNT, RecordedPregeneration(_WALLET, created_new=True)
                    ),
                    "retrieved": PregenerateUserResponse.body(
                        _ACCOUNT, RecordedPregeneration(_WALLET, created_new=False)
                    ),
                },
            ),
        },
        errors=ERRORS,
        error_examples={
            "missing fields": MissingFields(["oauth_user_id"]),
            "invalid fields": InvalidFields(["oauth_username: must be a string"]),
            "unknown provider": ProviderUnknown(
                "Invalid OAuth provider", valid_providers=list(PROVIDERS)
            ),
            "malformed id": _malformed_id(),
            "refused account": invalid_credentials(
                _ACCOUNT, "Discord knows no account with this id"
            ),
            "limit of the address": address_limit_exceeded(PER_CLIENT.pregenerations, 42),
            "limit of the brand a minute": too_many(PER_MINUTE, 42),
            "limit of the brand a day": too_many(PER_DAY, 4_200),
            "identity provider unavailable": IdentityUnavailable(""),
            "account look-up unavailable": AccountLookupUnavailable(""),
        },
        rate_window=RateWindow(
            "Requests of the brand a minute, or of the limit that is exceeded",
            frozenset({200, 400, 429, 500}),
        ),
    ),
)
