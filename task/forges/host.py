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
    closed_body,
    described,
    fitted,
    lacking,
    longest_body,
    overtaken,
    plain,
    same,
    settled,
    wish,
    wishes,
    with_settled,
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
    """A repository's requests. `said` always means the forge's own response about a request."""

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
            return honest(found, self.place.web) if found else None

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """Open the request, or update the open request. Never open a second one.

        `found` is the result of `find` before the push, so the request is not looked up again. If
        the branch has moved on, its request is left to the run that moved it, as the result's
        `head_commit` shows. Raises `Outpaced` if the request has been merged: the rest then has to
        be decided on the new tip.
        """
        with self.understood():
            return honest(_settle(self, proposal, found), self.place.web)

    def state(self, number: str) -> Proposed:
        """Return the state of a request: open, merged (with its merge commit), or closed."""
        with self.understood():
            return honest(self.checked(number), self.place.web)

    def withdraw(self, found: Proposed, because: str) -> None:
        """Close an open request and record the reason, so that it does not count as declined.
        Raises `Outpaced` if another run has since updated the request for a newer build.
        """
        for _turn in range(_RACES):
            with self.understood(), suppress(Overtaken):
                return self._withdraw(found, because)
        raise UnreachableError(
            f"others keep changing {found.url}, so it was not closed",
            hint="run it again",
        )

    def _withdraw(self, found: Proposed, because: str) -> None:
        now, said = self.read(found.number)
        if now.state != "open":
            return
        if described(now.body) != described(found.body):
            raise Outpaced(f"{found.url} now proposes a newer build")
        try:
            self.shut(said, closed_body(now, because))
        except (ForgeError, RepositoryError):
            # A person may have closed or merged it since it was read.
            if self.read(found.number)[0].state == "open":
                raise

    def open_to_others(self, name: str) -> bool:
        """Return whether, according to the forge, users other than this one may push a branch with
        that name. Raises the client's errors: usually this user is not allowed to read the rules.
        """
        with self.understood():
            return self.is_open(name)

    def read(self, number: str) -> tuple[Proposed, Any]:
        """Return the current state of a request, and the forge's own response."""
        said = self.ask(number)
        return self.proposed(said), said

    def write(self, said: Any, title: str, body: str) -> tuple[Proposed, Any]:
        """Change the open request's title and text.

        Raises `Overtaken` if the request is no longer open.
        """
        said = self.change(said, title, body)
        now = self.proposed(said)
        if now.state != "open":
            raise Overtaken
        return now, said

    def checked(self, number: str) -> Proposed:
        """Return a request with everything that `state` needs."""
        return self.proposed(self.ask(number))

    @abstractmethod
    def newest(self, base: str, head: str) -> Proposed | None:
        """Find a request, as described in `find`."""

    @abstractmethod
    def ask(self, number: str) -> Any:
        """Return the forge's own response about a request."""

    @abstractmethod
    def proposed(self, said: Any) -> Proposed:
        """Return the forge's response in our form: a title without a draft prefix, and our line
        endings.
        """

    @abstractmethod
    def branches(self, said: Any) -> tuple[str, str]:
        """Return the base and head of the request in the forge's response."""

    @abstractmethod
    def create(self, proposal: Proposal) -> Any:
        """Open a request with this title and text, as a draft if requested.

        Raises `AlreadyThere` if the forge reports that one is already open.
        """

    @abstractmethod
    def change(self, said: Any, title: str, body: str) -> Any:
        """Change a request's title and text, and return the forge's response.

        Drafts stay drafts, and other requests do not become drafts.
        """

    @abstractmethod
    def complete(self, said: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Set this proposal's labels, people, and auto-merge if they are missing.

        Failures become notes.
        """

    @abstractmethod
    def shut(self, said: Any, body: str) -> None:
        """Close the open request with this text."""

    @abstractmethod
    def is_open(self, name: str) -> bool:
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


def _settle(host: Host, proposal: Proposal, found: Proposed | None) -> Proposed:
    """Open or update the request, even if other runs do the same: there is one request, for the
    newest commit.
    """
    before = found
    notes = Notes()
    proposal = _within_means(host, proposal, notes)
    for turn in range(_RACES):
        # either the request to update, or a request with the proposed commit
        if found and _is_merged_meanwhile(found, before, proposal):
            raise Outpaced(f"{found.url} has been merged in the meantime")
        is_open = found is not None and found.state == "open"
        try:
            if found is not None and is_open:
                return _brought_up_to_date(host, found, proposal, notes)
            return _opened(host, proposal, notes)
        except Overtaken:
            found = None
        except AlreadyThere as there:
            found = there.found
            shutdown.sleep(0.2 * turn)  # the forge's lists may be late
        except UnreachableError as error:
            # the request may have been opened despite the error: check, and retry once
            if isinstance(error.__cause__, Limited) or is_open or turn or shutdown.code():
                raise
            found = None
        found = found or host.newest(proposal.base, proposal.head)
    raise UnreachableError(
        f"others keep changing the request for {proposal.head}, or the Git host does not show it",
        hint="run it again: the branch is kept",
    )


def _within_means(host: Host, proposal: Proposal, notes: Notes) -> Proposal:
    """Return the proposal without features that this forge does not support. Notes list the omitted
    features.
    """
    for name, sentence in host.without.items():
        if wanted := getattr(proposal, name):
            notes.add(sentence)
            proposal = replace(proposal, **{name: type(wanted)()})
    return proposal


def _is_merged_meanwhile(found: Proposed, before: Proposed | None, proposal: Proposal) -> bool:
    """Return whether a person merged the request that was open `before`, or that has our commit."""
    if found.state != "merged":
        return False
    was_open = before is not None and before.state == "open" and before.number == found.number
    return was_open or described(found.body) == described(proposal.body) != ""


def _opened(host: Host, proposal: Proposal, notes: Notes) -> Proposed:
    """Open a request, and return it. Raises `AlreadyThere`."""
    whole = fitted(proposal, longest_body(host.forge))
    said = _created(host, whole)
    made = host.proposed(said)
    notes.add(made.note)
    if whole.draft and not said.get("draft"):
        notes.add(host.without_drafts)
    if not wishes(whole):
        return notes.on(made)
    return _completed(host, made, said, whole, whole, notes)


def _created(host: Host, proposal: Proposal) -> Any:
    """Open a request. A response about a different branch, such as from a cache, did not open a
    request.
    """
    said = host.create(proposal)
    if host.branches(said) == (proposal.base, proposal.head):
        return said
    raise UnreachableError(
        f"{host.place.host} returned another branch's request",
        hint="run it again: the branch is kept",
    )


def _brought_up_to_date(host: Host, found: Proposed, proposal: Proposal, notes: Notes) -> Proposed:
    """Update the open request, and return it. Leave a request for a newer commit unchanged.

    Raises `Overtaken` if the request has changed since it was found.
    """
    ours = described(proposal.body)
    now, said = host.read(found.number)
    is_another = host.branches(said) != (proposal.base, proposal.head)
    if is_another or now.state != "open" or overtaken(found, now, proposal):
        raise Overtaken
    # Forges process a push with a delay, and some only show twelve digits of a commit. So request
    # the branch itself, but only if the request does not show our commit.
    shows_ours = now.head_commit != "" and ours.startswith(now.head_commit)
    if not shows_ours and (newer := _moved(host, ours, proposal.head)):
        return replace(found, head_commit=newer, note=MOVED)
    whole = fitted(proposal, longest_body(host.forge), now)
    missing = lacking(proposal, whole.body)
    if proposal.auto_merge and _may_have_ended_auto_merge(found, now, ours):
        if host.auto_merge_after_push == "ends":
            whole = replace(whole, body=_without_auto_merge(whole.body))
        missing = replace(missing, auto_merge=host.auto_merge_after_push != "stays")
    if proposal.auto_merge and found.thrown_out:
        notes.add(f"{found.thrown_out}: this run requested the merge again")
        whole = replace(whole, body=_without_auto_merge(whole.body))
        missing = replace(missing, auto_merge=True)
    done = now
    if not same(now, whole):
        done, said = host.write(said, whole.title, whole.body)
    elif not wishes(missing):
        return notes.on(replace(done, head_commit=ours or done.head_commit))
    done = _completed(host, done, said, whole, missing, notes)
    if done.head_commit != ours != "" and described(now.body) == done.head_commit:
        # we just overwrote a newer commit's description: put it back
        host.write(host.read(found.number)[1], now.title, now.body)
    return done


def _may_have_ended_auto_merge(found: Proposed, now: Proposed, ours: str) -> bool:
    """Return whether our push may have turned off the auto-merge that an earlier run set."""
    pushed = described(now.body) != ours
    set_before = wish("auto-merge") in settled(now.body)
    # A person may have turned it off before the push. If the forge does not report this, set it
    # again.
    off = found.auto_merge is False and found.head_commit == described(found.body)
    return pushed and set_before and not off


def thrown_out(found: Proposed, because: str) -> Proposed:
    """Return a request that its merge queue removed for this reason: auto-merge is not set.

    Without a reason, return it unchanged.
    """
    if not because:
        return found
    return replace(found, thrown_out=because, body=_without_auto_merge(found.body))


def _without_auto_merge(body: str) -> str:
    return with_settled(body, settled(body) - {wish("auto-merge")})


def _completed(
    host: Host,
    done: Proposed,
    said: Any,
    whole: Proposal,
    missing: Proposal,
    notes: Notes,
) -> Proposed:
    """Set the missing labels and people, and record in the text what is set. A newer build records
    this in its own text.
    """
    if wishes(missing):
        done, said = host.complete(said, missing, notes)
    ours = described(whole.body)
    if newer := _moved(host, ours, whole.head):
        return notes.on(replace(done, head_commit=newer, note=MOVED))
    is_set = settled(whole.body) | (wishes(missing) - notes.missed)
    if is_set != settled(whole.body) and done.state == "open":
        with suppress(Overtaken):
            host.write(said, whole.title, with_settled(whole.body, is_set))
    return notes.on(replace(done, head_commit=ours or done.head_commit))


def _moved(host: Host, ours: str, head: str) -> str:
    """Return the branch's tip if it differs from the commit in our text, or "" if it is the same or
    unknown.
    """
    tip = host.tip(head) if ours else ""
    return tip if tip != ours else ""


class Notes:
    """Sentences about what a forge could not do, without duplicates. They are shown with the
    request.
    """

    def __init__(self) -> None:
        self._said: list[str] = []
        # keys of values that could not be set; the next run retries them
        self.missed: set[str] = set()

    def add(self, sentence: str, kind: str = "", *names: str) -> None:
        """Add a sentence.

        With a `kind`, these labels or people, or `auto-merge`, were not set.
        """
        if sentence and sentence not in self._said:
            self._said.append(sentence)
        self.missed.update(wish(kind, name) for name in names or ("",) if kind)

    @contextmanager
    def tried(self, what: str, kind: str, *names: str) -> Iterator[None]:
        """Turn an error inside the block into a note.

        A transient error is raised, so that the job is retried.
        """
        try:
            yield
        except (ForgeError, RepositoryError) as error:
            self.add(f"{what}: {error.message}", kind, *names)

    def on(self, found: Proposed) -> Proposed:
        """Return the request with its own note and all of these notes."""
        self.add(found.note)
        return replace(found, note="; ".join(self._said)[:_LONGEST_NOTE])


def missing(wanted: Iterable[str], have: Iterable[str]) -> list[str]:
    """Return the wanted names that are missing, in order and without duplicates.

    Labels and usernames are compared case-insensitively.
    """
    there = {name.lower() for name in have}
    found = []
    for name in wanted:
        if name.lower() not in there:
            there.add(name.lower())
            found.append(name)
    return found


def honest(found: Proposed, page: str) -> Proposed:
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
        for found in self.marked(request, mark):
            if plain(found.body) == plain(body):
                return found.url
            if (page := self.change(request, found, body)) is not None:
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
        earlier run started. Return whether there is such a deployment. An earlier run's deployment
        is the newest for the same commit and environment.
        """
        if begun:
            number = self._begun[deployment.environment]
        else:
            with self.understood():
                number = self.find(deployment)
        if number:
            self.change(number, deployment)
        return number != ""

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
