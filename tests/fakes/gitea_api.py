"""Gitea's and Forgejo's API v1, as far as pull requests go.

Shapes and refusals: their own description (swagger.v1.json: CreatePullRequestOption, EditPullRequestOption,
MergePullRequestOption, PullReviewRequestOptions) and routers/api/v1/repo/pull.go of Gitea 1.22.
"""

import re
from collections.abc import Callable
from typing import Any

from fakes.forge_server import ForgeServer, Pull, Reply, Request

OWNER, REPO = "acme", "deploy"
NUMBER, FORK = 5, 6
CREATE = {
    "assignee", "assignees", "base", "body", "due_date", "head", "labels", "milestone", "title", "reviewers",
    "team_reviewers",
}  # fmt: skip
EDIT = (CREATE | {"state", "allow_maintainer_edit", "unset_due_date"}) - {"head", "reviewers", "team_reviewers"}
MERGE = {
    "Do", "MergeCommitID", "MergeMessageField", "MergeTitleField", "delete_branch_after_merge", "force_merge",
    "head_commit_id", "merge_when_checks_succeed",
}  # fmt: skip
STYLES = {"merge", "rebase", "rebase-merge", "squash", "fast-forward-only", "manually-merged"}


class Gitea(ForgeServer):
    """One repository."""

    login = "token good-token"

    def __init__(self) -> None:
        super().__init__()
        self.assigned: dict[int, list[str]] = {}
        self.teams: dict[int, list[str]] = {}
        self.known_labels: dict[str, int] = {"deploy": 1}
        self.organization_labels: dict[str, int] = {"automatic": 90}
        self.most = 50  # rows of a page
        self.checks = "pending"  # "pending", "none", "forbidden"
        self.looks = 0  # how often it still looks for conflicts
        self.conflicts = False
        self.settings = {"allow_merge_commits": True, "allow_squash_merge": True, "default_merge_style": "merge"}

    def answer(self, request: Request) -> Reply:
        path = request.path.removeprefix("/api/v1")
        if path == f"/orgs/{OWNER}/labels":
            return self._page(request, _labels(self.organization_labels))
        ours = f"/repos/{OWNER}/{REPO}"
        if path == ours:
            return Reply(200, {"id": NUMBER, "full_name": f"{OWNER}/{REPO}", **self.settings})
        if not path.startswith(f"{ours}/"):
            return _error(404, "The target couldn't be found.")
        path = path.removeprefix(f"{ours}/")
        for (method, route), work in ROUTES.items():
            if method == request.method and (match := re.fullmatch(route, path)):
                return work(self, request, *match.groups())
        self.wrong.append(f"{request.method} {request.path} is not documented")
        return _error(404, "The target couldn't be found.")

    def _page(self, request: Request, found: list[Any]) -> Reply:
        self.require(set(request.query) <= {"page", "limit", "state", "sort"}, f"{request.query}")
        size, page = min(self.most, int(request.one("limit", "30"))), int(request.one("page", "1"))
        return Reply(200, found[(page - 1) * size : page * size])

    def _branch(self, _request: Request, name: str) -> Reply:
        tip = self.branches.get(name)
        found = {"name": name, "commit": {"id": tip, "message": ""}, "protected": False}
        return Reply(200, found) if tip else _error(404, "The target couldn't be found.")

    def _list(self, request: Request) -> Reply:
        state = request.one("state", "open")
        self.require(state in ("open", "closed", "all"), f"state={state}")
        found = [one for one in reversed(self.pulls) if state == "all" or (one.state == "open") == (state == "open")]
        return self._page(request, [self.shown(one) for one in found])

    def _create(self, request: Request) -> Reply:
        body = request.body
        self.require(set(body) <= CREATE, f"POST pulls knows no {set(body) - CREATE}")
        if len(body["title"]) > 255:
            return _error(422, "[Title]: MaxSize")
        for branch in (body["head"], body["base"]):
            if branch not in self.branches:
                return _error(404, "The target couldn't be found.")
        for one in self.open:
            if (one.head, one.base, one.fork) == (body["head"], body["base"], False):
                said = f"pull request already exists for these targets [id: {one.number}, issue_id: 9, head_repo_id: 5]"
                return _error(409, said)
        pull = self.add(base=body["base"], head=body["head"], title=body["title"], body=body["body"])
        return Reply(201, self.shown(pull))

    def _one(self, request: Request, number: str) -> Reply:
        if (pull := self.pull(number)) is None:
            return _error(404, "The target couldn't be found.")
        if request.method == "GET":
            return Reply(200, self.shown(pull))
        body = request.body
        self.require(set(body) <= EDIT, f"PATCH pulls knows no {set(body) - EDIT}")
        if len(body.get("title", "")) > 255:
            return _error(422, "[Title]: MaxSize")
        for name in body.get("assignees", []):
            if name not in self.people:
                return _error(422, f"Assignee does not exist: [name: {name}]")
        pull.title, pull.body = body.get("title", pull.title), body.get("body", pull.body)
        self.assigned[pull.number] = body.get("assignees", self.assigned.get(pull.number, []))
        return Reply(201, self.shown(pull))

    def _labels(self, request: Request) -> Reply:
        if request.method == "GET":
            return self._page(request, _labels(self.known_labels))
        self.require(set(request.body) == {"name", "color"}, f"POST labels: {set(request.body)}")
        self.require(re.fullmatch("#[0-9a-f]{6}", request.body["color"]), "POST labels: color")
        self.known_labels[request.body["name"]] = 10 + len(self.known_labels)
        return Reply(201, _labels(self.known_labels)[-1])

    def _set_labels(self, request: Request, number: str) -> Reply:
        pull = self.pull(number)
        assert pull is not None
        names = {one: name for name, one in {**self.organization_labels, **self.known_labels}.items()}
        pull.labels += [names[one] for one in request.body["labels"] if names[one] not in pull.labels]
        return Reply(200, _labels(dict.fromkeys(pull.labels, 1)))

    def _reviews(self, request: Request, number: str) -> Reply:
        pull = self.pull(number)
        assert pull is not None
        people = [{"user": {"login": name}, "team": None, "state": "REQUEST_REVIEW"} for name in pull.reviewers]
        teams = [{"user": None, "team": {"name": name}} for name in self.teams.get(pull.number, [])]
        return self._page(request, people + teams)

    def _ask_reviewers(self, request: Request, number: str) -> Reply:
        pull = self.pull(number)
        assert pull is not None
        self.require(set(request.body) <= {"reviewers", "team_reviewers"}, f"{request.body}")
        for name in request.body.get("reviewers", []):
            if name not in self.people:
                return _error(404, f"user '{name}' not exist")
            pull.reviewers.append(name)
        self.teams.setdefault(pull.number, []).extend(request.body.get("team_reviewers", []))
        return Reply(201, [])

    def _merge(self, request: Request, number: str) -> Reply:
        pull = self.pull(number)
        assert pull is not None
        body = request.body
        self.require(set(body) <= MERGE, f"merge knows no {set(body) - MERGE}")
        self.require(body["Do"] in STYLES and body["merge_when_checks_succeed"] is True, f"merge: {body}")
        if self.checks == "forbidden":
            return _error(405, "User not allowed to merge PR")
        if self.looks or self.conflicts:
            self.looks -= self.looks > 0
            return _error(405, "Please try again later")
        if pull.title.startswith("WIP:"):
            return _error(405, "Work in progress PRs cannot be merged")
        if body["head_commit_id"] != self.branches[pull.head]:
            return _error(409, "head out of date")
        if pull.auto is not None:
            return _error(409, "pull request is already scheduled to auto merge when checks succeed [pull_id: 1]")
        pull.auto = body
        if self.checks == "none":
            self.merge(number)
            return Reply(200)
        return Reply(201)

    def refusal(self, kind: str) -> Reply:
        return {
            "unauthorized": _error(401, "user does not exist [uid: 0, name: ]"),
            "forbidden": _error(403, "token does not have at least one of required scope(s): [write:repository]"),
            "limited": _error(429, "Too many requests"),
            "invalid": _error(422, "[Title]: MaxSize"),
            "down": Reply(502, "<html><body>Bad Gateway</body></html>"),
        }[kind]

    def shown(self, pull: Pull) -> dict[str, Any]:
        """A pull request as the API shows it."""
        draft = pull.title.startswith("WIP:")
        return {
            "id": 100 + pull.number,
            "number": pull.number,
            "html_url": f"https://gitea.example.com/{OWNER}/{REPO}/pulls/{pull.number}",
            "title": pull.title,
            "body": pull.body,
            "state": "open" if pull.state == "open" else "closed",
            "draft": draft,
            "merged": pull.state == "merged",
            "mergeable": pull.state == "open" and not (self.conflicts or draft or self.looks),
            "merge_commit_sha": pull.merge_commit or None,
            "labels": _labels(dict.fromkeys(pull.labels, 1)),
            "assignees": [{"login": name} for name in self.assigned.get(pull.number, [])] or None,
            "requested_reviewers": [{"login": name} for name in pull.reviewers] or None,
            "base": {"ref": pull.base, "label": pull.base, "sha": self.branches[pull.base], "repo_id": NUMBER},
            "head": {
                "ref": pull.head,
                "label": pull.head,
                "sha": self.branches.get(pull.head, ""),
                "repo_id": FORK if pull.fork else NUMBER,
            },
        }


ROUTES: dict[tuple[str, str], Callable[..., Reply]] = {
    ("GET", r"branches/(.+)"): Gitea._branch,
    ("GET", r"pulls"): Gitea._list,
    ("POST", r"pulls"): Gitea._create,
    ("GET", r"pulls/(\d+)"): Gitea._one,
    ("PATCH", r"pulls/(\d+)"): Gitea._one,
    ("GET", r"labels"): Gitea._labels,
    ("POST", r"labels"): Gitea._labels,
    ("POST", r"issues/(\d+)/labels"): Gitea._set_labels,
    ("GET", r"pulls/(\d+)/reviews"): Gitea._reviews,
    ("POST", r"pulls/(\d+)/requested_reviewers"): Gitea._ask_reviewers,
    ("POST", r"pulls/(\d+)/merge"): Gitea._merge,
}


def _error(status: int, message: str) -> Reply:
    return Reply(status, {"message": message, "url": "https://gitea.example.com/api/swagger"})


def _labels(names: dict[str, int]) -> list[dict[str, Any]]:
    return [{"id": number, "name": name, "color": "5b6b7b"} for name, number in names.items()]
