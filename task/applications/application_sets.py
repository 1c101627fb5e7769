"""Renders the ApplicationSets among manifests, and reads the repositories of their `git` generators.

A cluster is not asked: there the generated Applications themselves count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from task.applications import Found
from task.applications.git import SnapshotReader
from task.applicationsets.fill import Budget
from task.applicationsets.generators import NamedCluster
from task.applicationsets.go_yaml import load
from task.applicationsets.render import Rendered, render
from task.applicationsets.unfilled import may_name, template_of
from task.errors import Malformed, SourceError, TaskError, UsageError
from task.files import read_text
from task.model import Image, Place, Snapshot
from task.text import without_logins

MOST_REPOSITORIES = 50  # of `git` generators; each is fetched
_FAILED = "correct the ApplicationSet: until then neither Argo CD nor this step generates anything from it"
_BRANCH = "name a branch in the generator's revision, or read what was generated: --applications cluster"
_OTHERS = "the other Applications of this ApplicationSet are used"
_KEYS = {"name", "server", "project", "labels", "annotations"}


class Repositories:
    """The repositories of `git` generators. Each revision is fetched once, for all ApplicationSets of a run."""

    def __init__(self, repository: Callable[[str], SnapshotReader]) -> None:
        self._open = repository
        self._repositories: dict[str, SnapshotReader] = {}
        self._snapshots: dict[tuple[str, str], Snapshot] = {}
        self._texts: dict[tuple[str, str], dict[str, str]] = {}

    def paths(self, repo: str, revision: str) -> Sequence[str]:
        """The paths of all files at the tip of the branch. Raises the errors of Git."""
        return list(self._snapshot(repo, revision).files)

    def texts(self, repo: str, revision: str, paths: Sequence[str]) -> Mapping[str, str]:
        """The texts of these files. Raises Malformed for what is no text, and the errors of Git."""
        snapshot = self._snapshot(repo, revision)
        known = self._texts.setdefault((repo, revision), {})
        if missing := [path for path in paths if path not in known]:
            found = self._repositories[repo].again(snapshot, [Place(path) for path in missing])
            for path, file in found.files.items():
                if file.problem:
                    raise Malformed(f"cannot read {path!r}: {file.problem}", "write it as UTF-8 text")
                known[path] = file.text
        return {path: known[path] for path in paths if path in known}

    def _snapshot(self, repo: str, revision: str) -> Snapshot:
        if (repo, revision) not in self._snapshots:
            if repo not in self._repositories:
                if len(self._repositories) >= MOST_REPOSITORIES:
                    message = f"the git generators name more than {MOST_REPOSITORIES} repositories"
                    raise SourceError(message, hint="name fewer ApplicationSets with --applications")
                self._repositories[repo] = self._open(repo)
            reader = self._repositories[repo]
            branch = reader.default_branch() if revision in ("", "HEAD") else revision
            try:
                self._snapshots[repo, revision] = reader.snapshot(branch, [Place("", "names")])
            except SourceError as error:
                raise SourceError(error.message, hint=_BRANCH, subject=error.subject) from error
        return self._snapshots[repo, revision]

    def close(self) -> None:
        """Removes what was fetched."""
        for reader in self._repositories.values():
            reader.close()


class RenderedSets:
    """Turns each ApplicationSet into its Applications."""

    def __init__(
        self,
        repositories: Repositories,
        *,
        clusters: Sequence[NamedCluster] | None = None,
        namespace: str = "argocd",
        prefix: str = "argocd-image-updater.argoproj.io/",
        images: Collection[Image] = (),
        strict: bool = True,
        budget: Budget | None = None,
    ) -> None:
        """`images` are those of the event. `strict`: without any, a broken set is an error, else a warning."""
        self._repositories, self._clusters, self._namespace = repositories, clusters, namespace
        self._prefix, self._images, self._strict = prefix, images, strict
        self._budget = budget or Budget()

    def of(self, found: Found) -> Iterator[Found]:
        """The Applications of a set. What is wrong with it is a problem of its own."""
        key = self._key(found.item)
        try:
            rendered = render(
                found.item,
                self._repositories,
                self._budget,
                clusters=self._clusters,
                namespace=self._namespace,
            )
        except TaskError as error:
            yield self._problem(found, key, error.message, error.hint or _FAILED, int(error.exit))
            rendered = Rendered()
        except RecursionError:
            yield self._problem(found, key, "nested too deeply", _FAILED)
            rendered = Rendered()
        for item in rendered.applications:
            yield Found(item, found.origin, generated_by=key)
        for trouble in rendered.troubles:
            yield self._problem(found, key, trouble.message, trouble.hint or (_FAILED if rendered.failed else _OTHERS))
        for unknown in rendered.unknown:
            message = f"{found.origin}: {unknown.message}"
            yield Found({}, found.origin, message, unknown.hint, subject=key)
        if not rendered.applications and (template := template_of(found.item, self._prefix)):
            yield Found(template, found.origin, generated_by=key, template=True)

    def _problem(self, found: Found, key: str, message: str, hint: str, code: int = 0) -> Found:
        concerned = may_name(found.item, self._images, self._prefix) if self._images else self._strict
        where = without_logins(f"{found.origin}: ApplicationSet {key}: {message}")  # Argo CD quotes whole templates
        return Found({}, found.origin, where, hint, severity="error" if concerned else "warning", exit=code)

    def _key(self, item: Mapping[str, Any]) -> str:
        metadata = item.get("metadata")
        about = metadata if isinstance(metadata, dict) else {}
        return f"{about.get('namespace') or self._namespace}/{about.get('name') or '?'}"


def clusters_of(path: str) -> tuple[NamedCluster, ...]:
    """The clusters of a file for `--clusters`: a YAML list. Raises UsageError, which names the entry."""
    hint = "write a list of {name: prod, server: https://…, labels: {…}, annotations: {…}}"
    try:
        listed = load(read_text(path))
    except OSError as error:
        raise UsageError(f"--clusters: cannot read {path!r}: {error.strerror}", hint="name a readable file") from None
    except (UnicodeDecodeError, Malformed) as error:
        raise UsageError(f"--clusters: {path!r}: {getattr(error, 'message', error)}", hint=hint) from None
    if not isinstance(listed, list):
        raise UsageError(f"--clusters: {path!r} is not a list", hint=hint)
    clusters = []
    for at, one in enumerate(listed, start=1):
        if not isinstance(one, dict) or not all(isinstance(one.get(key), str) for key in ("name", "server")):
            raise UsageError(f"--clusters: {path!r}: entry {at} has no name or no server", hint=hint)
        if unknown := sorted(set(one) - _KEYS):
            raise UsageError(f"--clusters: {path!r}: entry {at}: unknown key {unknown[0]!r}", hint=hint)
        texts = {}
        for key in ("labels", "annotations"):
            given = one.get(key) or {}
            if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
                raise UsageError(f"--clusters: {path!r}: entry {at}: {key} is not a mapping of strings", hint=hint)
            texts[key] = given
        clusters.append(NamedCluster(one["name"], one["server"], str(one.get("project") or ""), **texts))
    return tuple(clusters)
