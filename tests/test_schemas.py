"""The CI hosts' schemas that are stored with the tests: they are as strict as the originals."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import host_schemas
from support.host_schemas import fields, problems, schema_of

from scripts import schemas

NAME = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}},
    "additionalProperties": False,
}
ONE: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "description": "left out",
    "type": "object",
    "definitions": {
        "step": {"type": "object", "required": ["run"], "properties": {"of": {"$ref": "#"}}}
    },
    "properties": {
        "description": {"description": "a field of that name stays", "type": "string"},
        "first": {**NAME, "description": "the same type as the second one"},
        "second": NAME,
        "steps": {"type": "array", "items": {"$ref": "#/definitions/step"}},
        "either": {"oneOf": [NAME, {"type": "array", "items": [NAME, {"const": 1}]}]},
        "kind": {"enum": ["A", {"description": "a value, no schema"}]},
    },
    "dependencies": {"first": ["second"], "second": {"required": ["kind"]}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "document",
    [
        {"description": "x", "first": {"name": "ab"}, "second": {"name": "ab"}, "kind": "A"},
        {"description": 1},
        {"unknown": 1},
        {"first": {"nam": "ab"}},
        {"second": {"name": "a"}},
        {"steps": [{"run": 1, "of": {"steps": [{}]}}]},
        {"either": {"name": 1}},
        {"either": [{"name": "ab"}, 2]},
        {"kind": {"description": "a value, no schema"}},
        {"kind": "B"},
    ],
    ids=json.dumps,
)
def test_the_reduced_schema_finds_the_same_errors_as_the_original(document: Any) -> None:
    facts = json.loads(schemas.rendered({"one": ONE, "other": {**ONE, "type": "array"}}))
    found = jsonschema.Draft7Validator({"$ref": "#/schemas/one", **facts}).iter_errors(document)
    expected = jsonschema.Draft7Validator(ONE).iter_errors(document)
    assert {(one.json_path, one.message) for one in found} == {
        (one.json_path, one.message) for one in expected
    }


def test_a_type_shared_by_several_schemas_is_stored_once_and_without_descriptions() -> None:
    text = schemas.rendered({"one": ONE, "other": {**ONE, "type": "array"}})
    assert text.count('"minLength"') == 1
    assert "left out" not in text
    assert "a value, no schema" in text


def test_an_unknown_kind_in_a_known_api_group_is_reported() -> None:
    assert schema_of({"apiVersion": "tekton.dev/v1", "kind": "Task"}) == "tekton-task-v1"
    assert schema_of({"apiVersion": "triggers.tekton.dev/v1beta1", "kind": "EventListener"}) == ""
    with pytest.raises(ValueError, match="not enough values"):
        schema_of({"apiVersion": "tekton.dev/v1", "kind": "Tusk"})


def test_a_misspelt_field_is_reported_with_its_path() -> None:
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "a"}}
    assert (
        problems(schema_of(workflow), {**workflow, "spec": {"entrypoint": "a", "templates": []}})
        == []
    )
    (found,) = problems(
        schema_of(workflow), {**workflow, "spec": {"templates": [{"containr": {}}]}}
    )
    assert found.startswith("$.spec.templates[0]: ")
    assert "containr" in found
    assert "templates[].container.image" in fields("argo-workflows-workflow-v1alpha1", "spec")


if os.environ.get(
    "SCHEMAS_DIR"
):  # an additional check for developers who have the originals, which a clone does not need

    def test_the_committed_schemas_match_the_original_schemas() -> None:
        made = schemas.rendered(schemas.gathered(Path(os.environ["SCHEMAS_DIR"])))
        assert host_schemas.FACTS.read_text(encoding="utf-8") == made, "python -m scripts.schemas"
