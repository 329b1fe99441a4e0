"""The OpenAPI 3.1 document, made from the operations and models that the surfaces really use."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from ltzd import __version__
from ltzd.http.openapi.operations import Examples, Operation, Parameter

API_VERSION = "2.0"
"""Spec 9.1; ltzd's own version is another one."""
REF = "#/components/schemas/{model}"

SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "An access or identity token of the identity provider",
    }
}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ltzd",
            "version": API_VERSION,
            "description": f"The back end of a loyalty-rewards platform: ltzd {__version__}.",
        },
        "paths": paths,
        "components": {"schemas": _schemas(operations), "securitySchemes": SECURITY_SCHEMES},
    }


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "parameters": [_parameter(parameter) for parameter in operation.parameters],
        "responses": {
            str(status): _answer(operation, status)
            for status in (*operation.bodiless, *operation.answers)
        },
    }
    if operation.needs_token:
        described["security"] = [{name: []} for name in SECURITY_SCHEMES]
    if operation.request is not None:
        content = _json(operation.request, operation.request_examples)
        described["requestBody"] = {"required": True, "content": content}
    return described


def _answer(operation: Operation, status: int) -> dict[str, Any]:
    answer: dict[str, Any]
    if status in operation.bodiless:
        answer = {"description": operation.bodiless[status]}
    else:
        text, model = operation.answers[status]
        content = _json(model, operation.examples.get(status, {}))
        answer = {"description": text, "content": content}
    headers = {
        header.name: {"description": header.description, "schema": dict(header.schema)}
        for header in operation.headers
        if header.statuses is None or status in header.statuses
    }
    return answer | {"headers": headers} if headers else answer


def _operation_id(operation: Operation) -> str:
    path = operation.path.replace("{", "").replace("}", "").removeprefix("/service-api")
    return "-".join([operation.method.lower(), *path.strip("/").split("/")])


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "schema": dict(parameter.schema),
    }


def _json(model: type[BaseModel], examples: Examples) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": {"$ref": REF.format(model=model.__name__)}}
    if examples:
        content["examples"] = {name: {"value": body} for name, body in examples.items()}
    return {"application/json": content}


def _schemas(operations: Iterable[Operation]) -> dict[str, Any]:
    models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {}
    for operation in operations:
        if operation.request is not None:
            models[operation.request, "validation"] = None
        for _, model in operation.answers.values():
            models[model, "serialization"] = None
    _, schemas = models_json_schema(list(models), ref_template=REF)
    defined: dict[str, Any] = schemas["$defs"]
    return defined
