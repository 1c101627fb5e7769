"""Reads Applications from Argo CD's API, for `--applications argocd`.

One answer has the names, annotations and labels of all Applications. Whole Applications are about a hundred times as
large, so only those that matter are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from task.annotations.application import is_glob
from task.errors import SourceDownError, SourceError
from task.model import Application, Found
from task.plain_data import mapping, text
from task.threads import in_threads

AT_ONCE = 8  # requests
ORIGIN = "argocd"
RIGHT = "applications, get, */*"
Wants = Callable[[Mapping[str, Any]], bool]


class ApplicationsApi(Protocol):
    """The two calls of Argo CD's API that list and read Applications."""

    def list_applications(
        self, *, projects: Sequence[str] = (), selector: str = "", namespace: str = ""
    ) -> list[dict[str, Any]]:
        """Return the metadata of Applications."""

    def get_application(self, namespace: str, name: str) -> dict[str, Any]:
        """Return a whole Application."""


class ArgoCDManifests:
    """The source for `--applications argocd`. `wanted` decides from its metadata whether an Application matters.

    For each other one, `passed` returns the Application to keep in `passed_over`, or None.
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
        """Projects and namespaces may be globs.

        The server understands only plain names, so then it lists more than needed.
        """
        self._api, self._wanted, self._selector = api, wanted, selector
        self._projects = projects if not any(map(is_glob, projects)) else ()
        self._namespaces = namespaces if namespaces and not any(map(is_glob, namespaces)) else ("",)
        self._passed = passed
        self._narrowed = bool(self._projects or selector or self._namespaces != ("",))
        self._listed = 0
        self.passed_over: list[Application] = []  # Applications that do not matter, but that `passed` keeps

    def all(self) -> Iterable[Found]:
        """Return the whole Applications that matter.

        One that cannot be read is a problem, but a server that is down raises an error.
        """
        keys = list(dict.fromkeys(key for namespace in self._namespaces for key in self._keys(namespace)))
        if not self._listed:  # without any right, Argo CD answers 200 and an empty list (`items` is null)
            narrowed = " that fits --project, --selector and --namespace" if self._narrowed else ""
            why = f"Argo CD shows no Application{narrowed}: there is none, or the token may not get it"
            return [Found({}, ORIGIN, why, f"grant it in argocd-rbac-cm: p, <subject>, {RIGHT}, allow")]
        return in_threads(self._found, keys, AT_ONCE)

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
        except SourceError as error:  # it may have been deleted meanwhile: Argo CD answers 403, as for a forbidden one
            return Found({}, ORIGIN, str(error), error.hint)


def _key(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the namespace and name. Older servers leave out the control plane's namespace."""
    metadata = mapping(item.get("metadata"))
    name = text(metadata.get("name"))
    return (text(metadata.get("namespace")), name) if name else None
