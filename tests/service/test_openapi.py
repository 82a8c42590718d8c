"""The OpenAPI document: it tells of everything there is, its examples are true, and the service keeps to it."""

from __future__ import annotations

import json
from urllib.parse import quote

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig

from contextpilot_rag.service.openapi import document
from contextpilot_rag.service.table import operations

from .harness import serving

TABLE = operations()
DOCUMENTED = document(TABLE, keys=False)
EXAMPLE = DOCUMENTED["paths"]["/v1/align"]["post"]["requestBody"]["content"]["application/json"]["examples"]["example"][
    "value"
]


def resolved(entry):
    while "$ref" in entry:
        found = DOCUMENTED
        for part in entry["$ref"].split("/")[1:]:
            found = found[part]
        entry = found
    return entry


def check(schema, value):
    jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENTED["components"]}).validate(value)


@pytest.fixture(scope="module")
def service():
    with serving(max_blocks=20, max_batch=5, max_body=100_000, plan_seconds=5) as running:
        yield running


def test_every_route_is_documented_and_every_documented_one_is_there(service):
    told = {(method.upper(), path) for path, entry in DOCUMENTED["paths"].items() for method in entry}
    assert told == {(operation.method, operation.path) for operation in TABLE}
    for method, path in told:
        reply = service.ask(method, path.replace("{", "").replace("}", ""), b"" if method == "POST" else None)
        assert reply.status not in {405, 501}, (method, path)
        assert reply.status != 404 or "at this path" not in reply.json()["detail"], (method, path)


def test_the_document_is_served_and_needs_no_key(service):
    reply = service.ask("GET", "/v1/openapi.json")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json() == json.loads(json.dumps(DOCUMENTED))


def test_the_document_is_openapi():
    assert DOCUMENTED["openapi"] == "3.1.0"
    names = [entry["operationId"] for path in DOCUMENTED["paths"].values() for entry in path.values()]
    assert len(set(names)) == len(names)
    for schema in DOCUMENTED["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        assert schema["description"].strip(), schema["title"]


@pytest.mark.parametrize("keys", [True, False])
def test_security_is_documented_as_it_is(keys):
    told = document(TABLE, keys=keys)
    for operation in TABLE:
        entry = told["paths"][operation.path][operation.method.lower()]
        if operation.open:
            assert entry["security"] == []
        else:
            assert entry["security"] == ([{"key": []}, {"password": []}] if keys else [{}])
            assert ("401" in entry["responses"]) == keys


def _examples():
    for path, methods in DOCUMENTED["paths"].items():
        for method, entry in methods.items():
            contents = [entry.get("requestBody", {}).get("content", {})]
            contents += [resolved(answer).get("content", {}) for answer in entry["responses"].values()]
            for content in contents:
                for media, given in content.items():
                    for name, example in given.get("examples", {}).items():
                        yield pytest.param(given["schema"], example["value"], id=f"{method} {path} {media} {name}")


@pytest.mark.parametrize(("schema", "example"), list(_examples()))
def test_examples_are_of_their_schemas(schema, example):
    check(schema, example)


def test_every_operation_has_examples():
    for operation in TABLE:
        assert operation.body is None or operation.example[0] is not None, operation.path
        assert operation.answer is None or operation.example[1] is not None, operation.path


@pytest.mark.parametrize("operation", TABLE, ids=lambda operation: f"{operation.method} {operation.path}")
def test_examples_work(service, operation):
    """As they stand in the document, with names of things that are there."""
    entry = DOCUMENTED["paths"][operation.path][operation.method.lower()]
    body = None
    if "requestBody" in entry:
        body = entry["requestBody"]["content"]["application/json"]["examples"]["example"]["value"]
    names = {"namespace": ":qwen3-8b:handbook", "id": "talk"}
    ticket = body["ticket"] if operation.path in {"/v1/observe", "/v1/cover"} else None
    assert service.ask("POST", "/v1/align", {**EXAMPLE, "ticket": ticket}).status == 200
    if "{plan}" in operation.path:
        batch = next(other for other in TABLE if (other.method, other.path) == ("POST", "/v1/plan")).example[0]
        names["plan"] = service.ask("POST", "/v1/plan", batch).json()["id"]
    path = operation.path
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    reply = service.ask(operation.method, path, body)
    if operation.path.endswith("/result") and reply.status == 409:
        return  # it takes a while; test_plans waits for it
    assert reply.status == operation.status, reply.body
    if operation.answer is not None:
        check(entry["responses"][str(operation.status)]["content"]["application/json"]["schema"], reply.json())
    assert reply.headers["content-type"].partition(";")[0] == operation.media.partition(";")[0]


REFUSED = ["400", "401", "403", "404", "405", "406", "409", "413", "414", "415", "422", "429"]
QUICK = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def described(*, thorough: bool):
    """The document's operations; not all that is asked of data can be said in a schema: a block has an id or a text."""
    given = {
        "generation": {"mode": "all"},
        "phases": {"coverage": {"enabled": thorough}},
        "checks": {
            "positive_data_acceptance": {"enabled": False},
            "negative_data_rejection": {"expected-statuses": REFUSED},
        },
    }
    return schemathesis.openapi.from_dict(DOCUMENTED, config=SchemathesisConfig.from_dict(given))


PLANS = {"path": "/v1/plan", "method": "POST"}  # each starts a process
PAGES = {"path_regex": "^(/|/metrics|/v1/openapi.json|/healthz|/readyz)$"}  # they take nothing


@described(thorough=True).exclude(**PLANS).exclude(**PAGES).parametrize()
@QUICK
def test_the_service_keeps_to_its_document(case, service):
    case.call_and_validate(base_url=service.address)


@described(thorough=False).include(**PLANS).include(**PAGES).parametrize()
@settings(QUICK, max_examples=3)
def test_the_service_keeps_to_its_document_where_it_is_slow_or_takes_nothing(case, service):
    case.call_and_validate(base_url=service.address)
