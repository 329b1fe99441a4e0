"""The host platform's error replies: code, message and status, as in WordPress."""

from collections.abc import Mapping

from aiohttp import web

from ltzd.dev.sandbox.requests import json_reply


def refusal(status: int, code: str, message: str, **data: object) -> web.Response:
    details: Mapping[str, object] = {"status": status, **data}
    return json_reply({"code": code, "message": message, "data": details}, status)


def not_logged_in() -> web.Response:
    return refusal(401, "rest_not_logged_in", "You are not currently logged in.")


def bad_nonce() -> web.Response:
    return refusal(403, "rest_cookie_invalid_nonce", "Cookie check failed")


def no_route() -> web.Response:
    text = "No route was found matching the URL and request method."
    return refusal(404, "rest_no_route", text)


def bad_context(known: tuple[str, ...]) -> web.Response:
    *first, last = known
    reason = f"context is not one of {', '.join(first)}, and {last}."
    return refusal(
        400,
        "rest_invalid_param",
        "Invalid parameter(s): context",
        params={"context": reason},
        details={"context": {"code": "rest_not_in_enum", "message": reason, "data": None}},
    )


def bad_email(reason: str) -> web.Response:
    """The reply to a malformed address, as from the platform's schema check."""
    return refusal(
        400,
        "rest_invalid_param",
        "Invalid parameter(s): email",
        params={"email": reason},
        details={"email": {"code": "rest_invalid_email", "message": reason, "data": None}},
    )


def taken_email() -> web.Response:
    return refusal(400, "rest_user_invalid_email", "Invalid email address.")


def bad_json() -> web.Response:
    return refusal(400, "rest_invalid_json", "Invalid JSON body passed.")


def cannot_edit() -> web.Response:
    return refusal(403, "rest_cannot_edit", "Sorry, you are not allowed to edit this user.")


def bad_login(code: str) -> web.Response:
    return refusal(401, code, _LOGINS[code])


def ordered_fault(status: int) -> web.Response:
    return refusal(status, "ordered_fault", "A fault ordered at the sandbox")


_LOGINS: Mapping[str, str] = {
    "invalid_username": "<strong>Error:</strong> Unknown username. "
    "Check again or try your email address.",
    "invalid_email": "<strong>Error:</strong> Unknown email address. "
    "Check again or try your username.",
    "incorrect_password": "The provided password is an invalid application password.",
    "application_passwords_disabled": "Application passwords are not available.",
}
