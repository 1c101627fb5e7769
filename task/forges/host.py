"""The features common to all forges (Git hosts such as GitHub): pull requests (at most one open per
branch), comments, and deployments. A pull request is called a request here.

A request belongs to a head branch in the repository itself. Requests from forks are ignored,
because a fork may use any branch name. If something fails here, the pushed branch is kept, and the
next run completes the request.
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
    normalized_text,
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
_COMMIT = re.compile("[0-9A-Fa-f]{7,64}")  # Bitbucket returns only twelve digits
_LONGEST_NOTE = 1000


@dataclass(frozen=True)
class ForgeKind:
    """A kind of forge.

    Each kind is defined at the end of its file, and listed in `task.forges.places`.
    """

    name: str  # the forge's name in --forge
    client: type[Host]
    comments: type[Comments]
    # (the parts of a repository's URL, the root URL of the forge's web pages) → the repository's
    # address; the address's host may be filled in later.
    place: Callable[[RemoteUrl, str], ForgeAddress]
    aliases: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # the forge's public hosts
    host_ends: tuple[str, ...] = ()  # domain suffixes of its other public hosts
    # words in hostnames that suggest this forge: gitlab.example.com, my-gitea.example.com
    words: tuple[str, ...] = ()
    # A path below the root URL that does not require authentication, and a function that checks
    # whether the response is from this kind of forge.
    question: tuple[str, Callable[[Response], bool]] | None = None
    # {0} is the repository's page, {1} the base branch, {2} the head branch.
    # For `commit`, {1} is the commit; for `range`, {1} is the older commit, and {2} the newer one.
    compare: str = "{0}/compare/{1}...{2}"
    commit: str = "{0}/commit/{1}"
    range: str = ""  # like `compare`, for two commits; "" if the same as `compare`
    deployments: type[Deployments] | None = None  # None if the forge does not show deployments


class Connected(ABC):
    """The base class of everything that accesses a repository through its forge's API."""

    connect: ClassVar[type[Client]]
    needs: ClassVar[str]  # a hint about the required permission
    stays: ClassVar[str] = STAYS  # what is kept even if a request fails

    def __init__(self, reach: Reach) -> None:
        """Create a client for the repository in `reach`. No server is contacted yet."""
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
        """Turn an error from parsing a response inside the block, such as `KeyError`, into
        `UnreachableError`. The response may be from a proxy or a different service.
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
    """A repository's pull requests (here: requests). In this class, `pull` is always the forge's
    own JSON data about a request, and a `Proposed` is a request in our format.
    """

    # `Proposal` fields that this forge does not support ("labels", "assignees", "auto_merge"), each
    # with a sentence that tells users so.
    without: ClassVar[Mapping[str, str]] = {}
    without_drafts: ClassVar[str] = ""  # tells users that some repositories lack drafts
    # What happens to auto-merge after our next push; "again" means that it must be re-enabled.
    auto_merge_after_push: ClassVar[Literal["stays", "ends", "again"]] = "stays"

    def find(self, base: str, head: str) -> Proposed | None:
        """Return the open pull request from the branch `head` into the branch `base`. If there is
        none, return the newest closed or merged one. If there is no request at all, return None.

        The request's state is "gone" if the forge reports that it closed the request because the
        branch was deleted.
        """
        with self.understood():
            request = self.newest(base, head)
            return plausible(request, self.place.web) if request else None

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """Open the proposed pull request. If one is already open, update it instead of opening a
        second one.

        `found` is the result of `find` before the push. If the head branch has a newer commit than
        the proposal, the request is not changed, and the result's `head_commit` is that commit.
        Raises `Outpaced` if the request has been merged in the meantime.
        """
        with self.understood():
            return plausible(_open_or_update(self, proposal, found), self.place.web)

    def state(self, number: str) -> Proposed:
        """Return the state of a request: open, merged (with its merge commit), or closed."""
        with self.understood():
            return plausible(self.read_completely(number), self.place.web)

    def withdraw(self, found: Proposed, because: str) -> None:
        """Close an open pull request, and write the reason into its text. This shows that we closed
        the request, so that it does not count as declined by a person.

        Raises `Outpaced` if another run has since updated the request for a newer build, and
        `UnreachableError` if it keeps changing.
        """
        for _attempt in range(_RACES):
            try:
                with self.understood():
                    self._withdraw(found, because)
            except Overtaken:
                continue  # the request changed while we were closing it
            return
        raise UnreachableError(
            f"others keep changing {found.url}, so it was not closed",
            hint="run it again",
        )

    def _withdraw(self, found: Proposed, because: str) -> None:
        """Close the request `found` if it is still open, and write the reason into its text.

        Raises `Outpaced` if the request's text now describes another commit, and `Overtaken` if the
        request changes while we are closing it.
        """
        current, pull = self.read(found.number)
        if current.state != "open":
            return
        # a request's text contains the id of the commit that it describes
        describes_other_commit = described(current.body) != described(found.body)
        if describes_other_commit:
            raise Outpaced(f"{found.url} now proposes a newer build")
        try:
            self.close_request(pull, closed_body(current, because))
        except (ForgeError, RepositoryError):
            # A person may have closed or merged it since it was read.
            after_failure, _pull = self.read(found.number)
            if after_failure.state == "open":
                raise

    def open_to_others(self, name: str) -> bool:
        """Return whether the forge's branch rules allow other users to push a branch with that
        name.

        Raises the client's errors, for example if the token's owner is not allowed to read the
        rules.
        """
        with self.understood():
            return self.others_may_push(name)

    def read(self, number: str) -> tuple[Proposed, Any]:
        """Return the current state of a request, and the forge's own data about it."""
        pull = self.fetch(number)
        return self.to_proposed(pull), pull

    def write(self, pull: Any, title: str, body: str) -> tuple[Proposed, Any]:
        """Change the open request's title and text. Return the changed request, and the forge's own
        data about it.

        Raises `Overtaken` if the request is no longer open.
        """
        changed_pull = self.change(pull, title, body)
        changed = self.to_proposed(changed_pull)
        if changed.state != "open":
            raise Overtaken
        return changed, changed_pull

    def read_completely(self, number: str) -> Proposed:
        """Return a request with all of the data that `state` promises, which may require more
        queries.
        """
        return self.to_proposed(self.fetch(number))

    @abstractmethod
    def newest(self, base: str, head: str) -> Proposed | None:
        """Find a request, as described in `find`."""

    @abstractmethod
    def fetch(self, number: str) -> Any:
        """Return the forge's own data about a request."""

    @abstractmethod
    def to_proposed(self, pull: Any) -> Proposed:
        """Convert the forge's data to our format: a title without a draft prefix, and our line
        endings.
        """

    @abstractmethod
    def branches(self, pull: Any) -> tuple[str, str]:
        """Return the base and head branches in the forge's data about a request."""

    @abstractmethod
    def create(self, proposal: Proposal) -> Any:
        """Open a request with this title and text, as a draft if requested.

        Raises `AlreadyThere` if the forge reports that one is already open.
        """

    @abstractmethod
    def change(self, pull: Any, title: str, body: str) -> Any:
        """Change a request's title and text, and return the forge's new data.

        A draft remains a draft, and any other request does not become one.
        """

    @abstractmethod
    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Set those of this proposal's labels, people, and auto-merge that the request lacks.

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

        A branch named in an annotation may belong to an environment.
        """
        return has_our_prefix(proposal.head, proposal.prefix)

    @abstractmethod
    def tip(self, head: str) -> str:
        """Return the head branch's current commit, or "" if the forge does not report it."""


class Overtaken(Exception):
    """The request has changed since it was read, so it must be read again. Never raised outside
    `Host`.
    """


class AlreadyThere(Exception):
    """The forge reports that a request for this branch is already open.

    Never raised outside `Host.propose`.
    """

    def __init__(self, open_request: Proposed | None = None) -> None:
        super().__init__()
        self.open_request = open_request  # None if the forge does not identify it


def _open_or_update(host: Host, proposal: Proposal, before_push: Proposed | None) -> Proposed:
    """Open a pull request for the proposal, or update the open one, and return it.

    `before_push` is the request that was found before the push, if any. Other runs may open,
    change, or close the request at the same time. After such a conflict, look for the request again
    and retry, up to a few times. Raises `Outpaced` if it has been merged.
    """
    notes = Notes()
    proposal = _without_unsupported(host, proposal, notes)
    request = before_push  # what is known about the request, which may be outdated
    for turn in range(_RACES):
        if request and _is_merged_meanwhile(request, before_push, proposal):
            raise Outpaced(f"{request.url} has been merged in the meantime")
        open_request = None
        if request and request.state == "open":
            open_request = request
        try:
            if open_request:
                return _update_request(host, open_request, proposal, notes)
            return _open_request(host, proposal, notes)
        except Overtaken:  # the request has changed, so our data about it is outdated
            request = None
        except AlreadyThere as conflict:
            request = conflict.open_request
            shutdown.sleep(0.2 * turn)  # the forge's lists may lag behind
        except UnreachableError as error:
            # The request may have been opened despite the error: look for it, and retry once,
            # unless a signal has arrived.
            was_limited = isinstance(error.__cause__, Limited)  # if so, the request was not opened
            may_have_opened = not open_request and not was_limited
            if not may_have_opened or turn > 0 or shutdown.code():
                raise
            request = None
        if request is None:  # look for the request again
            request = host.newest(proposal.base, proposal.head)
    raise UnreachableError(
        f"others keep changing the request for {proposal.head}, or the Git host does not show it",
        hint="run it again: the branch is kept",
    )


def _without_unsupported(host: Host, proposal: Proposal, notes: Notes) -> Proposal:
    """Return the proposal without the fields that this forge does not support, such as `labels`.

    For each omitted field, add a note: a sentence that is shown with the request.
    """
    for field_name, sentence in host.without.items():
        wanted = getattr(proposal, field_name)
        if not wanted:
            continue
        notes.add(sentence)
        empty_value = type(wanted)()  # the empty value: () or False
        proposal = replace(proposal, **{field_name: empty_value})
    return proposal


def _is_merged_meanwhile(
    found: Proposed,
    before_push: Proposed | None,
    proposal: Proposal,
) -> bool:
    """Return whether the request `found` was merged during this run: it was still open before the
    push, or its text describes the commit that we propose.

    A request that was merged before this run does not count: the branch then gets a new request.
    """
    if found.state != "merged":
        return False
    if before_push and before_push.state == "open" and before_push.number == found.number:
        return True
    our_commit = described(proposal.body)  # "" if the text does not contain a commit
    return our_commit != "" and described(found.body) == our_commit


def _open_request(host: Host, proposal: Proposal, notes: Notes) -> Proposed:
    """Open a pull request, set its labels, people, and auto-merge, and return it.

    Raises `AlreadyThere` if one is already open.
    """
    desired = with_fitting_text(proposal, longest_body(host.forge))
    pull = _create_request(host, desired)  # the forge's data about the new request
    request = host.to_proposed(pull)
    notes.add(request.note)
    if desired.draft and not pull.get("draft"):
        notes.add(host.without_drafts)
    if not wishes(desired):  # no labels, people, or auto-merge to set
        return notes.add_to(request)
    # the request is new, so nothing has been set yet
    return _complete_request(host, request, pull, desired=desired, unset=desired, notes=notes)


def _create_request(host: Host, proposal: Proposal) -> Any:
    """Open a pull request, and return the forge's data about it.

    Raises `UnreachableError` if the response is about other branches, for example because it is
    from a proxy's cache.
    """
    pull = host.create(proposal)
    if host.branches(pull) == (proposal.base, proposal.head):
        return pull
    raise UnreachableError(
        f"{host.place.host} returned another branch's request",
        hint="run it again: the branch is kept",
    )


def _update_request(host: Host, earlier: Proposed, proposal: Proposal, notes: Notes) -> Proposed:
    """Update the open pull request to match the proposal: its title and text, labels, people, and
    auto-merge. Return the request.

    `earlier` is the request as it was found, possibly before our push. Other runs may push to the
    same branch: if it has a newer commit than ours, the request is not changed, and the result's
    `head_commit` is the newer commit. Raises `Overtaken` if the request is no longer open, or if
    its text has changed since it was found.
    """
    our_commit = described(proposal.body)  # the text contains the id of the proposed commit
    current, pull = host.read(earlier.number)
    has_our_branches = host.branches(pull) == (proposal.base, proposal.head)
    if not has_our_branches or current.state != "open":
        raise Overtaken
    if rewritten_by_another_run(earlier, current, proposal):
        raise Overtaken

    # Forges take a moment to process a push, and some report only twelve digits of a commit id. So
    # look up the branch itself, but only if the request does not report our commit.
    shows_our_commit = current.head_commit != "" and our_commit.startswith(current.head_commit)
    newer_tip = "" if shows_our_commit else _newer_tip(host, our_commit, proposal.head)
    if newer_tip:
        return replace(earlier, head_commit=newer_tip, note=MOVED)

    # `desired` contains the final title and text, and `unset` only what no run has set yet
    desired = with_fitting_text(proposal, longest_body(host.forge), current)
    unset = lacking(proposal, desired.body)
    if proposal.auto_merge:
        desired, unset = _with_auto_merge_again(
            host,
            earlier=earlier,
            current=current,
            desired=desired,
            unset=unset,
            notes=notes,
        )

    has_desired_text = has_same_text(current, desired)
    if has_desired_text and not wishes(unset):  # there is nothing to change
        # the forge may still report the branch's commit from before our push
        return notes.add_to(replace(current, head_commit=our_commit or current.head_commit))
    request = current
    if not has_desired_text:
        request, pull = host.write(pull, desired.title, desired.body)
    completed = _complete_request(host, request, pull, desired=desired, unset=unset, notes=notes)

    # If another run pushed a newer commit and had already described it in the text, we have just
    # overwritten its description, so put it back.
    has_other_commit = our_commit not in ("", completed.head_commit)
    if has_other_commit and described(current.body) == completed.head_commit:
        _overwritten, latest_pull = host.read(earlier.number)
        host.write(latest_pull, current.title, current.body)
    return completed


def _with_auto_merge_again(
    host: Host,
    earlier: Proposed,
    current: Proposed,
    desired: Proposal,
    unset: Proposal,
    notes: Notes,
) -> tuple[Proposal, Proposal]:
    """Return `desired` and `unset`, changed so that auto-merge is re-enabled if the merge queue
    removed the request, or if our push may have ended its auto-merge.

    `desired` contains the request's new text, and `unset` the labels, people, and auto-merge that
    still have to be set. `earlier` is the request before the push, and `current` the request after
    it.
    """
    # A mark (a hidden line in the text) records that an earlier run has set auto-merge. Remove the
    # mark, so that the next run tries again if this run fails to set auto-merge.
    desired_without_mark = replace(desired, body=_without_auto_merge(desired.body))
    unset_with_auto_merge = replace(unset, auto_merge=True)
    if earlier.thrown_out:  # the reason why the merge queue removed the request
        notes.add(f"{earlier.thrown_out}: this run requested the merge again")
        return desired_without_mark, unset_with_auto_merge

    our_commit = described(desired.body)
    after_push = host.auto_merge_after_push
    if after_push == "stays" or not _may_have_ended_auto_merge(earlier, current, our_commit):
        return desired, unset
    if after_push == "ends":
        return desired_without_mark, unset_with_auto_merge
    # "again": keep the mark, because it tells the forge's code that this is not the first time
    return desired, unset_with_auto_merge


def _may_have_ended_auto_merge(earlier: Proposed, current: Proposed, our_commit: str) -> bool:
    """Return whether our push may have turned off the auto-merge that an earlier run set.

    `earlier` is the request before the push, and `current` the request after it. `our_commit` is
    the commit that we pushed.
    """
    has_new_commit = described(current.body) != our_commit  # the text is from an earlier run
    was_set_by_us = wish_key("auto-merge") in applied_wishes(current.body)
    # A person may have turned off auto-merge before the push: it was off, although nobody had
    # pushed since the earlier run. If the forge does not report whether it is on, set it again.
    is_known_to_be_off = earlier.auto_merge is False
    nobody_had_pushed = earlier.head_commit == described(earlier.body)
    was_turned_off = is_known_to_be_off and nobody_had_pushed
    return has_new_commit and was_set_by_us and not was_turned_off


def with_removal_from_queue(request: Proposed, reason: str) -> Proposed:
    """Return the request, marked as removed from the forge's merge queue for this reason, and as no
    longer having auto-merge. Without a reason, return the request unchanged.
    """
    if not reason:
        return request
    return replace(request, thrown_out=reason, body=_without_auto_merge(request.body))


def _without_auto_merge(body: str) -> str:
    """Return the body without the record that auto-merge has been set, so that the next run sets it
    again.
    """
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
    """Set the labels, people, and auto-merge in `unset`, and record in the request's text what has
    been set. Return the request with the notes.

    `pull` is the forge's data about the request, and `desired` contains the request's text.
    """
    if wishes(unset):
        request, pull = host.complete(pull, unset, notes)

    # If the branch has a newer commit, the text belongs to the run that pushed this commit. That
    # run writes its own record.
    our_commit = described(desired.body)
    newer_tip = _newer_tip(host, our_commit, desired.head)
    if newer_tip:
        return notes.add_to(replace(request, head_commit=newer_tip, note=MOVED))

    keys_before = applied_wishes(desired.body)
    keys_now = keys_before | (wishes(unset) - notes.missed)
    if keys_now != keys_before and request.state == "open":
        with suppress(Overtaken):  # the request may have been closed in the meantime
            host.write(pull, desired.title, with_applied_wishes(desired.body, keys_now))
    return notes.add_to(replace(request, head_commit=our_commit or request.head_commit))


def _newer_tip(host: Host, our_commit: str, head: str) -> str:
    """Return the newest commit of the branch `head`, or "" if that is our commit or unknown."""
    if not our_commit:
        return ""
    tip = host.tip(head)
    return tip if tip != our_commit else ""


class Notes:
    """Notes that are shown with the request: sentences about what the forge could not do. There are
    no duplicates.
    """

    def __init__(self) -> None:
        self._sentences: list[str] = []
        # keys of values that could not be set; the next run retries them
        self.missed: set[str] = set()

    def add(self, sentence: str, kind: str = "", *names: str) -> None:
        """Add a sentence, unless it is "" or a duplicate.

        If `kind` ("label", "reviewer", "assignee", or "auto-merge") is given, the names of that
        kind could not be set. They are recorded, so that the next run retries them.
        """
        if sentence and sentence not in self._sentences:
            self._sentences.append(sentence)
        if not kind:
            return
        if not names:  # auto-merge needs no name
            self.missed.add(wish_key(kind))
        for name in names:
            self.missed.add(wish_key(kind, name))

    @contextmanager
    def on_failure(self, what: str, kind: str, *names: str) -> Iterator[None]:
        """Turn the forge's refusal inside the block into a note, the sentence "<what>: <error>".
        The labels or people with these `names` then count as not set (see `add`).

        Other errors are not caught, for example if the forge could not be reached or rejected the
        token.
        """
        try:
            yield
        except (ForgeError, RepositoryError) as error:
            self.add(f"{what}: {error.message}", kind, *names)

    def add_to(self, request: Proposed) -> Proposed:
        """Return the request with these notes added to its own."""
        self.add(request.note)
        return replace(request, note="; ".join(self._sentences)[:_LONGEST_NOTE])


def missing(wanted: Iterable[str], have: Iterable[str]) -> list[str]:
    """Return the `wanted` names that are not in `have`, in order and without duplicates.

    The names, of labels or users, are compared case-insensitively.
    """
    seen_names = {name.lower() for name in have}
    missing_names = []
    for name in wanted:
        if name.lower() not in seen_names:
            seen_names.add(name.lower())  # any later occurrence is a duplicate
            missing_names.append(name)
    return missing_names


def plausible(found: Proposed, page: str) -> Proposed:
    """Return the request without its merge commit if that is not hexadecimal, and with `page` (the
    repository's page) if its URL is invalid.

    These values come from the forge, and are shown in results, logs, and web pages.
    """
    merge_commit = found.merge_commit if _COMMIT.fullmatch(found.merge_commit) else ""
    return replace(found, url=web_page(found.url) or page, merge_commit=merge_commit)


@dataclass(frozen=True)
class Comment:
    """A comment on the forge."""

    number: str  # the comment's id on the forge
    body: str
    url: str
    version: int = 0  # for forges whose updates must include the current version


class Comments(Connected):
    """The comments on a repository's pull requests.

    There is only one comment of ours for each mark (a hidden line that only our comments contain):
    it is found by the mark, and edited.
    """

    stays = "run it again"

    def put(self, request: str, mark: str, body: str) -> str:
        """Add our comment, or replace its text if a comment with that mark (a hidden line) exists.
        Return its URL.
        """
        with self.understood():
            return web_page(self._put(request, mark, body)) or self.place.web

    def _put(self, request: str, mark: str, body: str) -> str:
        """Add our comment, or replace its text if a comment with that mark (a hidden line) exists.
        Return the URL from the forge's response, which may be invalid.
        """
        for comment in self.marked(request, mark):
            if normalized_text(comment.body) == normalized_text(body):
                return comment.url
            page = self.change(request, comment, body)
            if page is not None:  # the comment is someone else's
                return page
        return self.add(request, body)

    @abstractmethod
    def marked(self, request: str, mark: str) -> Iterable[Comment]:
        """Return the request's comments that contain the mark, newest first. If the forge can
        identify our own comments, return only these.
        """

    @abstractmethod
    def add(self, request: str, body: str) -> str:
        """Add a comment, and return its URL."""

    @abstractmethod
    def change(self, request: str, comment: Comment, body: str) -> str | None:
        """Change a comment's text, and return the comment's URL. Return None if the comment is
        someone else's and was not changed.
        """

    @staticmethod
    def holds(body: str, mark: str) -> bool:
        """Return whether the comment contains the mark on a line of its own."""
        return mark in normalized_text(body).split("\n")


class Deployments(Connected):
    """A repository's deployments: which build is in which environment, and how its
    rollout ended.
    """

    stays = "the changes in Git are kept, and Argo CD will deploy them"

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach)
        # the numbers of the deployments that this run started, by environment
        self._started: dict[str, str] = {}

    def begin(self, deployment: Deployment) -> None:
        """Start a deployment in this state."""
        with self.understood():
            self._started[deployment.environment] = self.create(deployment)

    def end(self, deployment: Deployment, *, begun: bool) -> bool:
        """Set the state of the deployment that this run started (`begun`), or else of the newest
        deployment by an earlier run for the same commit and environment.

        Return whether such a deployment exists.
        """
        if begun:
            number = self._started[deployment.environment]
        else:
            with self.understood():
                number = self.find(deployment)
        if number == "":
            return False
        self.change(number, deployment)
        return True

    def sum_up(self, status: CommitStatus) -> None:
        """Summarize all deployments in a single status on the source commit, if the forge supports
        commit statuses.
        """

    @abstractmethod
    def create(self, deployment: Deployment) -> str:
        """Create a deployment in this state, and return its number."""

    @abstractmethod
    def find(self, deployment: Deployment) -> str:
        """Return the number of our newest deployment for this commit and environment that may still
        change, or "" if there is none.
        """

    @abstractmethod
    def change(self, number: str, deployment: Deployment) -> None:
        """Set the deployment's state."""
