"""Checks requests against a forge's own API description: paths, parameters, fields, and types.

The descriptions are in tests/data/forges. `python -m scripts.forge_descriptions` generates them
from those that the forges publish.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parent.parent / "data" / "forges"
MANY = {"ref", "head", "branch", "name"}  # variables in paths whose values may contain slashes


class Description:
    """A forge's API description."""

    def __init__(self, forge: str) -> None:
        found = json.loads((FOLDER / f"{forge}.json").read_text())
        self.operations: dict[str, Any] = found["operations"]
        self.examples: dict[str, Any] = found.get("examples", {})
        self.schemas: dict[str, Any] = found.get("schemas", {})
        self._routes = []
        for name in self.operations:
            method, _, path = name.partition(" ")
            parts = (f"({'.+' if part.strip('{}') in MANY else '[^/]+'})" if part.startswith("{") else re.escape(part)
                     for part in path.split("/"))  # fmt: skip
            self._routes.append((method, name, re.compile("/".join(parts), re.IGNORECASE)))
        self._validators: dict[tuple[str, str], Any] = {}

    def operation(self, method: str, path: str) -> str:
        """Return the operation that a request matches, or "" if there is none. If several
        operations match, return the one with the fewest variables.
        """
        found = [
            name for verb, name, route in self._routes if verb == method and route.fullmatch(path)
        ]
        return min(found, key=lambda name: name.count("{"), default="")

    def problems(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> list[str]:
        """Return the parts of a request that the description does not cover. `path` is the path as
        sent, relative to the API's address.
        """
        name = self.operation(method, path)
        if not name:
            return [f"{method} {path} is not described"]
        known = {
            one["name"]: one["schema"]
            for one in self.operations[name]["parameters"]
            if one["in"] == "query"
        }
        found = [f"{name} knows no parameter {one}" for one in query if one not in known]
        for one, values in query.items():
            schema = known.get(one, {})
            value: Any = (
                int(values[-1])
                if schema.get("type") in ("integer", "number") and values[-1].isdigit()
                else values[-1]
            )
            if not Draft202012Validator(schema).is_valid(value):
                found.append(f"{name}: {one}={value!r}")
        if body is not None and "request" not in self.operations[name]:
            return [*found, f"{name} takes no body"]
        if body is not None:
            errors = self.validator(name, "request").iter_errors(body)
            found += [f"{name}: {one.json_path}: {one.message[:200]}" for one in errors]
        return found

    def validator(self, name: str, *place: str) -> Any:
        """Return a validator for the schema at a given place in an operation. Requests must not
        contain unknown fields.
        """
        key = name, "/".join(place)
        if key not in self._validators:
            schema: Any = self.operations[name]
            for part in place:
                schema = schema[part]
            schema = strict(schema) if place[0] == "request" else schema
            self._validators[key] = Draft202012Validator({**schema, "schemas": self.schemas})
        return self._validators[key]


def strict(schema: Any) -> Any:
    """Return a stricter schema, in which objects with listed properties must not have any
    others.
    """
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        found["properties"] = {name: strict(one) for name, one in schema["properties"].items()}
        found["additionalProperties"] = False
    return found


@cache
def described(forge: str) -> Description:
    """Return a forge's API description. Each file is read only once."""
    return Description(forge)
