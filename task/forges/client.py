"""What all forges share: their Protocol, the HTTP client, and the steps that never open two requests for a branch.

A request belongs to a head branch of the repository itself. Requests from forks may use any branch name, and never
count. If something fails here, the pushed branch stays, and the next run completes the request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol
from urllib.parse import urljoin

from task import shutdown
from task.errors import Outpaced, TaskError, UnreachableError
from task.forges.address import ForgeAddress
from task.forges.comments import CommentApi
from task.forges.content import fitted, overtaken, same
from task.forges.deployments import DeploymentApi
from task.forges.marks import described, lacking, settled, wish, wishes, with_settled
from task.forges.notes import Notes, noted
from task.forges.proposal import LONGEST, closed_body
from task.forges.refusal import STAYS, limited, refused, unanswered, words
from task.git.remote_url import RemoteUrl
from task.http import Http, Limits, Login, NoAnswerError, Response
from task.model import Proposal, Proposed
from task.secret import Secret
from task.urls import origin

LONGEST_WAIT = 30.0  # seconds to wait for a rate limit; a longer wait is an error
# An Application's repoURL may name any server as a forge. A page of a hundred requests with long texts has at most 10
# MB.
LIMITS = Limits(total=60.0, size=16 * 1024 * 1024, values=1_000_000, slow=600.0)
_TURNS = 3
_RACES = 5
_MOVED = (301, 307, 308)


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
class ForgeToken:
    """A token for the API. `source` names its origin in messages."""

    secret: Secret = Secret("")
    user: str = ""  # for a login that is a pair (Bitbucket, Azure); "" means a bare token
    source: str = ""  # "IMAGE_UPDATE_FORGE_TOKEN", "--forge-token-file", …


@dataclass(frozen=True)
class Reach:
    """How to reach one repository's forge. Every forge is created from this alone."""

    place: ForgeAddress
    token: ForgeToken
    more_ca: str = ""
    log: Callable[[str], None] = lambda _line: None
    limits: Limits = LIMITS
    # takes a sentence for people, such as: the repository has moved
    warn: Callable[[str], None] = lambda _sentence: None


@dataclass(frozen=True)
class ForgeKind:
    """Everything about one kind of forge. Its file ends with it, and `task.forges.table` lists it."""

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


class Limited(Exception):
    """The cause of an error: the forge limits requests, so nothing was done, and another attempt would not help."""


class Client:
    """A client of one forge's API. It waits for short rate limits, and returns JSON or raises our named errors."""

    def __init__(
        self,
        reach: Reach,
        login: Login,
        needs: str,
        headers: dict[str, str] | None = None,
        repository: str = "",
        stays: str = STAYS,
    ) -> None:
        """`repository` is the path of the repository itself.

        For messages: `needs` is the permission that a token needs, and `stays` says what is done although a request
        failed.
        """
        self.reach = reach
        self.moved_to = ""  # the repository's page, if the forge says that it has another name now
        self._needs, self._stays = needs, stays
        self._repository = repository
        # the beginnings of its addresses: the known one, and the present one
        self._moved: tuple[str, str] | None = None
        self._http = Http(
            reach.place.api, login=login, more_ca=reach.more_ca, headers=headers, limits=reach.limits, log=reach.log
        )

    def ask(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: dict[str, Any] | None = None,
        json: Any = None,
        fine: tuple[int, ...] = (),
        again: bool | None = None,
    ) -> Response:
        """Return the answer to one request. `what` ends the sentence "could not …". `again`: as for `Http.ask`.

        For a status of 300 and above that is not in `fine`, raise the error from `refused`.
        """
        shutdown.check()
        answer = self._patient(method, path, what, params=params, json=json, again=again)
        if answer.status < 300 or answer.status in fine:
            return answer
        raise self.refused(answer, what) from (None if limited(answer) is None else Limited())

    def json(self, method: str, path: str, what: str, **more: Any) -> Any:
        """As `ask`, but return the JSON. Raises `UnreachableError` if the answer is not JSON."""
        return self.parsed(self.ask(method, path, what, **more), what)

    def parsed(self, answer: Response, what: str) -> Any:
        """Return the answer's JSON. Raises `UnreachableError` if it has none."""
        try:
            return answer.json()
        except (ValueError, RecursionError):
            raise UnreachableError(
                f"{self.reach.place.host} answers with something that is not JSON: could not {what}",
                hint="check that this is the address of the Git host, then run it again",
            ) from None

    def refused(self, answer: Response, what: str) -> TaskError:
        """Return the error for an answer."""
        place, token = self.reach.place, self.reach.token.secret
        return refused(
            answer, what, host=place.host, needs=self._needs, token=token, stays=self._stays, forge=place.forge
        )

    def words(self, answer: Response) -> str:
        """Return the forge's message in a form that we may show."""
        return words(answer, self.reach.token.secret)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _patient(self, method: str, path: str, what: str, **more: Any) -> Response:
        for turn in range(_TURNS):
            try:
                answer = self._redirected(method, path, **more)
            except NoAnswerError as error:
                raise unanswered(error, what, self._stays) from error
            wait = limited(answer)
            if wait is None or wait > LONGEST_WAIT or turn == _TURNS - 1:
                return answer
            shutdown.sleep(wait)
        raise AssertionError  # pragma: no cover - the last turn returns

    def _redirected(self, method: str, path: str, **more: Any) -> Response:
        """Return the answer, asked for at the repository's present address.

        A forge redirects requests for a repository that was renamed. Gitea answers POST and PATCH like that, too, with
        301 (GitHub: 307); GitLab refuses them (405). So what a redirect tells is kept for all that is asked later.
        """
        url = path if path.startswith("http") else f"{self.reach.place.api}{path}"
        if self._moved and url.startswith(self._moved[0]):
            url = f"{self._moved[1]}{url.removeprefix(self._moved[0])}"
        answer = self._http.ask(method, url, **more)
        if answer.status in _MOVED and self._learns(url, urljoin(url, answer.headers.get("Location", ""))):
            return self._redirected(method, path, **more)
        self._learns(url, answer.url)
        return answer

    def _learns(self, url: str, target: str) -> bool:
        """Tell whether a redirect is for a renamed repository: only the beginning of the address differs."""
        url, target = url.partition("?")[0], target.partition("?")[0]
        if self._moved or url == target or origin(url) != origin(target):
            return False
        old, new = url.split("/"), target.split("/")
        while old and new and old[-1] == new[-1]:
            old.pop()
            new.pop()
        before, after = "/".join(old), "/".join(new)
        if before == url or not before.startswith(f"{self.reach.place.api}/"):
            return False
        self._moved = before, after
        self._tell_where()
        return True

    def _tell_where(self) -> None:
        """Report the new place of the repository once. API addresses may have only numbers, so ask for its page."""
        place = self.reach.place
        try:
            answer = self._redirected("GET", self._repository)
            shown = answer.json() if self._repository and answer.status == 200 else {}
            self.moved_to = str(shown.get("html_url") or shown.get("web_url") or "")
        except (NoAnswerError, ValueError, AttributeError):
            self.moved_to = ""
        where = self.moved_to or "another address"
        self.reach.warn(f"{place.web} has moved to {where}: write its present URL (repoURL, git-repository)")


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


MOVED = "a newer build was pushed to the branch meanwhile, and describes itself"


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
