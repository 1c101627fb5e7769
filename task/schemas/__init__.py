"""The JSON Schemas of the command's output, shipped with the package."""

from __future__ import annotations

import json
import os
from typing import Any


def load(name: str) -> Any:
    """Return a schema as plain data, by file name: `report.v1`, `lint.v1`."""
    path = os.path.join(os.path.dirname(__file__), f"{name}.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)
