"""Renders the ApplicationSets among manifests.

Applications read from a cluster do not need this, because the generated Applications are already in
the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from task.applications.git import Repositories
from task.applications.manifest_text import source_warning
from task.applicationsets import Budget, NamedCluster, Rendered, load, may_name, render, template_of
from task.errors import Exit, Malformed, TaskError, Trouble, UsageError
from task.files import read_text
from task.model import Found, Image
from task.plain_data import mapping
from task.text import without_logins

_FAILED = (
    "fix the ApplicationSet: until then, neither Argo CD nor this step will generate Applications"
    " from it"
)
_OTHERS = "this ApplicationSet's other Applications are used"
_CLUSTERS = "use a list of {name: prod, server: https://…, labels: {…}, annotations: {…}}"
_KEYS = {"name", "server", "project", "labels", "annotations"}


class RenderedSets:
    """Turns ApplicationSets into their Applications."""

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
        """`images` are the event's images.

        Without images, `strict` makes a broken ApplicationSet an error rather than a warning.
        """
        self._repositories = repositories
        self._clusters = clusters
        self._namespace = namespace
        self._prefix = prefix
        self._images = images
        self._strict = strict
        self._budget = budget or Budget()

    def of(self, found: Found) -> Iterator[Found]:
        """Yield the Applications that Argo CD generates from an ApplicationSet, and a problem for
        each mistake in it.

        If there are no Applications, yields the ApplicationSet's template instead, if it has a
        usable `image-list`.
        """
        key = self._shown_name(found.item)
        try:
            rendered = render(
                found.item,
                self._repositories,
                self._budget,
                clusters=self._clusters,
                namespace=self._namespace,
            )
        except TaskError as error:
            rendered = Rendered()
            yield self._problem(found, key, error.message, error.hint or _FAILED, error.exit)
        except RecursionError:
            rendered = Rendered()
            yield self._problem(found, key, "nested too deeply", _FAILED)

        for item in rendered.applications:
            yield Found(
                item,
                found.origin,
                generated_by=key,
                owner=found.item,
                text=found.text,
            )
        # if only some Applications have mistakes, Argo CD generates the others
        general_hint = _FAILED if rendered.failed else _OTHERS
        for trouble in rendered.troubles:
            yield self._problem(found, key, trouble.message, trouble.hint or general_hint)
        for unknown in rendered.unknown:  # generators whose parameters only the cluster knows
            message = f"{found.origin}: {unknown.message}"
            yield source_warning(found.origin, message, unknown.hint, subject=key)

        if rendered.applications:
            return
        template = template_of(found.item, self._prefix)
        if template:
            yield Found(
                template,
                found.origin,
                generated_by=key,
                template=True,
                text=found.text,
            )

    def _problem(
        self,
        found: Found,
        key: str,
        message: str,
        hint: str,
        code: Exit = Exit.OK,
    ) -> Found:
        """Return a problem with an ApplicationSet: an error or a warning.

        With an event, it is an error if the ApplicationSet may track the event's images. Without an
        event, it is an error if the run is strict. `code` is the exit code of the error.
        """
        if self._images:
            is_error = may_name(found.item, self._images, self._prefix)
        else:
            is_error = self._strict
        # Argo CD's error messages quote whole templates, which may contain logins
        full_message = without_logins(f"{found.origin}: ApplicationSet {key}: {message}")
        trouble = Trouble("source", full_message, hint, severity="warning", exit=code)
        if is_error:
            trouble = replace(trouble, severity="error", exit=code or Exit.CONFIGURATION)
        return Found({}, found.origin, trouble)

    def _shown_name(self, item: Mapping[str, Any]) -> str:
        """Return an ApplicationSet's "namespace/name"."""
        metadata = mapping(item.get("metadata"))
        namespace = metadata.get("namespace") or self._namespace
        return f"{namespace}/{metadata.get('name') or '?'}"


def clusters_of(path: str) -> tuple[NamedCluster, ...]:
    """Return the clusters in the `--clusters` file, a YAML list of mappings.

    Raises `UsageError` if the file is unreadable or an entry is invalid.
    """
    try:
        entries = load(read_text(path))
    except OSError as error:
        raise UsageError(
            f"--clusters: cannot read {path!r}: {error.strerror}",
            hint="pass a readable file",
        ) from None
    except (UnicodeDecodeError, Malformed) as error:
        message = f"--clusters: {path!r}: {getattr(error, 'message', error)}"
        raise UsageError(message, hint=_CLUSTERS) from None
    if not isinstance(entries, list):
        raise UsageError(f"--clusters: {path!r} is not a list", hint=_CLUSTERS)
    return tuple(
        _parse_cluster(entry, f"--clusters: {path!r}: entry {number}")
        for number, entry in enumerate(entries, start=1)
    )


def _parse_cluster(entry: Any, where: str) -> NamedCluster:
    """Return the cluster in an entry of the `--clusters` file, such as `{name: prod, server: …}`.

    Raises a `UsageError` whose message begins with `where`.
    """
    if not isinstance(entry, dict):  # treated as an entry without a name
        entry = {}
    name = entry.get("name")
    server = entry.get("server")
    if not isinstance(name, str) or not isinstance(server, str):
        raise UsageError(f"{where} has no name or no server", hint=_CLUSTERS)
    unknown_keys = sorted(set(entry) - _KEYS)
    if unknown_keys:
        raise UsageError(f"{where}: unknown key {unknown_keys[0]!r}", hint=_CLUSTERS)
    labels = entry.get("labels") or {}
    annotations = entry.get("annotations") or {}
    for key, texts in (("labels", labels), ("annotations", annotations)):
        is_mapping = isinstance(texts, dict)
        if not is_mapping or not all(isinstance(value, str) for value in texts.values()):
            raise UsageError(f"{where}: {key} is not a mapping of strings", hint=_CLUSTERS)
    project = str(entry.get("project") or "")
    return NamedCluster(
        name=name,
        server=server,
        project=project,
        labels=labels,
        annotations=annotations,
    )
