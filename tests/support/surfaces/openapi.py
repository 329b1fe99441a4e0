"""Checks of the OpenAPI document's operations, for the tests of every surface."""

from ltzd.http.openapi.operations import Operation


def assert_examples_fit(operation: Operation) -> None:
    """Each response with a body has examples, and its model validates them."""
    for status, response in operation.responses.items():
        if response.model is None:
            continue
        assert response.examples, f"{operation.method} {operation.path} {status}"
        for body in response.examples.values():
            response.model.model_validate(body)
