"""The features common to all forges: requests (never two for one branch), comments, and
deployments.

A request belongs to a head branch of the repository itself. Requests from forks may use any branch
name, and are ignored. If something fails here, the pushed branch is kept, and the next run
completes the request.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from task import shutdown
from task.errors import ForgeError, Outpaced, RepositoryError, UnreachableError
from task.forges.client import STAYS, Client, ForgeAddress, Limited, Reach
from task.forges.deployment import CommitStatus, Deployment
from task.forges.proposal import (
    applied_wishes,
    closed_body,
    described,
    has_same_text,
    lacking,
    longest_body,
    plain,
    rewritten_by_another_run,
    wish_key,
    wishes,
    with_applied_wishes,
    with_fitting_text,
)
from task.git.hosts import RemoteUrl
from task.git.names import has_our_prefix
from task.http import Response
from task.model import Proposal, Proposed
from task.urls import web_page

MOVED = "a newer build was pushed to the branch in the meantime, with its own description"
PAGES = 5  # pages of a hundred comments each, newest first; older comments are not searched
_RACES = 5
_COMMIT = re.compile("[0-9A-Fa-f]{7,64}")  # Bitbucket returns twelve digits
_LONGEST_NOTE = 1000


@dataclass(frozen=True)
class ForgeKind:
    """A kind of forge.

    Each kind is defined at the end of its file, and listed in `task.forges.places`.
    """

    name: str  # the forge's name in --forge
    client: type[Host]
    comments: type[Comments]
    # A repository's URL, and the root of the forge's web pages → the repository's address; the host
    # is filled in later.
    place: Callable[[RemoteUrl, str], ForgeAddress]
    aliases: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # the forge's public hosts
    host_ends: tuple[str, ...] = ()
    words: tuple[
        str, ...
    ] = ()  # part of the names of hosts that run it: gitlab.example.com, my-gitea.example.com
    # An address below its root that does not require authentication, and a test for whether the
    # response is from this kind of forge.
    question: tuple[str, Callable[[Response], bool]] | None = None
    # {0} is the repository's page, {1} the base branch, {2} the head branch.
    # For `commit`, {1} is the commit; for `range`, {1} is the older commit, and {2} the newer one.
    compare: str = "{0}/compare/{1}...{2}"
    commit: str = "{0}/commit/{1}"
    range: str = ""  # like `compare`, for two commits; "" if the same as `compare`
    deployments: type[Deployments] | None = None  # None if the forge does not show deployments


class Connected(ABC):
    """The base of everything with a client for a repository on its forge."""

    connect: ClassVar[type[Client]]
    needs: ClassVar[str]  # the permission, as a hint for people
    stays: ClassVar[str] = STAYS  # what remains done despite a failed request

    def __init__(self, reach: Reach) -> None:
        """Do not contact any server yet."""
        self.place = reach.place
        self._client = self.connect(reach, self.needs, self.stays)
        self._path = self._client.path

    @property
    def forge(self) -> str:
        """The forge's name in `task.forges.places`."""
        return self.place.forge

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Raise `UnreachableError` for a response with an unexpected shape, such as from a proxy or
        a different service.
        """
        try:
            yield
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise UnreachableError(
                f"{self.place.host} returned an unexpected response"
                f" ({type(error).__name__}: {error})"[:300],
                hint="check the Git host in --forge or the URL, then run it again",
            ) from error


class Host(Connected):
    """A repository's requests. `pull` is always the forge's own data about a request."""

    # Unsupported features, each with a sentence for people: "labels", "assignees", "auto_merge".
    without: ClassVar[Mapping[str, str]] = {}
    without_drafts: ClassVar[str] = ""  # for people, if some repositories lack drafts
    # What our next push does to an auto-merge; "again" means that auto-merge has to be set again.
    auto_merge_after_push: ClassVar[Literal["stays", "ends", "again"]] = "stays"

    def find(self, base: str, head: str) -> Proposed | None:
        """Return the open request from `head` into `base`, else the newest closed or merged
        request, or None.

        Its state is "gone" if the forge reports that it closed the request because the branch was
        deleted.
        """
        with self.understood():
            found = self.newest(base, head)
            return plausible(found, self.place.web) if found else None

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """Open the request, or update the open request. Never open a second one.

        `found` is the result of `find` before the push, so the request is not looked up again. If
        the branch has moved on, its request is left to the run that moved it, as the result's
        `head_commit` shows. Raises `Outpaced` if the request has been merged: the rest then has to
        be decided on the new tip.
        """
        with self.understood():
            return plausible(_open_or_update(self, proposal, found), self.place.web)

    def state(self, number: str) -> Proposed:
        """Return the state of a request: open, merged (with its merge commit), or closed."""
        with self.understood():
            return plausible(self.read_completely(number), self.place.web)

    def withdraw(self, found: Proposed, because: str) -> None:
        """Close an open request and record the reason, so that it does not count as declined.

        Raises `Outpaced` if another run has since updated the request for a newer build.
        """
        for _attempt in range(_RACES):
            try:
                with self.understood():
                    self._withdraw(found, because)
            except Overtaken:
                continue  # it changed while we were closing it
            return
        raise UnreachableError(
            f"others keep changing {found.url}, so it was not closed",
            hint="run it again",
        )

    def _withdraw(self, found: Proposed, because: str) -> None:
        """Close the request if it is still open. Raises `Outpaced`, and `Overtaken` if it changes
        while we are closing it.
        """
        current, pull = self.read(found.number)
        if current.state != "open":
            return
        if described(current.body) != described(found.body):
            raise Outpaced(f"{found.url} now proposes a newer build")
        try:
            self.close_request(pull, closed_body(current, because))
        except (ForgeError, RepositoryError):
            # A person may have closed or merged it since it was read.
            after_failure, _pull = self.read(found.number)
            if after_failure.state == "open":
                raise

    def open_to_others(self, name: str) -> bool:
        """Return whether, according to the forge, users other than this one may push a branch with
        that name. Raises the client's errors: usually this user is not allowed to read the rules.
        """
        with self.understood():
            return self.others_may_push(name)

    def read(self, number: str) -> tuple[Proposed, Any]:
        """Return the current state of a request, and the forge's own data about it."""
        pull = self.fetch(number)
        return self.to_proposed(pull), pull

    def write(self, pull: Any, title: str, body: str) -> tuple[Proposed, Any]:
        """Change the open request's title and text.

        Raises `Overtaken` if the request is no longer open.
        """
        changed_pull = self.change(pull, title, body)
        changed = self.to_proposed(changed_pull)
        if changed.state != "open":
            raise Overtaken
        return changed, changed_pull

    def read_completely(self, number: str) -> Proposed:
        """Return a request with everything that `state` needs."""
        return self.to_proposed(self.fetch(number))

    @abstractmethod
    def newest(self, base: str, head: str) -> Proposed | None:
        """Find a request, as described in `find`."""

    @abstractmethod
    def fetch(self, number: str) -> Any:
        """Return the forge's own data about a request."""

    @abstractmethod
    def to_proposed(self, pull: Any) -> Proposed:
        """Return the forge's data in our form: a title without a draft prefix, and our line
        endings.
        """

    @abstractmethod
    def branches(self, pull: Any) -> tuple[str, str]:
        """Return the base and head of the request in the forge's data."""

    @abstractmethod
    def create(self, proposal: Proposal) -> Any:
        """Open a request with this title and text, as a draft if requested.

        Raises `AlreadyThere` if the forge reports that one is already open.
        """

    @abstractmethod
    def change(self, pull: Any, title: str, body: str) -> Any:
        """Change a request's title and text, and return the forge's new data.

        Drafts stay drafts, and other requests do not become drafts.
        """

    @abstractmethod
    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Set this proposal's labels, people, and auto-merge if they are missing.

        Failures become notes.
        """

    @abstractmethod
    def close_request(self, pull: Any, body: str) -> None:
        """Close the open request with this text."""

    @abstractmethod
    def others_may_push(self, name: str) -> bool:
        """Check the forge's branch rules, as described in `open_to_others`."""

    @staticmethod
    def ours_to_delete(proposal: Proposal) -> bool:
        """Return whether the branch may be deleted after the merge.

        A branch set in an annotation may be an environment.
        """
        return has_our_prefix(proposal.head, proposal.prefix)

    @abstractmethod
    def tip(self, head: str) -> str:
        """Return the head branch's current commit, or "" if the forge does not report it."""


class Overtaken(Exception):
    """The request has changed since it was read, so read it again. Never leaves `Host`."""


class AlreadyThere(Exception):
    """The forge reports that a request for this branch is already open.

    Never leaves `Host.propose`.
    """

    def __init__(self, found: Proposed | None = None) -> None:
        super().__init__()
        self.found = found  # that open request, if the forge identifies it


def _open_or_update(host: Host, proposal: Proposal, before_push: Proposed | None) -> Proposed:
    """Open or update the request, even if other runs do the same: there is one request, for the
    newest commit.

    `before_push` is the request that was found before the push, if any.
    """
    notes = Notes()
    proposal = _without_unsupported(host, proposal, notes)
    found = before_push
    for turn in range(_RACES):
        # either the request to update, or a request with the proposed commit
        if found and _is_merged_meanwhile(found, before_push, proposal):
            raise Outpaced(f"{found.url} has been merged in the meantime")
        open_request = found if found and found.state == "open" else None
        try:
            if open_request:
                return _update_request(host, open_request, proposal, notes)
            return _open_request(host, proposal, notes)
        except Overtaken:
            found = None
        except AlreadyThere as conflict:
            found = conflict.found
            shutdown.sleep(0.2 * turn)  # the forge's lists may be late
        except UnreachableError as error:
            # the request may have been opened despite the error: check, and retry once
            was_limited = isinstance(error.__cause__, Limited)
            may_have_opened = not open_request and not was_limited
            if not may_have_opened or turn > 0 or shutdown.code():
                raise
            found = None
        if found is None:
            found = host.newest(proposal.base, proposal.head)
    raise UnreachableError(
        f"others keep changing the request for {proposal.head}, or the Git host does not show it",
        hint="run it again: the branch is kept",
    )


def _without_unsupported(host: Host, proposal: Proposal, notes: Notes) -> Proposal:
    """Return the proposal without the fields in `host.without`, which this forge does not support.
    Each omitted field becomes a note.
    """
    for field_name, sentence in host.without.items():
        wanted = getattr(proposal, field_name)
        if not wanted:
            continue
        notes.add(sentence)
        nothing = type(wanted)()  # an empty tuple, or False
        proposal = replace(proposal, **{field_name: nothing})
    return proposal


def _is_merged_meanwhile(
    found: Proposed,
    before_push: Proposed | None,
    proposal: Proposal,
) -> bool:
    """Return whether a person has merged the request that was open before the push, or a request
    that has our commit.
    """
    if found.state != "merged":
        return False
    if before_push and before_push.state == "open" and before_push.number == found.number:
        return True
    our_commit = described(proposal.body)
    return our_commit != "" and described(found.body) == our_commit


def _open_request(host: Host, proposal: Proposal, notes: Notes) -> Proposed:
    """Open a request, set its labels, people, and auto-merge, and return it.

    Raises `AlreadyThere` if one is already open.
    """
    desired = with_fitting_text(proposal, longest_body(host.forge))
    pull = _create_request(host, desired)
    opened = host.to_proposed(pull)
    notes.add(opened.note)
    if desired.draft and not pull.get("draft"):
        notes.add(host.without_drafts)
    if not wishes(desired):  # there is nothing else to set
        return notes.add_to(opened)
    return _complete_request(host, opened, pull, desired=desired, unset=desired, notes=notes)


def _create_request(host: Host, proposal: Proposal) -> Any:
    """Open a request, and return the forge's data about it. A response about a different branch,
    such as from a cache, did not open a request.
    """
    pull = host.create(proposal)
    if host.branches(pull) == (proposal.base, proposal.head):
        return pull
    raise UnreachableError(
        f"{host.place.host} returned another branch's request",
        hint="run it again: the branch is kept",
    )


def _update_request(host: Host, earlier: Proposed, proposal: Proposal, notes: Notes) -> Proposed:
    """Update the open request, and return it. Leave a request for a newer commit unchanged.

    `earlier` is the request as it was found, which may be before the push. Raises `Overtaken` if it
    has changed since then.
    """
    our_commit = described(proposal.body)
    current, pull = host.read(earlier.number)
    has_other_branches = host.branches(pull) != (proposal.base, proposal.head)
    if (
        has_other_branches
        or current.state != "open"
        or rewritten_by_another_run(earlier, current, proposal)
    ):
        raise Overtaken

    # Forges process a push with a delay, and some only show twelve digits of a commit. So request
    # the branch itself, but only if the request does not show our commit.
    shows_ours = current.head_commit != "" and our_commit.startswith(current.head_commit)
    newer_tip = "" if shows_ours else _newer_tip(host, our_commit, proposal.head)
    if newer_tip:
        return replace(earlier, head_commit=newer_tip, note=MOVED)

    desired = with_fitting_text(proposal, longest_body(host.forge), current)
    unset = lacking(proposal, desired.body)
    if proposal.auto_merge:
        desired, unset = _with_auto_merge_again(host, earlier, current, desired, unset, notes)

    has_our_text = has_same_text(current, desired)
    if has_our_text and not wishes(unset):
        return notes.add_to(replace(current, head_commit=our_commit or current.head_commit))
    updated = current
    if not has_our_text:
        updated, pull = host.write(pull, desired.title, desired.body)
    completed = _complete_request(host, updated, pull, desired=desired, unset=unset, notes=notes)

    has_other_commit = our_commit not in ("", completed.head_commit)
    if has_other_commit and described(current.body) == completed.head_commit:
        # we just overwrote a newer commit's description: put it back
        _overwritten, pull = host.read(earlier.number)
        host.write(pull, current.title, current.body)
    return completed


def _with_auto_merge_again(
    host: Host,
    earlier: Proposed,
    current: Proposed,
    desired: Proposal,
    unset: Proposal,
    notes: Notes,
) -> tuple[Proposal, Proposal]:
    """Return `desired` and `unset`, changed so that auto-merge is set again if the merge queue
    removed the request, or if our push may have ended its auto-merge.

    `desired` has the request's new text, and `unset` has what still has to be set.
    """
    # a mark in the text says that an earlier run has set auto-merge
    without_mark = replace(desired, body=_without_auto_merge(desired.body))
    set_again = replace(unset, auto_merge=True)
    if earlier.thrown_out:
        notes.add(f"{earlier.thrown_out}: this run requested the merge again")
        return without_mark, set_again
    after_push = host.auto_merge_after_push
    our_commit = described(desired.body)
    if after_push == "stays" or not _may_have_ended_auto_merge(earlier, current, our_commit):
        return desired, unset
    if after_push == "ends":
        return without_mark, set_again
    return desired, set_again


def _may_have_ended_auto_merge(earlier: Proposed, current: Proposed, our_commit: str) -> bool:
    """Return whether our push may have turned off the auto-merge that an earlier run set.

    `earlier` is the request before the push, and `current` the request after it.
    """
    has_new_commit = described(current.body) != our_commit
    set_before = wish_key("auto-merge") in applied_wishes(current.body)
    # A person may have turned it off before the push: it was off, although nobody had pushed since
    # the earlier run. If the forge does not report this, set it again.
    turned_off = earlier.auto_merge is False and earlier.head_commit == described(earlier.body)
    return has_new_commit and set_before and not turned_off


def with_removal_from_queue(request: Proposed, reason: str) -> Proposed:
    """Return a request that its merge queue removed for this reason: auto-merge is not set.

    Without a reason, return it unchanged.
    """
    if not reason:
        return request
    return replace(request, thrown_out=reason, body=_without_auto_merge(request.body))


def _without_auto_merge(body: str) -> str:
    """Return the body with a mark that auto-merge still has to be set."""
    return with_applied_wishes(body, applied_wishes(body) - {wish_key("auto-merge")})


def _complete_request(
    host: Host,
    request: Proposed,
    pull: Any,
    *,
    desired: Proposal,
    unset: Proposal,
    notes: Notes,
) -> Proposed:
    """Set the labels, people, and auto-merge in `unset`, and record in the request's text what is
    set. Return the request, with the notes.

    If the branch has moved on, the text belongs to the newer build, which records this itself.
    """
    if wishes(unset):
        request, pull = host.complete(pull, unset, notes)

    our_commit = described(desired.body)
    newer_tip = _newer_tip(host, our_commit, desired.head)
    if newer_tip:
        return notes.add_to(replace(request, head_commit=newer_tip, note=MOVED))

    set_before = applied_wishes(desired.body)
    set_by_now = set_before | (wishes(unset) - notes.missed)
    if set_by_now != set_before and request.state == "open":
        with suppress(Overtaken):
            host.write(pull, desired.title, with_applied_wishes(desired.body, set_by_now))
    return notes.add_to(replace(request, head_commit=our_commit or request.head_commit))


def _newer_tip(host: Host, our_commit: str, head: str) -> str:
    """Return the branch's tip if it differs from the commit in our text, or "" if it is the same or
    unknown.
    """
    if not our_commit:
        return ""
    tip = host.tip(head)
    return tip if tip != our_commit else ""


class Notes:
    """Sentences about what a forge could not do, without duplicates. They are shown with the
    request.
    """

    def __init__(self) -> None:
        self._sentences: list[str] = []
        # keys of values that could not be set; the next run retries them
        self.missed: set[str] = set()

    def add(self, sentence: str, kind: str = "", *names: str) -> None:
        """Add a sentence.

        With a `kind`, these labels or people, or `auto-merge`, were not set.
        """
        if sentence and sentence not in self._sentences:
            self._sentences.append(sentence)
        if not kind:
            return
        if not names:  # auto-merge has no name
            self.missed.add(wish_key(kind))
        for name in names:
            self.missed.add(wish_key(kind, name))

    @contextmanager
    def on_failure(self, what: str, kind: str, *names: str) -> Iterator[None]:
        """Turn an error inside the block into a note.

        A transient error is raised, so that the job is retried.
        """
        try:
            yield
        except (ForgeError, RepositoryError) as error:
            self.add(f"{what}: {error.message}", kind, *names)

    def add_to(self, found: Proposed) -> Proposed:
        """Return the request with its own note and all of these notes."""
        self.add(found.note)
        return replace(found, note="; ".join(self._sentences)[:_LONGEST_NOTE])


def missing(wanted: Iterable[str], have: Iterable[str]) -> list[str]:
    """Return the wanted names that are missing, in order and without duplicates.

    Labels and usernames are compared case-insensitively.
    """
    present = {name.lower() for name in have}
    absent = []
    for name in wanted:
        if name.lower() not in present:
            present.add(name.lower())  # a second time, the name is a duplicate
            absent.append(name)
    return absent


def plausible(found: Proposed, page: str) -> Proposed:
    """Return the request without an implausible URL or commit, which would end up in results, logs,
    and pages. An implausible URL is replaced with `page`, the repository's page.
    """
    merged = found.merge_commit if _COMMIT.fullmatch(found.merge_commit) else ""
    return replace(found, url=web_page(found.url) or page, merge_commit=merged)


@dataclass(frozen=True)
class Comment:
    """A comment on the forge."""

    number: str  # the comment's id on the forge
    body: str
    url: str
    version: int = 0  # needed if a change has to include the current version


class Comments(Connected):
    """The comments on a repository's pull requests.

    Our comment is found by its mark and edited, so there is only one.
    """

    stays = "run it again"

    def put(self, request: str, mark: str, body: str) -> str:
        """Add our comment with that mark, or replace its text if the comment exists. Return its
        URL.
        """
        with self.understood():
            return web_page(self._put(request, mark, body)) or self.place.web

    def _put(self, request: str, mark: str, body: str) -> str:
        """Like `put`, but return the URL from the forge's response."""
        for found in self.marked(request, mark):
            if plain(found.body) == plain(body):
                return found.url
            page = self.change(request, found, body)
            if page is not None:
                return page
        return self.add(request, body)

    @abstractmethod
    def marked(self, request: str, mark: str) -> Iterable[Comment]:
        """Return the comments on that request with the mark, newest first, and only our own if the
        forge can tell.
        """

    @abstractmethod
    def add(self, request: str, body: str) -> str:
        """Add a comment, and return its URL."""

    @abstractmethod
    def change(self, request: str, comment: Comment, body: str) -> str | None:
        """Change a comment's text, and return its URL, or None if the comment is someone else's and
        was not changed.
        """

    @staticmethod
    def holds(body: str, mark: str) -> bool:
        """Return whether one line of the comment is the mark."""
        return mark in plain(body).split("\n")


class Deployments(Connected):
    """A repository's deployments: which build is in which environment, and the outcome of its
    rollout.
    """

    stays = "the changes in Git are kept, and Argo CD will deploy them"

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach)
        self._begun: dict[str, str] = {}  # deployment numbers, by environment

    def begin(self, deployment: Deployment) -> None:
        """Start a deployment in this state."""
        with self.understood():
            self._begun[deployment.environment] = self.create(deployment)

    def end(self, deployment: Deployment, *, begun: bool) -> bool:
        """Set the state of the deployment that this run started, or (if not `begun`) that an
        earlier run started. Return whether there is such a deployment.

        An earlier run's deployment is the newest for the same commit and environment.
        """
        if begun:
            number = self._begun[deployment.environment]
        else:
            with self.understood():
                number = self.find(deployment)
        if number == "":
            return False
        self.change(number, deployment)
        return True

    def sum_up(self, status: CommitStatus) -> None:
        """Set the commit's status for all deployments together, if the forge also supports commit
        statuses.
        """

    @abstractmethod
    def create(self, deployment: Deployment) -> str:
        """Create a deployment in this state, and return its number."""

    @abstractmethod
    def find(self, deployment: Deployment) -> str:
        """Return the number of our newest deployment for this commit and environment that may still
        change, or "".
        """

    @abstractmethod
    def change(self, number: str, deployment: Deployment) -> None:
        """Set the deployment's state."""
