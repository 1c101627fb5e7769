"""Pure code for the names of head branches: one for each group of a base, however many Applications a run concerns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from task.deciding.job import Move
from task.errors import Exit, Malformed
from task.git.names import OURS, short_hash
from task.model import Subscription, Verdict
from task.templates import branch_name
from task.templates.change import Change
from task.urls import normal_url

NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def name_heads(moves: Sequence[Move], *, by_hand: bool = False) -> list[Move]:
    """Return the moves, each with the head branch that it touches: its own, or that of its group's request.

    The annotation `git-branch` may build a name from the Application's updates. Then only updates have a name, and what
    a person asks for (`by_hand`).
    """
    changes: dict[str, list[Change]] = {}
    for one in moves:
        if one.changes:
            of_app = changes.setdefault(one.subscription.application.key, [])
            of_app += [change] if (change := one.change) not in of_app else []
    found = []
    for one in moves:
        sub, base = one.subscription, one.decision.branch
        of_app = changes.get(sub.application.key, [])
        anew = by_hand or of_app or one.decision.verdict == "defer" or "{{" not in sub.head_template
        if not (sub.head_template or sub.pull_request) or not anew or not base:
            found.append(one)
            continue
        try:
            head = _named(sub, base, of_app) if sub.head_template else request_head(sub, base)
        except Malformed as error:
            because = f"git-branch: {error.message}"
            found.append(
                one.without_effect(Verdict("error", "annotation", because, error.hint, int(Exit.CONFIGURATION)))
            )
            continue
        found.append(replace(one, decision=replace(one.decision, head=head)))
    return found


def _named(sub: Subscription, base: str, changes: Sequence[Change]) -> str:
    """Return the branch that `git-branch` names. Raises `Malformed`."""
    app = branch_name.AppFields(sub.application.name, sub.application.namespace, sub.repo, base, sub.path)
    head = branch_name.branch_name(sub.head_template, changes, app)
    if sub.pull_request and head == base:
        raise Malformed(f"no pull request can merge {head} into itself", "name another branch after the colon, or none")
    return head


def request_head(sub: Subscription, base: str) -> str:
    """Return the branch of the request for the subscription's group, which is its image unless the config says more.

    The name is flat, as Git refuses a branch `a/b` beside `a`.
    """
    repo, app = normal_url(sub.repo), sub.application
    group = sub.wishes.group or "image"
    # an Application has one request, whichever of its images were built; two Argo CDs may have one of its name
    names = {"repository": repo, "project": app.project, "application": f"{app.key} {sub.home}"}
    full = names.get(group, sub.entry.image.identity)
    short = app.name if group == "application" else full.rpartition("/")[2]
    name = NOT_IN_A_NAME.sub("-", short).strip("-")[:60].strip("-")
    return f"{OURS}{name or group}-{short_hash(repo, base, group, full)}"
