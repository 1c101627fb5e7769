"""The JSON Schemas of what the command prints; shipped with the package."""

from __future__ import annotations

import json
import os
from typing import Any


def load(name: str) -> Any:
    """Return one schema as plain data, by its file's name: `report.v1`, `lint.v1`."""
    with open(os.path.join(os.path.dirname(__file__), f"{name}.json"), encoding="utf-8") as file:
        return json.load(file)
