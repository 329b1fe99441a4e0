"""The OpenAPI 3.1 document, made from the operations and models that the surfaces really use."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from ltzd import __version__
from ltzd.http.operations import Operation, Parameter

REF = "#/components/schemas/{model}"


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ltzd",
            "version": __version__,
            "description": "The back end of a loyalty-rewards platform. API version v2.0.",
        },
        "paths": paths,
        "components": {"schemas": _schemas(operations)},
    }


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "parameters": [_parameter(parameter) for parameter in operation.parameters],
        "responses": {
            str(status): {"description": text, "content": _json(model)}
            for status, (text, model) in operation.answers.items()
        },
    }
    if operation.request is not None:
        described["requestBody"] = {"required": True, "content": _json(operation.request)}
    return described


def _operation_id(operation: Operation) -> str:
    words = operation.path.replace("{", "").replace("}", "").strip("/").split("/")[1:]
    return "-".join([operation.method.lower(), *words])


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "schema": dict(parameter.schema),
    }


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}


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
