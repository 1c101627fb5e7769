"""A pull request in place of a push to the base branch: one for each destination, opened or brought up to date."""

from __future__ import annotations

from collections.abc import Callable

from task.draft import Draft
from task.errors import SourceError, TaskError
from task.model import Commit, Proposal, Proposed, Verdict
from task.weigh import failed
from task.words.proposal import Content, Links, body, marker, message_parts, standing, title
from task.world import Forge, Outcome, Site


def proposed(site: Site, change: Draft, commit: Callable[[], Outcome]) -> Outcome:
    """Commit to the head branch and open or update its request; nothing at all where that stands already.

    When the forge fails after the push, the decisions are errors and the branch stays: the next run goes on from there.
    """
    where = change.changeset.destination
    forge = _forge(site, where.repo)
    before = forge.find(where.base, where.head)
    stands = standing(before, marker(change.apps))
    if before and stands != "wanted":
        return _as_it_stands(change, before, stands)
    outcome = commit()
    landed = outcome.commits[0].commit if outcome.commits else ""
    at = landed or (outcome.landed[0].commit if outcome.landed else "")
    try:
        now = forge.propose(_proposal(site, change, at))
    except TaskError as error:
        return outcome._replace(decisions=tuple(failed(one, error) for one in change.decisions), landed=())
    if now.note:
        site.edges.log("warning", f"{now.url}: {now.note}")
    requested = tuple(one._replace(request=now.number) for one in outcome.landed)
    commits = tuple(one._replace(pull_request=now.url) for one in outcome.commits) or (_commit(change, at, now),)
    return Outcome(change.decisions, commits, requested)


def _forge(site: Site, repo: str) -> Forge:
    if site.edges.forge is None:
        raise SourceError("no pull request can be opened here", hint="leave out pull-request")
    return site.edges.forge(repo)


def _as_it_stands(change: Draft, there: Proposed, stands: str) -> Outcome:
    """The open request says exactly this; or a person has closed it for exactly this."""
    if stands == "same":
        verdict = Verdict("unchanged", "same", f"{there.url} proposes exactly this")
        commits: tuple[Commit, ...] = (_commit(change, there.head_commit, there),)
    else:
        because = f"{there.url} proposed exactly this and was closed: a newer build opens another one"
        verdict, commits = Verdict("refuse", "superseded", because), ()
    decisions = tuple(one._replace(verdict=verdict, memory=None, hold=()) for one in change.decisions)
    return Outcome(decisions, commits)


def _commit(change: Draft, commit: str, request: Proposed) -> Commit:
    where = change.changeset.destination
    apps = tuple(sorted({one.subscription.application.key for one in change.decisions}))
    return Commit(where.repo, where.base, where.head, commit or None, "", (), apps, 0, None, request.url)


def _proposal(site: Site, change: Draft, commit: str) -> Proposal:
    where, wanted = change.changeset.destination, site.order.requests
    kind, compare = site.edges.compare(where.repo, where.base, where.head)
    _subject, text = message_parts(change.changeset.message)
    links = Links(wanted.source, wanted.run, compare)
    own_words = text if site.order.wording.template is not None else ""
    return Proposal(
        where.repo,
        where.base,
        where.head,
        title(change.changeset.message),
        body(Content(change.apps, own_words, links, commit), kind),
        wanted.labels,
        wanted.reviewers,
        wanted.assignees,
        wanted.draft,
        wanted.auto_merge,
    )
