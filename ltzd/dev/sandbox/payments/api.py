"""The payment provider's API, compatible with the vendor's client library."""

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from ltzd.dev.sandbox.payments import changes as payment_changes
from ltzd.dev.sandbox.payments import objects as payment_objects
from ltzd.dev.sandbox.payments.changes import Change
from ltzd.dev.sandbox.payments.errors import ProviderError, error_reply, new_id
from ltzd.dev.sandbox.payments.forms import Form, missing
from ltzd.dev.sandbox.payments.operations import PaymentOperations
from ltzd.dev.sandbox.payments.orders import parse_session
from ltzd.dev.sandbox.payments.sessions import KeptReply, SandboxSession
from ltzd.dev.sandbox.requests import json_reply

PREFIX = "/payments"

_SESSIONS = f"{PREFIX}/v1/checkout/sessions"
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:\.[a-z]+)?")
_MAX_KEY_LENGTH = 255

Json = dict[str, object]


class ApiCall(msgspec.Struct, frozen=True):
    request: web.Request
    id: str
    form: Form
    idempotency_key: str | None

    @property
    def origin(self) -> str:
        return f"http://{self.request.host}"

    @property
    def fingerprint(self) -> str:
        parameters = (self.request.path, sorted(self.form.fields.items()))
        return hashlib.sha256(msgspec.json.encode(parameters)).hexdigest()


Operation = Callable[[ApiCall], tuple[Change, Json]]
CallHandler = Callable[[ApiCall], Awaitable[web.Response]]


class PaymentsApi:
    def __init__(self, operations: PaymentOperations, secret_key: str) -> None:
        self._operations = operations
        self._authorization = f"Bearer {secret_key}".encode()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(_SESSIONS, self._guarded(self._idempotent(self._create))),
            web.get(_SESSIONS + "/{id}", self._guarded(self._retrieve), allow_head=False),
            web.post(_SESSIONS + "/{id}/expire", self._guarded(self._idempotent(self._expire))),
            web.post(f"{PREFIX}/v1/refunds", self._guarded(self._idempotent(self._refund))),
            web.route("*", PREFIX + "/{rest:.*}", self._guarded(_unrecognized)),
        ]

    def _guarded(self, answer: CallHandler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def guarded(request: web.Request) -> web.Response:
            headers = {"Request-Id": new_id("req", 14)}
            try:
                self._authorize(request)
                headers["Stripe-Version"] = _version(request)
                key = _idempotency_key(request)
                form = await _form(request)
                reply = await answer(ApiCall(request, headers["Request-Id"], form, key))
            except ProviderError as error:
                return error_reply(error, headers)
            reply.headers.update(headers)
            return reply

        return guarded

    def _authorize(self, request: web.Request) -> None:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self._authorization):
            message = "Invalid API key provided." if given else "You did not provide an API key."
            raise ProviderError(message, status=401)

    def _idempotent(self, operation: Operation) -> CallHandler:
        """A repeated key gets the first answer again; a refusal is not stored."""

        async def answer(call: ApiCall) -> web.Response:
            repeated = self._repeated(call)
            if repeated is not None:
                return repeated
            change, content = operation(call)
            key = call.idempotency_key
            kept = None if key is None else KeptReply(key, call.fingerprint, content)
            await self._operations.apply(change, {"id": call.id, "idempotency_key": key}, kept)
            return json_reply(content)

        return answer

    def _repeated(self, call: ApiCall) -> web.Response | None:
        key = call.idempotency_key
        kept = None if key is None else self._operations.sessions.reply(key)
        if key is None or kept is None:
            return None
        if kept.fingerprint != call.fingerprint:
            message = "This idempotency key was first used with other parameters."
            raise ProviderError(message, type="idempotency_error")
        if not self._operations.sessions.is_reply_saved(key):
            message = "Another request with this idempotency key is in progress."
            code = "idempotency_key_in_use"
            raise ProviderError(message, status=409, type="idempotency_error", code=code)
        reply = json_reply(kept.content)
        reply.headers["Idempotent-Replayed"] = "true"
        return reply

    def _create(self, call: ApiCall) -> tuple[Change, Json]:
        expand = _expanded(call.form)
        session = parse_session(call.form, time.time())
        call.form.refuse_unread()
        content = payment_objects.session(session, call.origin, expand)
        return Change(session), content

    async def _retrieve(self, call: ApiCall) -> web.Response:
        expand = _expanded(call.form)
        call.form.refuse_unread()
        session = await self._operations.sessions.saved(self._session(call))
        return json_reply(payment_objects.session(session, call.origin, expand))

    def _expire(self, call: ApiCall) -> tuple[Change, Json]:
        expand = _expanded(call.form)
        call.form.refuse_unread()
        change = payment_changes.expired(self._session(call))
        return change, payment_objects.session(change.session, expand=expand)

    def _refund(self, call: ApiCall) -> tuple[Change, Json]:
        form = call.form
        intent_id, amount = form.text("payment_intent"), form.whole_number("amount", 1)
        reason = form.one_of("reason", "duplicate", "fraudulent", "requested_by_customer")
        metadata = form.metadata()
        form.refuse_unread()
        if intent_id is None:
            raise missing("payment_intent")
        session = self._operations.sessions.session_of_intent(intent_id)
        if session is None or session.payment is None:
            raise _unknown("payment_intent", intent_id, "payment_intent")
        now = time.time()
        change = payment_changes.refunded(session, now, amount, reason, metadata)
        refund = change.session.refunds[-1]
        return change, payment_objects.refund(change.session, session.payment, refund)

    def _session(self, call: ApiCall) -> SandboxSession:
        session_id = call.request.match_info["id"]
        session = self._operations.sessions.session(session_id)
        if session is None:
            raise _unknown("checkout.session", session_id, "session")
        return session


async def _unrecognized(call: ApiCall) -> web.Response:
    path = call.request.path.removeprefix(PREFIX)[:200]
    raise ProviderError(f"Unrecognized request URL ({call.request.method}: {path}).", status=404)


def _unknown(kind: str, given: str, param: str) -> ProviderError:
    message = f"No such {kind}: '{given[:100]}'"
    return ProviderError(message, status=404, code="resource_missing", param=param)


def _version(request: web.Request) -> str:
    version = request.headers.get("Stripe-Version", payment_objects.API_VERSION)
    if not _VERSION.fullmatch(version):
        raise ProviderError("Invalid API version.")
    return version


def _idempotency_key(request: web.Request) -> str | None:
    key = request.headers.get("Idempotency-Key") or None
    if request.method != "POST" or key is None:
        return None
    if len(key) > _MAX_KEY_LENGTH:
        message = f"An idempotency key has at most {_MAX_KEY_LENGTH} characters."
        raise ProviderError(message, type="idempotency_error")
    return key


async def _form(request: web.Request) -> Form:
    if request.method == "GET":
        return Form.parsed(request.query_string.encode())
    try:
        content = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise ProviderError("The request is too large.", status=413) from None
    if content and request.content_type != "application/x-www-form-urlencoded":
        message = "Send parameters as application/x-www-form-urlencoded."
        raise ProviderError(message)
    return Form.parsed(content)


def _expanded(form: Form) -> list[str]:
    names = form.listed("expand")
    expandable = (payment_objects.INTENT, payment_objects.CHARGE)
    if any(name not in expandable for name in names):
        raise ProviderError(f"Only {' and '.join(expandable)} can be expanded.", param="expand")
    return names
