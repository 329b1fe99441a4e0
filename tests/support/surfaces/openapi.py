"""Checks of operations and of what their handlers declare, for the tests of every surface."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from pydantic.alias_generators import to_camel
from sanic.request import Request

from ltzd.errors import LtzdError
from ltzd.http.app import operations
from ltzd.http.errors import HttpsRequired, RequestMalformed
from ltzd.http.openapi.operations import ADMISSION_ERRORS, ERROR_HEADERS, Operation
from ltzd.http.responses import Reply
from ltzd.http.sanic_app import App
from ltzd.http.services import HttpPolicy

ENCODER = msgspec.json.Encoder(decimal_format="number")
"""As a handler encodes its answer."""

MIDDLEWARE_ERRORS = (HttpsRequired, RequestMalformed, *ADMISSION_ERRORS)
"""Errors that every endpoint may answer with before its handler runs."""


def assert_examples_fit(operation: Operation) -> None:
    """Each response with a body has examples, and its model validates them."""
    for status, response in operation.responses.items():
        if response.model is None:
            continue
        assert response.examples, f"{operation.method} {operation.path} {status}"
        for body in response.examples.values():
            response.model.model_validate_json(ENCODER.encode(body))


def assert_headers_described(operation: Operation, status: int, headers: Mapping[str, str]) -> None:
    """The document describes the headers of limits, waiting times and authentication."""
    sent = {name for name in ERROR_HEADERS if name in headers}
    described = {header.name for header in operation.responses[status].headers}
    assert sent <= described, f"{operation.method} {operation.path} {status}"


def documented_path(route_path: str) -> str:
    """The path in the document of a route in Sanic's form."""
    return "/" + re.sub(r"<(\w+):str>", lambda match: "{" + to_camel(match[1]) + "}", route_path)


@contextmanager
def only_declared_errors(
    app: App,
    policy: HttpPolicy,
    is_injected: Callable[[BaseException], bool] = lambda _error: False,
) -> Iterator[None]:
    """Fails at its end if a handler raised an error that it does not declare.

    An error that a test injects does not count: no action raises it there.
    """
    declared = {
        (operation.method, operation.path): operation.raised for operation in operations(policy)
    }
    undeclared: set[str] = set()
    handler: Any = app.error_handler
    respond = handler.response

    def response(request: Request, exception: BaseException) -> Reply:
        if isinstance(exception, LtzdError) and request.route and not is_injected(exception):
            endpoint = (request.method, documented_path(request.route.path))
            # The middleware has errors of its own.
            kinds = (*declared.get(endpoint, ()), *MIDDLEWARE_ERRORS)
            if endpoint in declared and not isinstance(exception, kinds):
                undeclared.add(f"{' '.join(endpoint)} raises {type(exception).__name__}")
        reply: Reply = respond(request, exception)
        return reply

    handler.response = response
    yield
    assert not undeclared, undeclared
