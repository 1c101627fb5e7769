"""Applications from Argo CD's API: `--applications argocd`.

One answer has the names, annotations and labels of all. Whole Applications are some hundred times as large together,
so only those of interest are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from task import shutdown
from task.annotations.narrow import is_glob
from task.applications import Found
from task.errors import SourceDownError, SourceError
from task.model import Application

AT_ONCE = 8  # requests
ORIGIN = "argocd"
RIGHT = "applications, get, */*"
Wants = Callable[[Mapping[str, Any]], bool]


class ApplicationsApi(Protocol):
    """The two calls of Argo CD's API that list and read Applications."""

    def list_applications(
        self, *, projects: Sequence[str] = (), selector: str = "", namespace: str = ""
    ) -> list[dict[str, Any]]:
        """Their metadata."""

    def get_application(self, namespace: str, name: str) -> dict[str, Any]:
        """A whole one."""


class ArgoCDManifests:
    """`--applications argocd`. `wanted` tells from its metadata whether an Application is of interest.

    Of the others, `passed` keeps what their metadata says; None for those that nobody asks about.
    """

    def __init__(
        self,
        api: ApplicationsApi,
        wanted: Wants,
        *,
        passed: Callable[[Mapping[str, Any]], Application | None] = lambda _item: None,
        projects: Sequence[str] = (),
        selector: str = "",
        namespaces: Sequence[str] = (),
    ) -> None:
        """Projects and namespaces may be globs. Only plain names can be sent to the server, which then lists less."""
        self._api, self._wanted, self._selector = api, wanted, selector
        self._projects = projects if not any(map(is_glob, projects)) else ()
        self._namespaces = namespaces if namespaces and not any(map(is_glob, namespaces)) else ("",)
        self._passed = passed
        self._narrowed = bool(self._projects or selector or self._namespaces != ("",))
        self._listed = 0
        self.passed_over: list[Application] = []  # what `passed` kept of the others

    def all(self) -> Iterable[Found]:
        """The Applications of interest, whole. One that cannot be read is a problem; a server that is down raises."""
        keys = list(dict.fromkeys(key for namespace in self._namespaces for key in self._keys(namespace)))
        if not self._listed:  # what a token without any right sees is an empty list, not an error
            narrowed = " in what --project, --selector and --namespace leave" if self._narrowed else ""
            why = f"Argo CD shows no Application{narrowed}: there is none, or the token may not get it"
            return [Found({}, ORIGIN, why, f"grant it in argocd-rbac-cm: p, <subject>, {RIGHT}, allow")]
        if len(keys) < 2:  # one needs no threads, which take time to load
            return [self._found(key) for key in keys]
        with ThreadPoolExecutor(min(len(keys), AT_ONCE)) as pool:
            with shutdown.unheard():  # signals are for the main thread, which waits
                found = pool.map(self._found, keys)
            return list(found)

    def _keys(self, namespace: str) -> list[tuple[str, str]]:
        listed = self._api.list_applications(projects=self._projects, selector=self._selector, namespace=namespace)
        self._listed += len(listed)
        chosen = [item for item in listed if self._wanted(item)]
        keys = {key for item in chosen if (key := _key(item))}
        self.passed_over += [app for item in listed if _key(item) not in keys and (app := self._passed(item))]
        return [key for item in chosen if (key := _key(item))]

    def _found(self, key: tuple[str, str]) -> Found:
        try:
            return Found(self._api.get_application(*key), ORIGIN)
        except SourceDownError:
            raise
        except SourceError as error:  # deleted since the list was made
            return Found({}, ORIGIN, str(error), error.hint)


def _key(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """(namespace, name); older servers leave the namespace out where it is the control plane's."""
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        return None
    namespace = metadata.get("namespace")
    return namespace if isinstance(namespace, str) else "", name
