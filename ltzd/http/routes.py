"""Adds the routes of the surfaces and of the admin port."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from sanic import Blueprint, HTTPResponse, Sanic


def add_route(
    routes: Blueprint | Sanic[Any, Any],
    handler: Callable[..., Coroutine[Any, Any, HTTPResponse | None]],
    path: str,
    methods: Sequence[str],
    *,
    name: str | None = None,
    ignore_body: bool = False,
) -> None:
    """Add a route. With `ignore_body` the handler reads the request's body, under its own limit;
    otherwise a body is read and dropped (`connections/handling.py`).

    `ErrorResponder` writes every error. Without a format here, Sanic would look for one in the
    handler's source code, which it parses for each application anew.
    """
    routes.add_route(
        handler, path, methods, name=name, ignore_body=ignore_body, error_format="json"
    )
