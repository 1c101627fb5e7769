"""Finds the templates of Helm charts in a folder: texts that become manifests only when Helm fills them in."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

CHART = "Chart.yaml"
_APPLICATION = re.compile(r"(?:^|[\s{,\"'])kind[\"']?:[ \t]*[\"']?Application(?:Set)?\b", re.MULTILINE)


def makes_applications(text: str) -> bool:
    """Tell whether a file has an Application or ApplicationSet, filled in or not."""
    return bool(_APPLICATION.search(text))


class ChartTemplates:
    """The charts among some files, and which of them make Applications."""

    def __init__(self, files: Iterable[str] = ()) -> None:
        self._charts = {posixpath.dirname(path) for path in files if posixpath.basename(path) == CHART}
        self._of_applications: dict[str, None] = {}

    def add(self, folder: str) -> None:
        """Add a folder that has a Chart.yaml."""
        self._charts.add(folder)

    def holds(self, path: str, text: str) -> bool:
        """Tell whether a file is a template of a chart, and so not a manifest yet."""
        chart = self._chart_of(path)
        if chart is None or "{{" not in text:
            return False
        if makes_applications(text):
            self._of_applications[chart] = None
        return True

    @property
    def of_applications(self) -> tuple[str, ...]:
        """The charts whose templates make Applications. Complete when `holds` was called for all files."""
        return tuple(self._of_applications)

    def _chart_of(self, path: str) -> str | None:
        """Return the chart that has this path among its templates, and the outermost one for charts in charts."""
        parts = path.split("/")
        for count in (at for at, part in enumerate(parts[:-1]) if part == "templates"):
            folder = "/".join(parts[:count])
            if folder in self._charts:
                return folder
        return None
