"""Renders folders in which Helm or Kustomize makes the Applications, for `--render`."""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from task.applications import KINDS
from task.applications.deployed import Release
from task.applications.kustomizations import NAMES as KUSTOMIZATIONS
from task.applications.kustomizations import changes, needed, reaches_out
from task.applications.local_files import LINK
from task.applications.manifest_text import found_in
from task.applications.programs import SECONDS, found, run
from task.errors import Malformed, SourceError
from task.model import File, Found

Kind = Literal["helm", "kustomize"]
ReadFiles = Callable[[str], Mapping[str, File]]
_PROGRAMS: Mapping[Kind, tuple[str, ...]] = {"helm": ("helm",), "kustomize": ("kustomize", "kubectl")}
_WHAT: Mapping[Kind, str] = {"helm": "Helm chart", "kustomize": "kustomization"}
# HelmReleases are not rendered, because an update is written to the file that has the release.
_OTHERWISE = "or read what it makes: --applications cluster"
NOTHING: Mapping[str, str] = {}
_VALUES = ".image-update-values.yaml"
_LONGEST_RELEASE = 53  # characters of a release's name
# Helm follows `$ref` in it to any file and server that the step can reach, so that it never gets one.
_SCHEMA = "values.schema.json"
BUDGET = 300.0  # seconds for all rendering of a run: thousands of charts may be followed, of many authors


def kind_of(names: Collection[str]) -> Kind | None:
    """Return what makes the manifests of a folder with these files. Like Argo CD, prefer Kustomize to Helm."""
    if any(name in names for name in KUSTOMIZATIONS):
        return "kustomize"
    return "helm" if "Chart.yaml" in names else None


class RenderingError(SourceError):
    """A chart or kustomization cannot be rendered. Its owner has to act."""


class Rendering:
    """Knows what may be rendered on this machine, and with which program."""

    def __init__(
        self,
        allowed: Collection[str] = (),
        environ: Mapping[str, str] = NOTHING,
        namespace: str = "argocd",
        sources: Collection[str] = (),
        seconds: float = BUDGET,
    ) -> None:
        """`namespace` is the release's: Argo CD's own. `sources` are all values of `--applications`."""
        self._seconds = self._left = seconds
        self._allowed, self._environ, self.namespace = allowed, environ, namespace
        self._sources = {source.partition("?")[0].removeprefix("./").rstrip("/") for source in sources}
        self._programs: dict[Kind, str] = {}

    def way_out(self, kind: Kind) -> str:
        """Return what to do so that charts or kustomizations are rendered, or "" if they are."""
        if kind not in self._allowed:
            return f"render it with --render {kind}, {_OTHERWISE}"
        return "" if self._program(kind) else f"install {' or '.join(_PROGRAMS[kind])} beside this step, {_OTHERWISE}"

    def unrendered(
        self,
        root: str,
        charts: Collection[str],
        kustomization: str,
        *,
        applications: bool,
        kustomizations: Collection[str] = (),
        before: str = "",
    ) -> Iterator[Found]:
        """Yield a warning about each chart that makes Applications, and about each kustomization that changes some.

        `kustomization` is the text of the one at the source's root. `applications` says whether the source has any.
        `kustomizations` are the folders whose kustomization changes some. `before` is put before each path.
        """
        told: list[tuple[Kind, str]] = [("helm", chart) for chart in charts]
        if kustomization and (changes(kustomization, self.namespace) if applications else reaches_out(kustomization)):
            told.append(("kustomize", root))
        told += [("kustomize", folder) for folder in kustomizations if ("kustomize", folder) not in told]
        for kind, folder in told:
            where = f"{before}{folder}".rstrip("/") or "."
            if folder != root and where in self._sources:
                continue  # it is read, or reported, as a source of its own
            # Only the source's own folder is rendered, not the folders below it.
            own = f"name it as a source of its own, with --render {kind}, {_OTHERWISE}"
            yield self.advice(kind, where, self.way_out(kind) if folder == root else own)

    def advice(self, kind: Kind, where: str, hint: str) -> Found:
        """Return the warning about one chart or kustomization that is not rendered."""
        message = f"{where}: this {_WHAT[kind]} makes Applications, and it is not rendered"
        return Found({}, where, message, hint, advice=True)

    def rendered(
        self, kind: Kind, where: str, folder: str, read: ReadFiles, release: Release = Release()
    ) -> Iterator[Found]:
        """Yield the Applications of a folder, all of them with the origin `where`.

        `folder` is its path from the top. `read` returns the files in such a path. Raises RenderingError with the
        program's message.
        """
        left_out: list[str] = []
        links = set[str]()

        def texts(below: str) -> dict[str, str]:
            files = read(below)
            left_out.extend(path for path, file in files.items() if file.problem)
            links.update(path for path, file in files.items() if file.mode == LINK)
            if kind == "helm" and links:
                raise Malformed(f"{min(links)[:200]!r} is a symbolic link", "put the file itself into the chart")
            whole = {path: file for path, file in files.items() if file.mode.startswith("100") and not file.problem}
            return {path: file.text for path, file in whole.items() if posixpath.basename(path) != _SCHEMA}

        try:
            files = texts(folder) if kind == "helm" else needed(folder, texts, links)
            for path in release.value_files:
                files.update(texts(path))
            if release.values:
                files[_VALUES] = release.values
            program = self._program(kind)
            given = ["kustomize" if os.path.basename(program) == "kubectl" else "build"]
            if kind == "helm":
                given = _helm(release, folder or where, self.namespace)
            text = self._run([program, *given, f"./{folder}"], files)
        except Malformed as error:
            hint = error.hint
            if left_out:
                hint += f"; {left_out[0]} was left out, as only UTF-8 text is rendered"
            message = f"cannot render this {_WHAT[kind]}: {error.message}"
            raise RenderingError(message, hint=hint, subject=where) from None
        for one in found_in(text.encode(), where):
            if one.problem or one.item.get("kind") in KINDS:
                yield replace(one, origin=where)

    def _run(self, argv: list[str], files: Mapping[str, str]) -> str:
        """Run a program within what is left of the budget, and return what it prints. Raises Malformed."""
        if self._left <= 0:
            message = f"the rendering of this run has taken {self._seconds:.0f} seconds already"
            raise Malformed(message, f"render less in one run, {_OTHERWISE}")
        began = time.monotonic()
        try:
            return run(argv, files, self._environ, seconds=min(SECONDS, self._left))
        finally:
            self._left -= time.monotonic() - began

    def _program(self, kind: Kind) -> str:
        if kind not in self._programs:
            self._programs[kind] = found(_PROGRAMS[kind], self._environ)
        return self._programs[kind]


def _helm(release: Release, folder: str, namespace: str) -> list[str]:
    """Return Helm's arguments except the chart. Values come in Argo CD's order."""
    files = [*release.value_files, *([_VALUES] if release.values else [])]
    values = [word for path in files for word in ("--values", f"./{path}")]
    values += [word for option, name, value in release.parameters for word in (option, f"{name}={value}")]
    name = release.name or _release(folder)
    return ["template", "--namespace", release.namespace or namespace, *values, "--", name]


def _release(folder: str) -> str:
    """Return a release name that Helm accepts, from the folder's name."""
    name = posixpath.basename(folder.rstrip("/")).removesuffix(".git").lower()
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:_LONGEST_RELEASE].strip("-") or "applications"
