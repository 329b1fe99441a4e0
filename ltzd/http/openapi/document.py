"""The OpenAPI 3.1 document of a list of operations and their models."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from ltzd import __version__
from ltzd.http.openapi.operations import Credential, Examples, Operation, Parameter, Response
from ltzd.http.requests.json_body import MAX_DEPTH
from ltzd.http.surface import API_PREFIX

API_VERSION = "2.0"
"""Spec 9.1: the version of the API, not of ltzd."""
REF = "#/components/schemas/{model}"

DESCRIPTION = (
    f"The back end of a loyalty-rewards platform: ltzd {__version__}. Every path answers OPTIONS "
    "with 204. Every endpoint may refuse a request with a status that its responses do not list, "
    "in the format of its other errors: 400 if the request is malformed, 403 if the request "
    "reached a proxy over plain HTTP, 405 for another method (404 at a site's API), 408 if the "
    "request does not arrive in time, 414 if the URL is too long, 417 for an unknown Expect "
    "header, and 431 if the headers are too large. In request bodies, but for the payment "
    "provider's events, control characters are removed from texts, unknown fields are ignored, "
    "null in an optional field counts as absent, an integer may be written as 5.0 if it is "
    "below 2^53, an address has letters of one case or its EIP-55 checksum, and objects and arrays "
    f"are nested at most {MAX_DEPTH} levels deep."
)


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ltzd",
            "version": API_VERSION,
            "description": DESCRIPTION,
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(operations),
            "securitySchemes": _security_schemes(operations),
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "parameters": [_parameter(parameter) for parameter in operation.parameters],
        "responses": {
            str(status): _response(response) for status, response in operation.responses.items()
        },
    }
    if operation.credential is not None:
        described["security"] = _security(operation.credential)
    if operation.request is not None:
        content = _content(operation.request, operation.request_examples)
        described["requestBody"] = {"required": True, "content": content}
    return described


def _security(credential: Credential) -> list[dict[str, list[str]]]:
    """The alternatives: an empty one is a request without the credential."""
    needed: dict[str, list[str]] = {credential.name: []}
    return [needed] if credential.required else [{}, needed]


def _security_schemes(operations: Iterable[Operation]) -> dict[str, Any]:
    return {
        credential.name: {
            "type": "http",
            "scheme": credential.scheme,
            "description": credential.description,
        }
        for operation in operations
        if (credential := operation.credential) is not None
    }


def _response(response: Response) -> dict[str, Any]:
    described: dict[str, Any] = {"description": response.description}
    if response.model is not None:
        described["content"] = _content(response.model, response.examples)
    elif response.media_type is not None:
        described["content"] = {response.media_type: {"schema": {"type": "string"}}}
    if response.headers:
        described["headers"] = {
            header.name: {"description": header.description, "schema": dict(header.schema)}
            for header in response.headers
        }
    return described


def _operation_id(operation: Operation) -> str:
    path = operation.path.replace("{", "").replace("}", "").removeprefix(API_PREFIX)
    return "-".join([operation.method.lower(), *path.strip("/").split("/")])


def _parameter(parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "schema": dict(parameter.schema),
    }
    if parameter.description:
        described["description"] = parameter.description
    return described


def _content(model: type[BaseModel], examples: Examples) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": {"$ref": REF.format(model=model.__name__)}}
    if examples:
        content["examples"] = {name: {"value": body} for name, body in examples.items()}
    return {"application/json": content}


def _schemas(operations: Iterable[Operation]) -> dict[str, Any]:
    models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {}
    for operation in operations:
        if operation.request is not None:
            models[operation.request, "validation"] = None
        for response in operation.responses.values():
            if response.model is not None:
                models[response.model, "serialization"] = None
    _, schemas = models_json_schema(list(models), ref_template=REF)
    definitions: dict[str, Any] = schemas["$defs"]
    return definitions
