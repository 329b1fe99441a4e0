"""The parts of the application that a surface brings: its routes and its error formats."""

import msgspec
from sanic import Blueprint

from ltzd.http.errors import ErrorFormat

API_PREFIX = "/service-api"
"""Spec, {api_prefix}: of the event handler's and pregeneration's paths."""

READ_METHODS = ("GET", "HEAD")


class Surface(msgspec.Struct, frozen=True):
    """`error_formats` pairs path prefixes with formats; other paths have the relayer's format."""

    blueprint: Blueprint
    error_formats: tuple[tuple[str, ErrorFormat], ...] = ()
