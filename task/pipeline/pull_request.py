"""A pull request in place of a push to the base branch: one for each destination, opened or brought up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from task.errors import SourceError, TaskError
from task.forges.proposal import (
    Content,
    Links,
    body,
    builds,
    described,
    headline,
    marker,
    message_parts,
    proposes,
    refuses,
    standing,
    title,
)
from task.forges.proposed_builds import Builds, build_key
from task.model import Build, Commit, Decision, Proposal, Proposed, Verdict, Written
from task.pipeline.changeset import Draft, changes
from task.pipeline.job import Landed, Outcome
from task.pipeline.ports import Forge, Site
from task.pipeline.weigh import failed
from task.policy.order import UNORDERED, commits, later, version_of
from task.templates.change import Change
from task.templates.commit_message import AppChanges

NOWHERE = "0" * 40  # where a branch is that does not exist


@dataclass(frozen=True)
class Request:
    """What the forge says of one head branch's request before anything is done."""

    forge: Forge
    found: Proposed | None = None
    error: TaskError | None = None  # it says nothing


def requests_of(site: Site, decisions: Sequence[Decision]) -> tuple[dict[str, Request], list[Decision]]:
    """The requests that these decisions are about, by head branch; a decision that cannot have one is an error.

    `plan` asks no forge.
    """
    found: dict[str, Request] = {}
    failures: dict[str, TaskError] = {}
    for one in decisions if not site.job.dry else ():
        if one.subscription.pull_request and one.head not in ("", one.branch, *found, *failures):
            try:
                found[one.head] = _request(_forge(site, one.subscription.repo), one)
            except TaskError as error:
                failures[one.head] = error
    told = (failed(one, failures[one.head]) if one.head in failures and changes(one) else one for one in decisions)
    return found, list(told)


def _forge(site: Site, repo: str) -> Forge:
    if site.world.forge is None:
        raise SourceError("no pull request can be opened here", hint="leave out pull-request")
    return site.world.forge(repo)


def _request(forge: Forge, one: Decision) -> Request:
    """Where the forge is down, the branch is pushed all the same: nothing is lost, and running again completes it."""
    try:
        return Request(forge, forge.find(one.branch, one.head))
    except TaskError as error:
        return Request(forge, error=error)


def is_over(request: Request | None, tip: str) -> bool:
    """Whether a head branch is what a merged or closed request has left behind.

    It is not where something was pushed since, of which the forge could not be told.
    """
    found = request.found if request else None
    return found is not None and found.state != "open" and described(found.body) in ("", tip)


def declined(site: Site, request: Request, decision: Decision) -> Decision:
    """The decision; a refusal where a person has closed the request that proposed this very image, or a newer one.

    What was closed is told by the request's own text: its branch may be gone.
    """
    found = request.found
    if found is None or decision.verdict.verdict != "update" or decision.carried:
        return decision
    sub, candidate = decision.subscription, decision.candidate
    key = build_key(sub.application.key, sub.entry.alias, sub.entry.image.identity)
    if (known := refuses(found).get(key)) is None:
        return decision
    event = Written(candidate.tag, candidate.digest, decision.build)
    if version_of(event) == version_of(known):
        return _refused(decision, found)
    by_build = sub.policy.strategy in UNORDERED or event.tag == known.tag
    pair = commits(event.build, known.build) if by_build else None
    why = later(event, known, sub.policy, {pair: site.world.ancestry(*pair)} if pair else {})
    if not why:
        return decision
    because = f"{found.url}: {version_of(known)} was closed by a person: {why}"
    return replace(decision, verdict=Verdict("refuse", "superseded", because), memory=None, hold=())


def _refused(decision: Decision, found: Proposed) -> Decision:
    because = f"{found.url}: exactly this was closed by a person: a newer build opens another request"
    return replace(decision, verdict=Verdict("refuse", "superseded", because), memory=None, hold=())


def proposed(site: Site, change: Draft, request: Request, tip: str, commit: Callable[[], Outcome]) -> Outcome:
    """Commit to the head branch (which is at `tip`) and open or update its request; nothing where that stands already.

    When the forge fails, the decisions are errors and the branch stays: the next run goes on from there.
    """
    stands = _stands(site, change, request, tip)
    if request.found and stands != "wanted":
        return _as_it_stands(change, request.found, stands)
    outcome = commit()
    landed = outcome.commits[0].commit if outcome.commits else ""
    at = landed or (outcome.landed[0].commit if outcome.landed else tip)
    try:
        if request.error:
            raise request.error
        found = _found(change, request, outcome)
        now = request.forge.propose(_proposal(site, change, at, found), found)
    except TaskError as error:
        return replace(outcome, decisions=tuple(failed(one, error) for one in change.decisions), landed=())
    if now.note:
        site.world.log("warning", f"{now.url}: {now.note}")
    return _done(change, outcome, now, at)


def _found(change: Draft, request: Request, outcome: Outcome) -> Proposed | None:
    """The request as it was before the push. A branch that held exactly this was another run's: look again."""
    if outcome.commits:
        return request.found
    where = change.changeset.destination
    return request.forge.find(where.base, where.head)


def _stands(site: Site, change: Draft, request: Request, tip: str) -> str:
    """What the newest request means for this content: see `standing`; what conflicts is made anew on the base."""
    found = request.found
    if found is None:
        return "wanted"
    stands = standing(replace(found, head_commit=tip or NOWHERE), marker(change.apps, change.held))
    if stands == "same":
        return "wanted" if request.forge.state(found.number).conflicts else stands
    return "wanted" if site.job.intent else stands  # a person wants it now


def _as_it_stands(change: Draft, there: Proposed, stands: str) -> Outcome:
    """The open request says exactly this; or a person has closed it for exactly this."""
    if stands != "same":
        updates = (one.verdict.verdict == "update" for one in change.decisions)
        told = zip(change.decisions, updates, strict=True)
        return Outcome(tuple(_refused(one, there) if update else one for one, update in told))
    verdict = Verdict("unchanged", "same", f"{there.url} proposes exactly this")
    decisions = tuple(
        replace(one, verdict=verdict) if one.verdict.verdict == "update" else one for one in change.decisions
    )
    at = described(there.body)
    return Outcome(
        decisions, (replace(_commit(change, at, there), stands=True),), _waiting(decisions, change, at, there)
    )


def _waiting(decisions: Sequence[Decision], change: Draft, at: str, there: Proposed) -> tuple[Landed, ...]:
    """Whoever waits, waits for the merge of what is proposed already."""
    apps: dict[str, list[Decision]] = {}
    for one in decisions:
        apps.setdefault(one.subscription.application.key, []).append(one)
    repo = change.changeset.destination.repo
    return tuple(Landed(of[0].subscription.application, repo, at, tuple(of), there.number) for of in apps.values())


def _done(change: Draft, outcome: Outcome, now: Proposed, at: str) -> Outcome:
    """As it is with the request; one that the forge has merged at once is a commit on the base branch."""
    commits = tuple(replace(one, pull_request=now.url) for one in outcome.commits) or (_commit(change, at, now),)
    if now.state != "merged":
        return Outcome(change.decisions, commits, tuple(replace(one, request=now.number) for one in outcome.landed))
    merged, base = now.merge_commit or at, change.changeset.destination.base
    commits = tuple(replace(one, commit=merged, head=base) for one in commits)
    landed = (
        replace(one, commit=merged, changes=tuple(replace(two, head=base) for two in one.changes))
        for one in outcome.landed
    )
    return Outcome(change.decisions, commits, tuple(landed))


def _commit(change: Draft, commit: str, request: Proposed) -> Commit:
    where = change.changeset.destination
    apps = tuple(sorted({one.subscription.application.key for one in change.decisions}))
    return Commit(where.repo, where.base, where.head, commit or None, "", (), apps, pull_request=request.url)


def _proposal(site: Site, change: Draft, commit: str, found: Proposed | None) -> Proposal:
    where, wanted = change.changeset.destination, site.job.requests
    kind, compare = site.world.compare(where.repo, where.base, where.head)
    subject, text = message_parts(change.changeset.message)
    links = Links(wanted.source, wanted.run, compare)
    apps = _with_builds(change.apps, proposes(found.body) if found else {})
    proposed_now = builds(apps)
    refused = {key: one for key, one in (refuses(found) if found else {}).items() if key not in proposed_now}
    own = site.job.wording.template is not None and bool(change.apps)  # the author's words, and not ours
    words = [text] if own else []
    words += ["\n".join(change.told)] if change.told and (change.held or change.back) else []
    return Proposal(
        where.repo,
        where.base,
        where.head,
        title(subject) if own else headline(change.command, subject, change.apps, change.back),
        body(Content(apps, "\n\n".join(words), links, commit, change.held, refused), kind),
        wanted.labels,
        wanted.reviewers,
        wanted.assignees,
        wanted.draft,
        wanted.auto_merge,
    )


def _with_builds(apps: Sequence[AppChanges], known: Builds) -> tuple[AppChanges, ...]:
    """The same; of what waited already, the request's text tells which builds these are."""
    return tuple(replace(app, changes=tuple(_with_build(app, one, known) for one in app.changes)) for app in apps)


def _with_build(app: AppChanges, change: Change, known: Builds) -> Change:
    there = known.get(build_key(f"{app.namespace}/{app.name}", change.alias, change.image.identity))
    same = there is not None and (there.tag, there.digest) == (change.new_tag, change.new_digest)
    return replace(change, build=there.build) if there and same and change.build == Build() else change
