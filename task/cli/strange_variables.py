"""Finds variables that look like ours but are unknown, because a misspelt one must not go unnoticed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from task.model import Problem
from task.option import ENV_PREFIX, RESULTS_PREFIX, variable_of
from task.settings import SECRETS, every_option
from task.text import nearest

# Kubernetes sets these in every container for each Service of its namespace, even for one named image-update-….
OF_A_SERVICE = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?)")


def strange_variables(environ: Mapping[str, str]) -> tuple[Problem, ...]:
    """Return a warning for each unknown variable that looks like one of ours, without its value."""
    known = {*(variable_of(field.name) for field, _, _ in every_option()), *SECRETS}
    found = []
    for name in sorted(name for name, value in environ.items() if name.startswith(ENV_PREFIX) and value.strip()):
        if name in known or name.startswith(RESULTS_PREFIX) or OF_A_SERVICE.fullmatch(name):
            continue
        near = nearest(name, sorted(known))
        hint = f"did you mean {near}?" if near else "see the list of options in the reference, or remove it"
        found.append(Problem(rule="usage", message=f"the variable {name} is not read", hint=hint, severity="warning"))
    return tuple(found)
