"""Creates decisions, commits, and reports for tests of the output."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from task.errors import Trouble
from task.model import (
    Application,
    Commit,
    Decision,
    Entry,
    Found,
    Image,
    Keys,
    Policy,
    Problem,
    Reading,
    Report,
    Source,
    Subscription,
    Verdict,
    VerdictName,
)

WEB = Image("ghcr.io/acme/web", "ghcr.io", "acme/web", "1.1.0")
REPO = "https://git.example.com/acme/gitops.git"


def parsed_application(
    annotations: Mapping[str, str] | None = None,
    name: str = "web",
    namespace: str = "argocd",
    **more: Any,
) -> Application:
    """Return an Application as parsed from its manifest, with a Helm chart and these
    annotations.
    """
    source = Source("https://git.example/x.git", "apps/web", "main", kind="Helm", section="Helm")
    return replace(Application(namespace, name, annotations or {}, (source,)), **more)


def decision(
    verdict: VerdictName = "update", rule: str = "admitted", name: str = "web", **more: Any
) -> Decision:
    """Return a decision for an Application."""
    app = Application("argocd", name, {}, ())
    sub = Subscription(
        app, Entry("web", WEB, "", ""), Policy(), Keys(), Source(""), "override", "x", REPO
    )
    return replace(
        Decision(sub, WEB, Verdict(verdict, rule, "so"), Reading(tag="1.0.0"), "main", "main"),
        **more,
    )


def commit(**more: Any) -> Commit:
    """Return a commit that landed, for the Application `argocd/web`."""
    return replace(
        Commit(REPO, "main", "main", "a" * 40, "b" * 40, ("f",), ("argocd/web",)), **more
    )


def report(
    *decisions: Decision,
    commits: tuple[Commit, ...] = (),
    problems: tuple[Problem, ...] = (),
    code: int = 0,
    command: str = "run",
    images: tuple[Image, ...] = (WEB,),
) -> Report:
    """Return the report of a run."""
    return Report(command, images, 1, decisions, commits, problems, code)


def trouble_of(found: Found) -> Trouble:
    """Return the reason why this manifest could not be read."""
    assert found.trouble, found
    return found.trouble
