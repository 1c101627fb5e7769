"""Opens or updates a pull request instead of pushing to the base branch: one request for each head branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from task.deciding.job import Job, Outcome, failed, landed_at
from task.errors import RepositoryError, TaskError
from task.forges.proposal import (
    Builds,
    Content,
    body,
    build_key,
    builds,
    described,
    headline,
    lacking,
    marker,
    message_parts,
    proposes,
    refuses,
    split,
    standing,
    title,
    wishes,
)
from task.landing.changeset import PreparedCommit
from task.landing.head_branches import Request, closed_for_this
from task.landing.ports import Repository, World
from task.model import Build, Head, Proposal, Proposed, Verdict
from task.templates.change import AppChanges, Change

NOWHERE = "0" * 40  # Git's name for a branch that does not exist


def as_it_stands(
    prepared: PreparedCommit, request: Request, job: Job, world: World
) -> Outcome | None:
    """Return the outcome if nothing is to be pushed: the open request proposes exactly this, or a person declined it.

    What an earlier run could not set on the request is set now. None means that the head branch is to be written, and
    then its request.
    """
    if (found := request.found) is None:
        return None
    known = replace(found, head_commit=prepared.changeset.head_commit or NOWHERE)
    stands = standing(known, marker(prepared.apps, prepared.hold_changes))
    if (
        stands == "declined" and not job.intent
    ):  # a person who wants it now gets it, whatever was closed before
        return Outcome(prepared.with_updates_as(closed_for_this(found)))
    if (
        stands != "same" or request.forge.state(found.number).conflicts
    ):  # then it is written again, on the base's tip
        return None
    at = described(found.body)
    decisions = prepared.with_updates_as(
        Verdict("unchanged", "same", f"{found.url} proposes exactly this")
    )
    landed = landed_at(decisions, prepared.changeset.repo, at)
    told = Outcome(
        decisions,
        (replace(prepared.reported(at), pull_request=found.url, already_there=True),),
        landed,
    )
    whole = _proposal(prepared, at, found, job, world)
    if wishes(lacking(whole, found.body)):
        whole = replace(whole, title=found.title, body=split(found.body)[1])
        found = _noted(request.forge.propose(whole, found), world)
    return _of_request(told, found, at, whole.base)


def propose(
    prepared: PreparedCommit, request: Request, outcome: Outcome, job: Job, world: World
) -> Outcome:
    """Open or update the request of a head branch. `outcome` is that of its commit.

    If the forge fails, the decisions become errors and the branch stays. The next run continues from there.
    """
    where = prepared.changeset
    landed = outcome.commits[0].commit if outcome.commits else ""
    at = landed or (
        outcome.landed[0].commit if outcome.landed else prepared.changeset.head_commit or ""
    )
    try:
        if request.error:
            raise request.error
        # If the branch had exactly this before, another run pushed it and may have opened the request by now.
        found = request.found if outcome.commits else request.forge.find(where.base, where.head)
        now = _noted(
            request.forge.propose(_proposal(prepared, at, found, job, world), found), world
        )
    except TaskError as error:
        if not prepared.decisions:  # only builds of other Applications are left there
            world.log("warning", f"the request of {where.head} still has its old text: {error}")
        return replace(
            outcome, decisions=tuple(failed(one, error) for one in prepared.decisions), landed=()
        )
    commits = tuple(
        replace(one, pull_request=now.url) for one in outcome.commits or (prepared.reported(at),)
    )
    return _of_request(Outcome(prepared.decisions, commits, outcome.landed), now, at, where.base)


def _noted(request: Proposed, world: World) -> Proposed:
    if request.note:
        world.log("warning", f"{request.url}: {request.note}")
    return request


def _of_request(outcome: Outcome, now: Proposed, at: str, base: str) -> Outcome:
    """Return the outcome with the request. Whoever waits, waits for its merge, unless the forge merged it at once."""
    if now.state != "merged":
        return replace(
            outcome, landed=tuple(replace(one, request=now.number) for one in outcome.landed)
        )
    merged = now.merge_commit or at  # it is on the base branch
    return Outcome(
        outcome.decisions,
        tuple(replace(one, commit=merged, head=base) for one in outcome.commits),
        tuple(
            replace(
                one,
                commit=merged,
                decisions=tuple(replace(two, head=base) for two in one.decisions),
            )
            for one in outcome.landed
        ),
    )


def close(
    head: Head, because: str, request: Request | None, repository: Repository, world: World
) -> None:
    """Close the request of a head branch on which nothing waits any more, and delete the branch.

    Such a request declines nothing, so its text is changed before a Git host may close it because its branch is gone.
    Raises `Outpaced` if another run proposes something newer there.
    """
    if request and request.found and request.found.state == "open":
        try:
            request.forge.withdraw(request.found, because)
            world.log("info", f"{request.found.url} is closed: {because}")
        except TaskError as error:
            world.log(
                "warning", f"{request.found.url} is obsolete, and was not closed: {error.message}"
            )
            return
    try:
        repository.drop(head.branch, head.tip)
    except RepositoryError as error:  # GitLab and Gitea let nobody delete a protected branch by git
        world.log("warning", f"{head.branch} was not deleted: {error.message}")


def _proposal(
    prepared: PreparedCommit, commit: str, found: Proposed | None, job: Job, world: World
) -> Proposal:
    where, wanted, wishes = prepared.changeset, job.requests, prepared.wishes
    kind, compare = world.compare(where.repo, where.base, where.head)
    subject, text = message_parts(prepared.changeset.message)
    apps = _with_builds(prepared.apps, proposes(found.body) if found else {})
    proposed_now = builds(apps)
    refused = {
        key: one
        for key, one in (refuses(found) if found else {}).items()
        if key not in proposed_now
    }
    own = prepared.templated and bool(prepared.apps)  # the author's own template, not our text
    words = [subject, text] if own and prepared.asked else [text] if own else []
    words += [
        f"It changes {path} as well; this run did not read its Application."
        for path in prepared.unlisted
    ]
    of_resources = [
        label for one in prepared.decisions for label in one.subscription.application.request_labels
    ]
    merges = bool(wishes.auto_merge if wanted.auto_merge is None else wanted.auto_merge)
    said, held = "\n\n".join(words), prepared.hold_changes
    content = Content(
        apps, said, wanted.source, wanted.run, compare, commit, held, refused, where.base
    )
    return Proposal(
        repo=where.repo,
        base=where.base,
        head=where.head,
        title=title(subject)
        if own and not prepared.asked
        else headline(
            prepared.command, prepared.asked or subject, prepared.apps, prepared.rollbacks
        ),
        body=body(content, kind),
        labels=tuple(dict.fromkeys((*(wanted.labels or wishes.labels or ()), *of_resources))),
        reviewers=wanted.reviewers or wishes.reviewers or (),
        assignees=wanted.assignees or wishes.assignees or (),
        draft=bool(wishes.draft if wanted.draft is None else wanted.draft),
        auto_merge=merges
        and (
            not prepared.frozen or bool(prepared.rollbacks)
        ),  # no forge deploys in a freeze for us
    )


def _with_builds(apps: Sequence[AppChanges], known: Builds) -> tuple[AppChanges, ...]:
    """Return the changes with the builds that were already on the head branch, for the request's text."""

    def with_build(app: AppChanges, change: Change) -> Change:
        there = known.get(
            build_key(f"{app.namespace}/{app.name}", change.alias, change.image.identity)
        )
        same = there is not None and (there.tag, there.digest) == (
            change.new_tag,
            change.new_digest,
        )
        return (
            replace(change, build=there.build)
            if there and same and change.build == Build()
            else change
        )

    return tuple(
        replace(app, changes=tuple(with_build(app, one) for one in app.changes)) for app in apps
    )
