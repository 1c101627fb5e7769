"""Opening or updating a pull request instead of pushing to the base branch.

Each head branch has one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from task.deciding.job import Job, Outcome, PullRequestOptions, failed, grouped_by_application
from task.errors import TaskError
from task.forges.proposal import (
    Content,
    body,
    described,
    headline,
    lacking,
    message_parts,
    split,
    title,
    wishes,
)
from task.forges.reviewing import SourceRange, ending, leaving, source_ranges, undoing
from task.git.names import PREFIX
from task.landing.changeset import PreparedCommit
from task.landing.head_branches import HeadBranch, Request
from task.landing.ports import World
from task.landing.waiting_list import WaitingList
from task.model import Proposal, Proposed, Verdict
from task.templates.change import AppChanges, merged_changes

NOWHERE = "0" * 40  # Git's commit id for a branch that does not exist


def already_proposed(
    prepared: PreparedCommit,
    head: HeadBranch,
    waiting_list: WaitingList,
    job: Job,
    world: World,
) -> Outcome | None:
    """Return the outcome if there is nothing to push to a head branch (the branch of a pull
    request), because its open request already proposes everything that `waiting_list` (the list of
    waiting builds after the run) will contain. Return None if the branch must be written.

    As a side effect, set whatever an earlier run could not set on the request, such as labels.
    """
    newest = head.newest_request
    request = head.request
    if newest is None or request is None or newest.state != "open":
        return None
    if job.intent:  # a person's command is always written
        return None
    if not head.as_listed:  # the branch's tip is not the commit that an earlier run recorded
        return None
    # the request's text names the commit that it describes; the id may be abbreviated
    described_commit = described(newest.body) or NOWHERE
    is_up_to_date = head.tip.startswith(described_commit)
    proposes_the_same = _proposed_in(head.waiting_list) == _proposed_in(waiting_list)
    if not is_up_to_date or not proposes_the_same:
        return None
    if request.forge.state(newest.number).conflicts:  # if so, rewrite it on the base's tip
        return None

    decisions = prepared.with_updates_as(
        Verdict("unchanged", "same", f"{newest.url} already proposes this")
    )
    commit = replace(prepared.reported(head.tip), pull_request=newest.url, already_there=True)
    landed = grouped_by_application(decisions, prepared.changeset.repo, head.tip)
    proposal = _proposal(prepared, head.tip, waiting_list, job, world)
    missing_settings = wishes(lacking(proposal, newest.body))  # labels, people, auto-merge
    if missing_settings:
        _before, our_part, _after = split(newest.body)
        with_same_text = replace(proposal, title=newest.title, body=our_part)
        newest = _with_note_logged(request.forge.propose(with_same_text, newest), world)
    return _add_request(Outcome(decisions, (commit,), landed), newest, head.tip, proposal.base)


def _proposed_in(waiting_list: WaitingList) -> set[object]:
    """Return the builds and releases that a list proposes, without details that may change while
    they wait. Two lists that propose the same things have equal sets.
    """
    builds = {
        (build.key, build.version, build.rollback is not None) for build in waiting_list.builds
    }
    return {*builds, *waiting_list.releases}


def propose(
    prepared: PreparedCommit,
    request: Request,
    outcome: Outcome,
    waiting_list: WaitingList,
    job: Job,
    world: World,
) -> Outcome:
    """Open or update a head branch's pull request after the branch was pushed.

    `outcome` is the outcome of the push. Return it with the request's URL and number added. If the
    forge (the Git host) fails, the decisions become errors, and the branch is kept. The next run
    continues from there.
    """
    changeset = prepared.changeset
    tip = _tip_after(prepared, outcome)
    try:
        if request.error:
            raise request.error
        if outcome.commits:
            newest = request.newest
        else:
            # The branch already had this commit: another run pushed it, and may also have opened
            # the request.
            newest = request.forge.find(changeset.base, changeset.head)
        proposal = _proposal(prepared, tip, waiting_list, job, world)
        proposed = _with_note_logged(request.forge.propose(proposal, newest), world)
    except TaskError as error:
        if not prepared.decisions:  # there are only builds that were already waiting
            message = f"the request for {changeset.head} still has its old text: {error}"
            world.log("warning", message)
        failed_decisions = tuple(failed(decision, error) for decision in prepared.decisions)
        return replace(outcome, decisions=failed_decisions, landed=())

    commits = outcome.commits or (prepared.reported(tip),)
    outcome_with_urls = Outcome(
        prepared.decisions,
        tuple(replace(commit, pull_request=proposed.url) for commit in commits),
        outcome.landed,
    )
    return _add_request(outcome_with_urls, proposed, tip, changeset.base)


def _tip_after(prepared: PreparedCommit, outcome: Outcome) -> str:
    """Return the id of the head branch's commit after the push: the new commit, or the one that the
    branch already had.
    """
    if outcome.commits and outcome.commits[0].commit:
        return outcome.commits[0].commit
    if outcome.landed:
        return outcome.landed[0].commit
    return prepared.changeset.head_commit or ""


def _with_note_logged(request: Proposed, world: World) -> Proposed:
    """Log the forge's note about a pull request, if there is one, and return the request."""
    if request.note:
        world.log("warning", f"{request.url}: {request.note}")
    return request


def _add_request(outcome: Outcome, proposed: Proposed, tip: str, base: str) -> Outcome:
    """Add the pull request to the outcome of a push. `tip` is the head branch's commit.

    The request's number is added to each Application, so that a run with --wait can wait for the
    merge. If the forge (the Git host) merged the request at once, its merge commit has landed on
    the base.
    """
    if proposed.state != "merged":
        with_number = [replace(landed, request=proposed.number) for landed in outcome.landed]
        return replace(outcome, landed=tuple(with_number))

    merge_commit = proposed.merge_commit or tip
    commits = [replace(commit, commit=merge_commit, head=base) for commit in outcome.commits]
    landed_on_base = []
    for landed in outcome.landed:
        decisions = tuple(replace(decision, head=base) for decision in landed.decisions)
        landed_on_base.append(replace(landed, commit=merge_commit, decisions=decisions))
    return Outcome(outcome.decisions, tuple(commits), tuple(landed_on_base))


def withdraw(because: str, request: Request | None, world: World) -> bool:
    """Close the open pull request of a head branch where no builds are waiting anymore. `because`
    is the reason to show on the request.

    Return True if the request is closed or there was nothing to close, and False if the Git host
    failed. Raises `Outpaced` if another run proposes something newer there.
    """
    if request is None or request.newest is None or request.newest.state != "open":
        return True
    try:
        request.forge.withdraw(request.newest, because)
    except TaskError as error:
        url = request.newest.url
        world.log("warning", f"{url} is obsolete but could not be closed: {error.message}")
        return False
    world.log("info", f"closed {request.newest.url}: {because}")
    return True


def _source_ranges(waiting_list: WaitingList, apps: Sequence[AppChanges]) -> list[SourceRange]:
    """Return the builds before and after each displayed change, so that a pull request can link to
    the source commits between them.

    Rollbacks are left out: they go from a newer build to an older one, so there is no commit range.
    """
    shown_builds = set()  # (Application, alias, tag, digest)
    for app in apps:
        for change in app.changes:
            app_key = f"{app.namespace}/{app.name}"
            shown_builds.add((app_key, change.alias, change.new_tag, change.new_digest))
    ranges = []
    for build in waiting_list.builds:
        old = build.base.written  # the newest build ever written to the base
        is_shown = (build.application, build.alias, build.tag, build.digest) in shown_builds
        if not is_shown or build.rollback or old is None:
            continue
        if old.version != build.base.version:  # the base had a build with unknown commits
            continue
        ranges.append(SourceRange(build.image, old.build, build.build))
    return ranges


def _proposal(
    prepared: PreparedCommit,
    commit: str,
    waiting_list: WaitingList,
    job: Job,
    world: World,
) -> Proposal:
    """Return the desired pull request for a head branch whose tip is this commit.

    Each setting is taken from the command line (`options`), or else from the repository's config
    (`from_config`).
    """
    changeset = prepared.changeset
    options = job.requests
    from_config = prepared.wishes
    kind, compare = world.compare(changeset.repo, changeset.base, changeset.head)
    apps = merged_changes(prepared.apps, prepared.earlier_changes)
    heading, text = _heading_and_text(prepared, apps)
    rolled_back = {(app.namespace, app.name) for app in prepared.rollbacks}
    forward = [app for app in apps if (app.namespace, app.name) not in rolled_back]
    content = Content(
        apps=apps,
        text=text,
        source=options.source,
        run=options.run,
        compare=compare,
        commit=commit,
        base=changeset.base,
        besides=(
            ending(prepared.ending),
            leaving(prepared.leaving),
            source_ranges(_source_ranges(waiting_list, apps), world.range_page),
            undoing(forward),
        ),
    )

    draft = from_config.draft if options.draft is None else options.draft
    auto_merge = from_config.auto_merge if options.auto_merge is None else options.auto_merge
    # A merge triggers a deployment, so auto-merge is disabled during a freeze, except for
    # rollbacks.
    may_merge = not prepared.frozen or bool(prepared.rollbacks)
    return Proposal(
        repo=changeset.repo,
        base=changeset.base,
        head=changeset.head,
        title=heading,
        body=body(content, kind),
        labels=_labels(prepared, options),
        reviewers=options.reviewers or from_config.reviewers or (),
        assignees=options.assignees or from_config.assignees or (),
        draft=bool(draft),
        auto_merge=bool(auto_merge) and may_merge,
        prefix=from_config.branch_prefix or PREFIX,
    )


def _heading_and_text(prepared: PreparedCommit, apps: Sequence[AppChanges]) -> tuple[str, str]:
    """Return a pull request's title, and the text rendered from a custom message template ("" if
    there is no custom template, or no image changes).
    """
    subject, text = message_parts(prepared.changeset.message)
    default_title = headline(prepared.command, prepared.asked or subject, apps, prepared.rollbacks)
    from_template = prepared.templated and bool(apps)
    if not from_template:
        return default_title, ""
    if prepared.asked:  # a person's request is in the title, so the subject moves to the text
        return default_title, f"{subject}\n\n{text}"
    return title(subject), text


def _labels(prepared: PreparedCommit, options: PullRequestOptions) -> tuple[str, ...]:
    """Return a pull request's labels, without duplicates: those from the command line or else the
    config, and those from the Applications' ImageUpdater resources.
    """
    labels = list(options.labels or prepared.wishes.labels or ())
    for decision in prepared.decisions:
        labels += decision.subscription.application.request_labels
    return tuple(dict.fromkeys(labels))
