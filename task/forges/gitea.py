"""Pull requests on Gitea and Forgejo (their own description: /swagger.v1.json, /api/swagger)."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

from task.errors import TaskError
from task.forges import AlreadyThere, Client, ForgeToken, Reach, settle
from task.forges.content import dig, fitted, ours_to_delete, same
from task.forges.notes import Notes, check, missing, rows, tried
from task.forges.proposal import LONGEST, described
from task.model import Proposal, Proposed
from task.retry import until
from task.urls import path_part

NEEDS = "give a token with write:repository and write:issue, of a user who may write to the repository"
DRAFTS = ("WIP:", "[WIP]", "Draft:", "[Draft]")  # what may make a title a draft's; by default it is the first two
COLOR = "#5b6b7b"  # of labels that are made
_PAGE, _PAGES = 20, 25  # a request has some 12 KB in a list, which describes both repositories
_LABEL_PAGE, _LABEL_PAGES = 50, 10
_PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds, while Gitea still looks for conflicts
_STYLES = (
    ("merge", "allow_merge_commits"), ("squash", "allow_squash_merge"), ("rebase", "allow_rebase"),
    ("rebase-merge", "allow_rebase_explicit"), ("fast-forward-only", "allow_fast_forward_only_merge"),
)  # fmt: skip


class Gitea:
    """One repository on Gitea or Forgejo."""

    def __init__(self, reach: Reach) -> None:
        owner, repo = reach.place.project
        self._owner, self._path = owner, f"/repos/{path_part(owner)}/{path_part(repo)}"
        self._client = Client(reach, lambda: login(reach.token), NEEDS, repository=self._path)

    def find(self, base: str, head: str) -> Proposed | None:
        """As `ForgeApi.find`.

        Gitea can be asked for the request of a base and a head (since 1.22), and gives any of them, mostly the oldest.
        Where none was ever made, or that one is open, this is all there is to know. Else there may be a newer one: the
        list cannot be asked for a head, so of its newest 500 the first of ours is taken. So, too, for a base with a
        slash: some proxies take no slash in a part of a path (Apache, without AllowEncodedSlashes).
        """
        what = f"look for the pull request of {head}"
        path = f"{self._path}/pulls/{path_part(base)}/{quote(head)}"
        answer = self._client.ask("GET", path, what, fine=(404,))
        one: Any = self._client.parsed(answer, what) if answer.status < 300 else None
        known = proposed(one) if _is_ours(one, base, head) else None
        if (known and known.state == "open") or (known is None and "/" not in base):
            return known
        params = {"state": "all", "base_branch": base}  # newest first
        for other in self._pages(f"{self._path}/pulls", what, params):
            if known and dig(other, "number") == known.number:
                break
            if _is_ours(other, base, head):
                return proposed(other)
        return known

    def propose(self, proposal: Proposal, found: Proposed | None) -> Proposed:
        """As `ForgeApi.propose`."""
        return settle(self, fitted(proposal, LONGEST), found)

    def state(self, number: str) -> Proposed:
        """As `ForgeApi.state`."""
        pull = self._read(number)
        done = proposed(pull)
        stuck = done.state == "open" and pull.get("mergeable") is False and not _draft_word(pull)
        return replace(done, note=f"it cannot be merged into {pull['base']['ref']}: conflicts" if stuck else "")

    def close(self) -> None:
        """Connections are closed."""
        self._client.close()

    def create(self, proposal: Proposal) -> Proposed:
        """As `Steps.create`."""
        title = f"{DRAFTS[0] + ' ' if proposal.draft else ''}{proposal.title}"
        body = {"title": title, "body": proposal.body, "head": proposal.head, "base": proposal.base}
        what = "open the pull request"
        answer = self._client.ask("POST", f"{self._path}/pulls", what, json=body, fine=(409,))
        if answer.status == 409:
            number = re.search(r"already exists .*\bissue_id: (\d+)", self._client.words(answer))
            if number:
                raise AlreadyThere(self.state(number[1]))
            raise self._client.refused(answer, what)
        return self._completed(self._client.parsed(answer, what), proposal, Notes())

    def update(self, found: Proposed, proposal: Proposal) -> Proposed:
        """As `Steps.update`. A draft stays one, and what a person made ready stays ready."""
        pull = self._read(found.number)
        check(found, proposed(pull), proposal)
        if not same(proposed(pull), proposal):
            title = f"{_draft_word(pull)}{proposal.title}"
            fields = {"title": title, "body": proposal.body}
            pull = self._write(found.number, "update the pull request", fields)
            check(found, proposed(pull), proposal)
        return self._completed(pull, proposal, Notes())

    def tip(self, head: str) -> str:
        """As `Steps.tip`."""
        what = "look at the branch"
        answer = self._client.ask("GET", f"{self._path}/branches/{quote(head)}", what, fine=(403, 404))
        return dig(self._client.parsed(answer, what), "commit", "id") if answer.status < 300 else ""

    def _read(self, number: str) -> Any:
        return self._client.json("GET", f"{self._path}/pulls/{number}", "read the pull request")

    def _write(self, number: str, what: str, fields: Mapping[str, Any]) -> Any:
        return self._client.json("PATCH", f"{self._path}/pulls/{number}", what, json=fields, again=True)

    def _pages(self, path: str, what: str, params: Mapping[str, Any]) -> Iterator[Any]:
        """The items of some pages. An instance may give shorter ones than asked for; only an empty one is the last."""
        for page in range(1, _PAGES + 1):
            found = rows(self._client.json("GET", path, what, params={**params, "page": page, "limit": _PAGE}))
            yield from found
            if not found:
                return

    def _completed(self, pull: Mapping[str, Any], proposal: Proposal, notes: Notes) -> Proposed:
        """With what is still missing of labels, people and auto-merge; what cannot be is noted."""
        number = str(pull["number"])
        if labels := missing(proposal.labels, (one["name"] for one in pull.get("labels") or ())):
            with tried(notes, "labels"):
                self._set_labels(number, labels)
        people = [one["login"] for one in pull.get("assignees") or ()]
        for name in missing(proposal.assignees, people):
            with tried(notes, f"assignee {name}"):
                self._write(number, "assign people", {"assignees": [*people, name]})
                people.append(name)
        with tried(notes, "reviewers"):
            self._ask_reviewers(pull, proposal.reviewers, notes)
        done = proposed(pull)
        if proposal.auto_merge and done.state == "open":
            with tried(notes, "auto-merge"):
                done = self._auto_merged(done, proposal, notes)
        return replace(done, note=notes.text(done.note))

    def _set_labels(self, number: str, names: list[str]) -> None:
        """By name, which finds the organization's as well, without the right to read them; what is missing is made.

        Gitea passes over names that it does not know, or knows in other letters, without a word; and a label that is
        made a second time is there twice.
        """
        if not (left := missing(names, self._labelled(number, names))):
            return
        known = self._known_labels(f"{self._path}/labels", ())
        known |= self._known_labels(f"/orgs/{path_part(self._owner)}/labels", (403, 404))
        for name in left:
            if name.lower() not in known:
                label = {"name": name, "color": COLOR}
                self._client.ask("POST", f"{self._path}/labels", "make a label", json=label)
        self._labelled(number, [known.get(name.lower(), name) for name in left])

    def _labelled(self, number: str, names: list[str]) -> list[str]:
        """Put these labels on a request; the names of all that it has then."""
        path = f"{self._path}/issues/{number}/labels"
        there = self._client.json("POST", path, "set labels", json={"labels": names}, again=True)
        return [dig(one, "name") for one in rows(there)]

    def _known_labels(self, path: str, fine: tuple[int, ...]) -> dict[str, str]:
        """Lower case → the name as it is."""
        found: dict[str, str] = {}
        for page in range(1, _LABEL_PAGES + 1):
            params = {"page": page, "limit": _LABEL_PAGE}
            answer = self._client.ask("GET", path, "read the labels", params=params, fine=fine)
            labels = rows(self._client.parsed(answer, "read the labels")) if answer.status < 300 else []
            if not labels:
                break
            found |= {dig(one, "name").lower(): dig(one, "name") for one in labels}
        return found

    def _ask_reviewers(self, pull: Mapping[str, Any], names: Iterable[str], notes: Notes) -> None:
        """Ask those who have neither been asked nor answered; teams are `organization/team`."""
        path = f"{self._path}/pulls/{pull['number']}"
        if not (wanted := list(dict.fromkeys(names))):
            return
        params = {"page": 1, "limit": 50}
        reviews = self._client.json("GET", f"{path}/reviews", "read the reviews", params=params)
        asked = [dig(one, "user", "login") for one in reviews] + [dig(one, "team", "name") for one in reviews]
        asked += [one["login"] for one in pull.get("requested_reviewers") or ()]
        asked += [one["name"] for one in pull.get("requested_reviewers_teams") or ()]
        for name in wanted:
            if not missing([name.rpartition("/")[2]], asked):
                continue
            who = {"team_reviewers": [name.rpartition("/")[2]]} if "/" in name else {"reviewers": [name]}
            try:
                self._client.ask("POST", f"{path}/requested_reviewers", f"ask {name} to review", json=who)
            except TaskError as error:
                if error.exit.name == "TEMPORARY":
                    raise
                notes.add(error.message)

    def _auto_merged(self, done: Proposed, proposal: Proposal, notes: Notes) -> Proposed:
        """To be merged by Gitea once its checks pass; of exactly this commit, so of no other push."""
        repo = self._client.json("GET", self._path, "read the repository's settings")
        allowed = [style for style, setting in _STYLES if repo.get(setting)]
        style = repo.get("default_merge_style") or "merge"
        body = {
            "Do": style if style in allowed or not allowed else allowed[0],
            "merge_when_checks_succeed": True,
            "head_commit_id": described(proposal.body) or done.head_commit,
            "delete_branch_after_merge": ours_to_delete(proposal.head),
        }
        path, what, fine = f"{self._path}/pulls/{done.number}/merge", "switch on auto-merge", (403, 404, 405, 409, 422)
        ask = partial(self._client.ask, "POST", path, what, json=body, fine=fine)
        # Gitea says "try again later" while it still looks for conflicts.
        answer = until(lambda answer: b"try again later" not in answer.body.lower(), ask(), ask, _PAUSES)
        if answer.status < 300 or b"already scheduled" in answer.body:
            return proposed(self._read(done.number))
        notes.add(f"{self._client.reach.place.host} cannot merge it by itself: {self._client.words(answer)}")
        return done


def login(token: ForgeToken) -> Mapping[str, str]:
    """The header that logs in: a token alone, or a user's name with a password or a token, as Git is given them.

    Gitea takes no password as a token; beside a name it takes either.
    """
    secret = token.secret.reveal()
    if not token.user:
        return {"Authorization": f"token {secret}"}
    return {"Authorization": f"Basic {b64encode(f'{token.user}:{secret}'.encode()).decode()}"}


def _is_ours(pull: Any, base: str, head: str) -> bool:
    """Of the repository itself: a fork's branch may bear any name.

    While a branch is deleted `head.ref` is `refs/pull/N/head`, and only `head.label` keeps its name (Gitea 1.26).
    """
    ours = dig(pull, "head", "repo_id") == dig(pull, "base", "repo_id") != ""
    return ours and head in (dig(pull, "head", "ref"), dig(pull, "head", "label")) and dig(pull, "base", "ref") == base


def _draft_word(pull: Mapping[str, Any]) -> str:
    """The beginning of the title that makes it a draft; "" where it is none."""
    title = str(pull["title"])
    is_draft = pull.get("draft", True)  # older ones do not say
    found = next((word for word in DRAFTS if is_draft and title.lower().startswith(word.lower())), "")
    rest = title[len(found) :]
    return title[: len(title) - len(rest.lstrip())] if found else ""


def proposed(pull: Mapping[str, Any]) -> Proposed:
    """Gitea's pull request → ours, its title without the word that makes it a draft."""
    merged, is_open = bool(pull.get("merged")), pull["state"] == "open"
    return Proposed(
        url=str(pull["html_url"]),
        number=str(pull["number"]),
        state="merged" if merged else "open" if is_open else "closed",
        title=str(pull["title"])[len(_draft_word(pull)) :],
        body=str(pull.get("body") or "").replace("\r\n", "\n"),
        head_commit=dig(pull, "head", "sha"),
        merge_commit=str(pull.get("merge_commit_sha") or "") if merged else "",
    )
