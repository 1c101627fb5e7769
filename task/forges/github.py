"""Pull requests on GitHub and GitHub Enterprise Server (docs.github.com/rest/pulls; GraphQL for auto-merge)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from task.errors import Outpaced, TaskError
from task.forges import github_comments, github_deployments
from task.forges.client import PAIR, STAYS, Client, ForgeAddress, Reach, dig, names_none, web_below
from task.forges.github_merge import AutoMerge
from task.forges.host import (
    COMMENTS_STAY,
    DEPLOYMENTS_STAY,
    AlreadyThere,
    ForgeKind,
    Host,
    Notes,
    Overtaken,
    missing,
    tried,
)
from task.forges.marks import described
from task.forges.proposal import LONGEST_BODY
from task.git.hosts import RemoteUrl
from task.http import Response
from task.model import Proposal, Proposed
from task.plain_data import mappings
from task.urls import path_part, split

NEEDS = (
    'give the token "Pull requests: write" and "Contents: write" (a classic token: repo); in GitHub Actions, '
    "permissions: pull-requests: write, contents: write, and the setting that lets Actions create pull requests"
)
HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}


class GitHub(Host):
    """One repository on GitHub."""

    longest = LONGEST_BODY["github"]

    def __init__(self, reach: Reach) -> None:
        self._owner, self._repo = reach.place.project
        self._client, self._path = connected(reach, NEEDS)

    def find(self, base: str, head: str) -> Proposed | None:
        """As `ForgeApi.find`. The owner is part of what is asked for: under another name by now, it is asked again."""
        found = self._requests(base, head)
        owner = self._client.moved_to.rpartition("/")[0].rpartition("/")[2]
        if not found and owner and owner.lower() != self._owner.lower():
            self._owner = owner
            found = self._requests(base, head)
        ours = [one for one in found if self._is_ours(one, base, head)]
        ours.sort(key=lambda one: (one["state"] == "open", one["number"]), reverse=True)
        return proposed(ours[0]) if ours else None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def create(self, proposal: Proposal) -> tuple[Proposed, Any]:
        """As `Host.create`."""
        note, answer = "", self._open(proposal, draft=proposal.draft)
        if proposal.draft and answer.status == 422 and b"draft" in answer.body.lower():
            note = "it is not a draft: GitHub has none for this repository"
            answer = self._open(proposal, draft=False)
        if answer.status == 422 and b"pull request already exists" in answer.body.lower():
            raise AlreadyThere
        if answer.status == 422 and b"no commits between" in answer.body.lower():
            raise Outpaced(f"{proposal.base} holds all of {proposal.head} by now")
        if answer.status != 201:
            raise self._client.refused(answer, "open the pull request")
        pull = self._client.parsed(answer, "open the pull request")
        return replace(proposed(pull), note=note), pull

    def read(self, number: str) -> tuple[Proposed, Any]:
        """As `Host.read`."""
        pull = self._pull(number)
        return proposed(pull), pull

    def write(self, said: Any, title: str, body: str) -> tuple[Proposed, Any]:
        """As `Host.write`."""
        path, text = f"{self._path}/pulls/{said['number']}", {"title": title, "body": body}
        pull = self._client.json("PATCH", path, "update the pull request", json=text, again=True)
        if pull["state"] != "open":
            raise Overtaken
        return proposed(pull), pull

    def complete(self, said: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """As `Host.complete`."""
        issue = f"{self._path}/issues/{said['number']}"
        if labels := missing(proposal.labels, (one["name"] for one in said["labels"])):
            with tried(notes, "labels", "label", *labels):
                self._client.ask("POST", f"{issue}/labels", "set labels", json={"labels": labels}, again=True)
        if people := missing(proposal.assignees, (one["login"] for one in said["assignees"] or ())):
            with tried(notes, "assignees", "assignee", *people):
                told = {"assignees": people}
                answer = self._client.json("POST", f"{issue}/assignees", "assign people", json=told, again=True)
                # GitHub ignores people whom it does not accept, without notice.
                if left := missing(people, (one["login"] for one in answer.get("assignees") or ())):
                    notes.add(f"not assigned, since they may not push here: {', '.join(left)}", "assignee", *left)
        with tried(notes, "reviewers", "reviewer", *proposal.reviewers):
            self._ask_reviewers(said, proposal, notes)
        done = proposed(said)
        if proposal.auto_merge:
            with tried(notes, "auto-merge", "auto-merge"):
                commit = described(proposal.body) or done.head_commit
                done = AutoMerge(self._client, self._path, said, commit, notes).switch_on(done)
        return done, said

    def shut(self, said: Any, body: str) -> None:
        """As `Host.shut`."""
        text = {"body": body, "state": "closed"}
        self._client.ask(
            "PATCH", f"{self._path}/pulls/{said['number']}", "close the pull request", json=text, again=True
        )

    def tip(self, head: str) -> str:
        """As `Host.tip`."""
        answer = self._client.ask(
            "GET", f"{self._path}/git/ref/heads/{quote(head)}", "look at the branch", fine=(403, 404, 409)
        )
        return str(answer.json()["object"]["sha"]) if answer.status == 200 else ""

    def _requests(self, base: str, head: str) -> list[Any]:
        """Return the newest requests of this head. Each takes about 25 KB, because it describes both repositories."""
        params = {
            "head": f"{self._owner}:{head}", "base": base, "state": "all",
            "sort": "created", "direction": "desc", "per_page": 10,
        }  # fmt: skip
        return mappings(self._client.json("GET", f"{self._path}/pulls", "look for the pull request", params=params))

    def _is_ours(self, pull: Mapping[str, Any], base: str, head: str) -> bool:
        """Tell whether the head branch is in the repository itself. A fork's branch may have any name."""
        name, theirs = (dig(pull, end, "repo", "full_name").lower() for end in ("head", "base"))
        # the second name is there because the repository may have been renamed
        ours = {f"{self._owner}/{self._repo}".lower(), theirs} - {""}
        return (dig(pull, "head", "ref"), dig(pull, "base", "ref")) == (head, base) and name in ours

    def _open(self, proposal: Proposal, *, draft: bool) -> Response:
        body = {
            "title": proposal.title, "body": proposal.body, "head": proposal.head, "base": proposal.base,
            "draft": draft,
        }  # fmt: skip
        return self._client.ask("POST", f"{self._path}/pulls", "open the pull request", json=body, fine=(422,))

    def _pull(self, number: str) -> Any:
        return self._client.json("GET", f"{self._path}/pulls/{number}", "read the pull request")

    def _ask_reviewers(self, pull: Mapping[str, Any], proposal: Proposal, notes: Notes) -> None:
        """Ask people and teams for reviews. If GitHub refuses one, the others are asked nevertheless."""
        people = {name: name for name in proposal.reviewers if "/" not in name}
        teams = {name: name.rpartition("/")[2] for name in proposal.reviewers if "/" in name}
        users = missing(people, (one["login"] for one in pull["requested_reviewers"] or ()))
        groups = missing(teams.values(), (one["slug"] for one in pull["requested_teams"] or ()))
        where = f"{self._path}/pulls/{pull['number']}"
        single = [{"reviewers": [name]} for name in users] + [{"team_reviewers": [name]} for name in groups]
        if len(single) > 1 and self._requested(where, {"reviewers": users, "team_reviewers": groups}) is None:
            return
        for one in single:
            if error := self._requested(where, one):
                name = next(iter(one.values()))[0]
                full = next((full for full, slug in teams.items() if slug == name), name)
                notes.add(f"{name} was not asked to review: {error.message}", "reviewer", full)

    def _requested(self, where: str, who: Mapping[str, list[str]]) -> TaskError | None:
        """Return None if GitHub accepted it."""
        answer = self._client.ask(
            "POST", f"{where}/requested_reviewers", "ask for reviews", json=who, fine=(403, 404, 422), again=True
        )
        return None if answer.status == 201 else self._client.refused(answer, "ask for reviews")


def connected(reach: Reach, needs: str, stays: str = STAYS) -> tuple[Client, str]:
    """Return a client, and the repository's path."""
    token, path = reach.token.secret, f"/repos/{'/'.join(map(path_part, reach.place.project))}"
    login = lambda: {"Authorization": f"Bearer {token.reveal()}"}  # noqa: E731
    return Client(reach, login, needs, HEADERS, repository=path, stays=stays), path


def proposed(pull: Mapping[str, Any]) -> Proposed:
    """Return our form of GitHub's pull request."""
    merged = bool(pull.get("merged_at"))
    is_open = pull["state"] == "open"
    return Proposed(
        url=str(pull["html_url"]),
        number=str(pull["number"]),
        state="merged" if merged else "open" if is_open else "closed",
        title=str(pull["title"]),
        body=(pull["body"] or "").replace("\r\n", "\n"),
        head_commit=str(pull["head"]["sha"]),
        # for an open request, it is only a trial merge
        merge_commit=str(pull.get("merge_commit_sha") or "") if merged else "",
        conflicts=is_open and pull.get("mergeable") is False,
        note=f"it conflicts with {pull['base']['ref']}" if is_open and pull.get("mergeable") is False else "",
    )


def _deployments(reach: Reach) -> github_deployments.GitHubDeployments:
    client, path = connected(reach, github_deployments.NEEDS, DEPLOYMENTS_STAY)
    statuses, _path = connected(reach, github_deployments.STATUSES_NEED, DEPLOYMENTS_STAY)
    return github_deployments.GitHubDeployments(client, statuses, path)


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    if len(remote.parts) != PAIR:
        raise names_none("GitHub", "https://github.com/owner/repository")
    host = split(root).authority
    api = f"{root}/api/v3"
    if host == "github.com" or host.endswith(".ghe.com"):
        api = f"https://api.{host}"
    return ForgeAddress("github", host, api, remote.parts, web_below(root, remote.parts))


def _is_it(answer: Response) -> bool:
    """In private mode, GitHub answers 401, but its headers still identify it."""
    return "installed_version" in answer.mapping() or "X-GitHub-Request-Id" in answer.headers


KIND = ForgeKind(
    name="github",
    hosts=("github.com",),
    host_ends=(".ghe.com",),
    words=("github",),
    client=GitHub,
    place=_place,
    question=("/api/v3/meta", _is_it),
    deployments=_deployments,
    comments=lambda reach: github_comments.GitHubComments(*connected(reach, github_comments.NEEDS, COMMENTS_STAY)),
)
