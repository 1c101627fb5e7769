"""What in a folder of manifests is a template of a Helm chart: text that becomes a manifest when Helm fills it in."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

CHART = "Chart.yaml"
_APPLICATION = re.compile(r"(?:^|[\s{,\"'])kind[\"']?:[ \t]*[\"']?Application(?:Set)?\b", re.MULTILINE)


def makes_applications(text: str) -> bool:
    """Whether a file holds an Application or ApplicationSet, filled in or not."""
    return bool(_APPLICATION.search(text))


class ChartTemplates:
    """The charts among some files, and which of them make Applications."""

    def __init__(self, files: Iterable[str] = ()) -> None:
        self._charts = {posixpath.dirname(path) for path in files if posixpath.basename(path) == CHART}
        self._of_applications: dict[str, None] = {}

    def add(self, folder: str) -> None:
        """A folder that holds a Chart.yaml."""
        self._charts.add(folder)

    def holds(self, path: str, text: str) -> bool:
        """Whether this file is a template of a chart, and no manifest before Helm has filled it in."""
        chart = self._chart_of(path)
        if chart is None or "{{" not in text:
            return False
        if makes_applications(text):
            self._of_applications[chart] = None
        return True

    @property
    def of_applications(self) -> tuple[str, ...]:
        """The charts whose templates make Applications; known once all files were looked at."""
        return tuple(self._of_applications)

    def _chart_of(self, path: str) -> str | None:
        """The chart among whose templates this path is; the outermost, where charts lie in charts."""
        parts = path.split("/")
        for count in (at for at, part in enumerate(parts[:-1]) if part == "templates"):
            folder = "/".join(parts[:count])
            if folder in self._charts:
                return folder
        return None
