"""Requests that nobody thought of, made from our own description: none is answered with a fault of ours."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from heedful.serve.api import openapi

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
BUSY = {503}  # an answer as described, though its number begins with 5
schema = schemathesis.openapi.from_dict(openapi.openapi_document())


@pytest.fixture(autouse=True, scope="module")
def address(running):
    schema.config.update(base_url=running.url)


@schema.parametrize()
@settings(
    max_examples=20, deadline=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck), database=None,
)  # fmt: skip
def test_every_answer_is_as_described(case, running):
    response = case.call(base_url=running.url, timeout=30)
    assert response.status_code < 500 or response.status_code in BUSY, response.text
    checks = CHECKS if response.status_code < 500 else CHECKS[1:]
    case.validate_response(response, checks=checks)
