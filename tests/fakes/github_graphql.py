"""Checks our requests to GitHub's GraphQL API against its own schema
(tests/data/forges/github.graphql).
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from fakes.description import FOLDER
from graphql import GraphQLSchema, build_schema, parse, validate
from graphql.execution.values import get_variable_values
from graphql.language import OperationDefinitionNode


@cache
def schema() -> GraphQLSchema:
    """Return the part of GitHub's schema that our requests use."""
    return build_schema((FOLDER / "github.graphql").read_text(), assume_valid=True)


def invalid(query: str, variables: Mapping[str, Any]) -> str:
    """Return the errors in a query or its variables according to the schema, or "" if there are
    none.
    """
    document = parse(query)
    errors = [error.message for error in validate(schema(), document)]
    (operation,) = document.definitions
    assert isinstance(operation, OperationDefinitionNode)
    values = get_variable_values(schema(), operation.variable_definitions or (), dict(variables))
    if isinstance(values, list):
        errors += [error.message for error in values]
    given = variables.get("input", {})
    oids = [given.get("expectedHeadOid"), *(one["afterOid"] for one in given.get("refUpdates", ()))]
    errors += [
        f"{oid!r} is no id"
        for oid in oids
        if oid is not None and not re.fullmatch("[0-9a-f]{40}", oid)
    ]
    return "; ".join(errors)
