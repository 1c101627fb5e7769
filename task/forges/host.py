"""What every forge does: requests, of which there are never two for a branch, comments and deployments.

A request belongs to a head branch of the repository itself. Requests from forks may use any branch name, and never
count. If something fails here, the pushed branch stays, and the next run completes the request.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from task import shutdown
from task.errors import ForgeError, Outpaced, RepositoryError, UnreachableError
from task.forges.client import ForgeAddress, Limited, Reach
from task.forges.marks import described, lacking, settled, wish, wishes, with_settled
from task.forges.proposal import LONGEST, closed_body, fitted, overtaken, same
from task.git.hosts import RemoteUrl
from task.git.names import OURS
from task.http import Response
from task.model import CommitStatus, Deployment, Proposal, Proposed
from task.urls import web_page

_RACES = 5
COMMENTS_STAY = "the plan is made; running it again writes the comment"
PAGES = 5  # of a hundred comments each, newest first; older comments are not searched
DEPLOYMENTS_STAY = "what was written to Git stays, and Argo CD deploys it"
_COMMIT = re.compile("[0-9A-Fa-f]{7,64}")  # Bitbucket returns twelve digits
_LONGEST_NOTE = 1000
MOVED = "a newer build was pushed to the branch meanwhile, and describes itself"


Value = TypeVar("Value")


class ForgeApi(Protocol):
    """One repository on its forge."""

    def find(self, base: str, head: str) -> Proposed | None:
        """Return the open request from `head` into `base`, else the newest closed or merged one, or None.

        Its state is "gone" if the forge has closed it because its branch was deleted, and says so.
        """

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """Open the request, or update the open one. There is never a second one.

        `found` is what `find` returned before the push, so nothing is looked up again. Raises `Outpaced` if the request
        was merged meanwhile: then the rest has to be decided on the new tip.
        """

    def state(self, number: str) -> Proposed:
        """Return the state of one request: open, merged (with its merge commit) or closed."""

    def withdraw(self, found: Proposed, because: str) -> None:
        """Close an open request with a sentence why; then it declines nothing.

        Raises `Outpaced` if another run has described something newer there since.
        """

    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True)
class ForgeKind:
    """Everything about one kind of forge. Its file ends with it, and `task.forges.places` lists it."""

    name: str  # as --forge names it
    client: Callable[[Reach], ForgeApi]
    comments: Callable[[Reach], CommentApi]
    # A repository's URL, and where the forge's web begins → the repository's place; the host is filled in later.
    place: Callable[[RemoteUrl, str], ForgeAddress]
    aliases: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # its public hosts
    host_ends: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # found in the names of hosts that run it: gitlab.example.com, my-gitea.example.com
    # An address below its root that needs no login, and a test whether the answer comes from this kind of forge.
    question: tuple[str, Callable[[Response], bool]] | None = None
    # {0} is the repository's page, {1} the base branch, {2} the head branch. For `commit`, {1} is the commit.
    compare: str = "{0}/compare/{1}...{2}"
    commit: str = "{0}/commit/{1}"
    deployments: Callable[[Reach], DeploymentApi] | None = None  # None if it shows no deployments


class Host(ABC):
    """What each forge has to do for a request. `said` is the forge's own answer about one."""

    longest: ClassVar[int] = LONGEST  # characters of a text
    # What the forge does not have, with a sentence for people: "labels", "assignees", "auto_merge".
    without: ClassVar[Mapping[str, str]] = {}
    # What becomes of an auto-merge with our next push; "again" means that it has to be set again.
    auto_merge_after_push: ClassVar[Literal["stays", "ends", "again"]] = "stays"

    @abstractmethod
    def find(self, base: str, head: str) -> Proposed | None:
        """As `ForgeApi.find`."""

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """As `ForgeApi.propose`."""
        return settle(self, proposal, found)

    def state(self, number: str) -> Proposed:
        """As `ForgeApi.state`."""
        return self.read(number)[0]

    def withdraw(self, found: Proposed, because: str) -> None:
        """As `ForgeApi.withdraw`."""
        now, said = self.read(found.number)
        if now.state == "open":
            if described(now.body) != described(found.body):
                raise Outpaced(f"{found.url} proposes something newer by now")
            self.shut(said, closed_body(now, because))

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    def create(self, proposal: Proposal) -> tuple[Proposed, Any]:
        """Open a request with title, text and draft. Raises `AlreadyThere` if the forge says that one is open."""

    @abstractmethod
    def read(self, number: str) -> tuple[Proposed, Any]:
        """Return one request as it is now, and the forge's own answer."""

    @abstractmethod
    def write(self, said: Any, title: str, body: str) -> tuple[Proposed, Any]:
        """Change title and text of the open request. Raises `Overtaken` if the request is no longer open."""

    @abstractmethod
    def complete(self, said: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Set the labels, people and auto-merge of this proposal, if they are missing. What fails becomes a note."""

    @abstractmethod
    def shut(self, said: Any, body: str) -> None:
        """Close the open request with this text."""

    @abstractmethod
    def tip(self, head: str) -> str:
        """Return the commit that the head branch has now, or "" if the forge does not say."""


class Overtaken(Exception):
    """Others have changed the request since it was found, so look again. Never leaves `settle`."""


class AlreadyThere(Exception):
    """The forge says that a request for this branch is already open. Never leaves `settle`."""

    def __init__(self, found: Proposed | None = None) -> None:
        super().__init__()
        self.found = found  # that request, if the forge names it


def settle(host: Host, proposal: Proposal, found: Proposed | None) -> Proposed:
    """Open or update the request, even if other runs do the same: there is one request, about its newest commit.

    `found` is what `find` returned before the push. If a branch has moved on, its request is left to the run that moved
    it, as `head_commit` of the answer shows. Raises `Outpaced` if the request was merged since.
    """
    before, notes = found, Notes()
    for name, sentence in host.without.items():
        if wanted := getattr(proposal, name):
            notes.add(sentence)
            proposal = replace(proposal, **{name: type(wanted)()})
    for turn in range(_RACES):
        if found and found.state == "merged":  # either the request to update, or one with the proposed commit
            was_open = before is not None and before.state == "open" and before.number == found.number
            if was_open or described(found.body) == described(proposal.body) != "":
                raise Outpaced(f"{found.url} was merged meanwhile")
        try:
            if found is not None and found.state == "open":
                return _brought_up_to_date(host, found, proposal, notes)
            whole = fitted(proposal, host.longest)
            made, said = host.create(whole)
            notes.add(made.note)
            return _completed(host, made, said, whole, whole, notes) if wishes(whole) else noted(made, notes)
        except Overtaken:
            found = None
        except AlreadyThere as there:
            found = there.found
            shutdown.sleep(0.2 * turn)  # the forge's lists may be late
        except UnreachableError as error:  # it may have been opened nevertheless: look, and try once more
            known = isinstance(error.__cause__, Limited) or (found is not None and found.state == "open")
            if known or turn or shutdown.code():
                raise
            found = None
        found = found or host.find(proposal.base, proposal.head)
    raise UnreachableError(
        f"others keep changing the request for {proposal.head}, or the Git host does not show it",
        hint="run it again: the branch stays",
    )


def _brought_up_to_date(host: Host, found: Proposed, proposal: Proposal, notes: Notes) -> Proposed:
    ours = described(proposal.body)
    now, said = host.read(found.number)
    if now.state != "open" or overtaken(found, now, proposal):
        raise Overtaken
    # Forges notice a push late, and some show only twelve digits of a commit. So ask for the branch itself, but only if
    # the request does not show our commit.
    shown = now.head_commit != "" and ours.startswith(now.head_commit)
    if not shown and (newer := _moved(host, ours, proposal.head)):
        return replace(found, head_commit=newer, note=MOVED)
    whole = fitted(proposal, host.longest, now)
    missing = lacking(proposal, whole.body)
    pushed, set_before = described(now.body) != ours, wish("auto-merge") in settled(now.body)
    # A person may have switched it off before the push. A forge that does not say so is asked again.
    off = found.auto_merge is False and found.head_commit == described(found.body)
    if pushed and proposal.auto_merge and set_before and not off:
        if host.auto_merge_after_push == "ends":
            whole = replace(whole, body=with_settled(whole.body, settled(whole.body) - {wish("auto-merge")}))
        missing = replace(missing, auto_merge=host.auto_merge_after_push != "stays")
    done = now
    if not same(now, whole):
        done, said = host.write(said, whole.title, whole.body)
    elif not wishes(missing):
        return noted(replace(done, head_commit=ours or done.head_commit), notes)
    done = _completed(host, done, said, whole, missing, notes)
    if done.head_commit != ours != "" and described(now.body) == done.head_commit:
        host.write(host.read(found.number)[1], now.title, now.body)  # we have overwritten the text of a newer commit
    return done


def _completed(host: Host, done: Proposed, said: Any, whole: Proposal, missing: Proposal, notes: Notes) -> Proposed:
    """Set what is missing, and mark in the text what is set. A newer build marks its own text."""
    if wishes(missing):
        done, said = host.complete(said, missing, notes)
    ours = described(whole.body)
    if newer := _moved(host, ours, whole.head):
        return noted(replace(done, head_commit=newer, note=MOVED), notes)
    is_set = settled(whole.body) | (wishes(missing) - notes.missed)
    if is_set != settled(whole.body) and done.state == "open":
        with suppress(Overtaken):
            host.write(said, whole.title, with_settled(whole.body, is_set))
    return noted(replace(done, head_commit=ours or done.head_commit), notes)


def _moved(host: Host, ours: str, head: str) -> str:
    """Return the branch's tip if it is not the commit in our text, or "" if it is, or is unknown."""
    tip = host.tip(head) if ours else ""
    return tip if tip != ours else ""


class Notes:
    """Sentences about what a forge could not do, each once; they are shown with the request."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self.missed: set[str] = set()  # keys of what could not be set, and is tried again by the next run

    def add(self, sentence: str, kind: str = "", *names: str) -> None:
        """Add a sentence. With a `kind`, these labels or people are not set, or `auto-merge` is not."""
        if sentence and sentence not in self._said:
            self._said.append(sentence)
        self.missed.update(wish(kind, name) for name in (names or ("",)) if kind)

    def text(self) -> str:
        """Return all sentences as one text."""
        return "; ".join(self._said)[:_LONGEST_NOTE]


def noted(found: Proposed, notes: Notes) -> Proposed:
    """Return the request with all notes, and its own."""
    notes.add(found.note)
    return replace(found, note=notes.text())


@contextmanager
def tried(notes: Notes, what: str, kind: str, *names: str) -> Iterator[None]:
    """Turn a refusal inside the block into a note. A temporary error is raised, so that the job runs again."""
    try:
        yield
    except (ForgeError, RepositoryError) as error:
        notes.add(f"{what}: {error.message}", kind, *names)


def missing(wanted: Iterable[str], have: Iterable[str]) -> list[str]:
    """Return the names in order, each once. Upper and lower case are the same for labels and people."""
    there, found = {name.lower() for name in have}, []
    for name in wanted:
        if name.lower() not in there:
            there.add(name.lower())
            found.append(name)
    return found


class Checked:
    """A forge whose answers can be read, or are named errors. URLs and commits go into results, logs and pages."""

    def __init__(self, forge: ForgeApi, place: ForgeAddress) -> None:
        self._forge, self._place = forge, place

    def find(self, base: str, head: str) -> Proposed | None:
        """As the forge."""
        found = understood(self._place.host, lambda: self._forge.find(base, head))
        return honest(found, self._place.web) if found else None

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """As the forge."""
        now = understood(self._place.host, lambda: self._forge.propose(proposal, found))
        return honest(now, self._place.web)

    def state(self, number: str) -> Proposed:
        """As the forge."""
        return honest(understood(self._place.host, lambda: self._forge.state(number)), self._place.web)

    def withdraw(self, found: Proposed, because: str) -> None:
        """As the forge."""
        understood(self._place.host, lambda: self._forge.withdraw(found, because))

    def close(self) -> None:
        """As the forge."""
        self._forge.close()


def understood(host: str, work: Callable[[], Value]) -> Value:
    """Return the result of the work.

    Raises `UnreachableError` for an answer of another shape, as from a proxy or another service.
    """
    try:
        return work()
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise UnreachableError(
            f"{host} answers in a way that is not understood ({type(error).__name__}: {error})"[:300],
            hint="check that it is the Git host that --forge or the URL names, then run it again",
        ) from error


def honest(found: Proposed, page: str) -> Proposed:
    """Return the request without an implausible URL or commit. Its URL is then `page`, the repository's."""
    merged = found.merge_commit if _COMMIT.fullmatch(found.merge_commit) else ""
    return replace(found, url=web_page(found.url) or page, merge_commit=merged)


def ours_to_delete(head: str) -> bool:
    """Tell whether the branch may be deleted after the merge. One that an annotation names may be an environment."""
    return head.startswith(OURS)


class NotOursError(Exception):
    """The comment belongs to somebody else, and only its author may edit it. Never leaves `put`."""


@dataclass(frozen=True)
class Comment:
    """A comment on the forge."""

    number: str  # its id there
    body: str
    url: str
    version: int = 0  # needed if a change has to name the version that it changes


class CommentApi(Protocol):
    """The comments on pull requests of one repository."""

    def marked(self, request: str, mark: str) -> Iterable[Comment]:
        """Return the comments on that request that have the mark, newest first, and only ours if the forge can tell."""

    def add(self, request: str, body: str) -> str:
        """Add a comment, and return its URL."""

    def change(self, request: str, comment: Comment, body: str) -> str:
        """Change the text of a comment, and return its URL. Raises `NotOursError` if it is somebody else's."""

    def close(self) -> None:
        """Close the connections."""


def put(api: CommentApi, request: str, mark: str, body: str) -> str:
    """Write our comment with that mark, or replace its text if it exists. Return its URL."""
    for found in api.marked(request, mark):
        if _plain(found.body) == _plain(body):
            return found.url
        with suppress(NotOursError):
            return api.change(request, found, body)
    return api.add(request, body)


def holds(body: str, mark: str) -> bool:
    """Tell whether a line of the text is the mark."""
    return mark in _plain(body)


def _plain(body: str) -> list[str]:
    """Return the lines without trailing white space, because forges change line ends."""
    return [line.rstrip() for line in body.strip().splitlines()]


class DeploymentApi(Protocol):
    """The deployments of one repository."""

    def begin(self, deployment: Deployment) -> str:
        """Create a deployment in this state, and return its number."""

    def find(self, deployment: Deployment) -> str:
        """Return the number of our newest deployment for this commit and environment that may still change, or ""."""

    def change(self, number: str, deployment: Deployment) -> None:
        """Set the state of the deployment."""

    def sum_up(self, status: CommitStatus) -> None:
        """Set the status of the commit. Do nothing if the forge has no such status."""

    def close(self) -> None:
        """Close the connections."""
