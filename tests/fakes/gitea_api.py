"""Gitea's API v1, as far as pull requests go. Compared with a real Gitea 1.26.0, November 2026: states, words, shapes.

What it does that its description does not say: a deleted branch closes the open request, and only `head.label` keeps
the branch's name; labels are taken by name, and unknown ones passed over; titles are cut; an empty request is opened;
a renamed repository answers 301 whatever the method.
"""

import base64
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
        self.tips: dict[int, str] = {}  # of the requests' branches, as long as they were there
        self.known_labels: dict[int, str] = {1: "deploy"}
        self.organization_labels: dict[int, str] = {90: "automatic"}
        self.reads_organization = False  # the scope read:organization, which nobody is asked to give
        self.passwords: dict[str, str] = {}  # of users, for Basic
        self.old_names: set[str] = set()  # names that the repository had before
        self.sign_in_required = False
        self.merging: set[int] = set()  # what is merged after it was looked at once more
        self.most = 50  # rows of a page
        self.checks = "pending"  # "pending", "none", "forbidden"
        self.looks = 0  # how often it still looks for conflicts
        self.conflicts = False
        self.settings = {"allow_merge_commits": True, "allow_squash_merge": True, "default_merge_style": "merge"}

    def serve(self, request: Request) -> Reply:
        if request.path == "/api/v1/version":
            self.seen.append(request)
            if self.sign_in_required and not self._known(request):
                return Reply(403, {"message": "Only signed in user is allowed to call APIs."})
            return Reply(200, {"version": "1.26.0"})
        if self._known(request):
            request.headers["authorization"] = self.login
        return super().serve(request)

    def _known(self, request: Request) -> bool:
        """A token; or a name with a password, or with a token as the password, whatever the name is."""
        given = request.headers.get("authorization", "")
        if not given.startswith("Basic "):
            return given == self.login
        user, _, password = base64.b64decode(given.removeprefix("Basic ")).decode().partition(":")
        return f"token {password}" == self.login or self.passwords.get(user) == password != ""

    def answer(self, request: Request) -> Reply:
        self._close_without_branch()
        path = request.path.removeprefix("/api/v1")
        if path == f"/orgs/{OWNER}/labels":
            if not self.reads_organization:
                said = "token does not have at least one of required scope(s), required=[read:organization]"
                return _error(403, f"{said}, token scope=write:issue,write:repository,read:user")
            return self._page(request, _labels(self.organization_labels))
        for name in self.old_names:
            if path == f"/repos/{OWNER}/{name}" or path.startswith(f"/repos/{OWNER}/{name}/"):
                there = request.target.replace(f"/{OWNER}/{name}", f"/{OWNER}/{REPO}", 1)
                return Reply(301, "" if request.method == "GET" else None, (("Location", there),))
        ours = f"/repos/{OWNER}/{REPO}"
        if path == ours:
            web = f"{self.url}/{OWNER}/{REPO}"
            return Reply(200, {"id": NUMBER, "full_name": f"{OWNER}/{REPO}", "html_url": web, **self.settings})
        if not path.startswith(f"{ours}/"):
            return NOT_FOUND
        path = path.removeprefix(ours)[1:]
        for (method, route), work in ROUTES.items():
            if method == request.method and (match := re.fullmatch(route, path)):
                return work(self, request, *match.groups())
        self.wrong.append(f"{request.method} {request.path} is not documented")
        return NOT_FOUND

    def _close_without_branch(self) -> None:
        """Deleting the branch of an open request closes it; nothing tells that from a person who closed it."""
        for pull in self.pulls:
            tip = self.branches.get(pull.head)
            if tip:
                self.tips[pull.number] = tip
            elif pull.state == "open" and not pull.fork:
                pull.state = "closed"

    def _page(self, request: Request, found: list[Any]) -> Reply:
        known = {"page", "limit", "state", "sort", "base_branch"}
        self.require(set(request.query) <= known, f"{request.query}")
        size, page = min(self.most, int(request.one("limit", "30"))), int(request.one("page", "1"))
        return Reply(200, found[(page - 1) * size : page * size], (("X-Total-Count", str(len(found))),))

    def _branch(self, _request: Request, name: str) -> Reply:
        tip = self.branches.get(name)
        found = {"name": name, "commit": {"id": tip, "message": ""}, "protected": False}
        return Reply(200, found) if tip else NOT_FOUND

    def _list(self, request: Request) -> Reply:
        state = request.one("state", "open")
        self.require(state in ("open", "closed", "all"), f"state={state}")
        found = [
            self.shown(one, brief=True)
            for one in reversed(self.pulls)
            if (state == "all" or (one.state == "open") == (state == "open"))
            and request.one("base_branch", one.base) == one.base
        ]
        return self._page(request, found)

    def _by_ends(self, _request: Request, base: str, head: str) -> Reply:
        """Of several the oldest, whatever its state."""
        found = [one for one in self.pulls if (one.base, one.head, one.fork) == (base, head, False)]
        return Reply(200, self.shown(found[0])) if found else NOT_FOUND

    def _create(self, request: Request) -> Reply:
        body = request.body
        self.require(set(body) <= CREATE, f"POST pulls knows no {set(body) - CREATE}")
        if not body["title"]:
            return _error(422, "[Title]: Required")
        if body["head"] == body["base"]:
            return _error(422, "Invalid PullRequest: There are no changes between the head and the base")
        for branch in (body["head"], body["base"]):
            if branch not in self.branches:
                return NOT_FOUND
        for one in self.open:
            if (one.head, one.base, one.fork) == (body["head"], body["base"], False):
                said = f"[id: {40 + one.number}, issue_id: {one.number}, head_repo_id: {NUMBER}, base_repo_id: {NUMBER}"
                said = f"{said}, head_branch: {one.head}, base_branch: {one.base}]"
                return _error(409, f"pull request already exists for these targets {said}")
        pull = self.add(base=body["base"], head=body["head"], title=_cut(body["title"]), body=body["body"])
        return Reply(201, self.shown(pull))

    def _one(self, request: Request, number: str) -> Reply:
        if (pull := self.pull(number)) is None:
            return NOT_FOUND
        if request.method == "GET":
            reply = Reply(200, self.shown(pull))
            if pull.number in self.merging:
                self.merging.remove(pull.number)
                self.merge(number)
            return reply
        body = request.body
        self.require(set(body) <= EDIT, f"PATCH pulls knows no {set(body) - EDIT}")
        for name in body.get("assignees", []):
            if name not in self.people:
                return _error(422, f"Assignee does not exist: [name: user does not exist [uid: 0, name: {name}]]")
        pull.title, pull.body = _cut(body.get("title") or pull.title), body.get("body", pull.body)
        self.assigned[pull.number] = body.get("assignees", self.assigned.get(pull.number, []))
        return Reply(201, self.shown(pull))

    def _labels(self, request: Request) -> Reply:
        """One is made although there is one of that name."""
        if request.method == "GET":
            return self._page(request, _labels(self.known_labels))
        self.require(set(request.body) == {"name", "color"}, f"POST labels: {set(request.body)}")
        self.require(re.fullmatch("#[0-9a-f]{6}", request.body["color"]), "POST labels: color")
        self.known_labels[10 + len(self.known_labels)] = request.body["name"]
        return Reply(201, _labels(self.known_labels)[-1])

    def _set_labels(self, request: Request, number: str) -> Reply:
        """By numbers or by names; what is not known is passed over, and names in other letters are not."""
        if (pull := self.pull(number)) is None:
            return NOT_FOUND
        wanted = request.body["labels"]
        if len({type(one) for one in wanted}) > 1:
            return _error(400, "labels should be an array of strings or integers")
        for one, name in {**self.organization_labels, **self.known_labels}.items():
            if (one in wanted or name in wanted) and name not in pull.labels:
                pull.labels.append(name)
        return Reply(200, _labels(dict(enumerate(pull.labels))))

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
                return Reply(404, {**NOT_FOUND.body, "message": f"User '{name}' not exist"})
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
        if pull.state == "merged":
            return _error(405, "The PR is already merged")
        if pull.auto is not None:
            return _error(409, "pull request is already scheduled to auto merge when checks succeed [pull_id: 1]")
        pull.auto = body
        if self.checks == "none":  # a moment later: within three seconds
            self.merging.add(pull.number)
        return Reply(201)

    def refusal(self, kind: str) -> Reply:
        return {
            "unauthorized": _error(401, "invalid username, password or token"),
            "forbidden": _error(
                403,
                "token does not have at least one of required scope(s), required=[write:repository], "
                "token scope=read:repository",
            ),
            "limited": _error(429, "Too many requests"),
            "invalid": _error(422, "[Title]: Required"),
            "down": Reply(502, "<html><body>Bad Gateway</body></html>"),
        }[kind]

    def shown(self, pull: Pull, *, brief: bool = False) -> dict[str, Any]:
        """A pull request as the API shows it; in a list, empty lists are null."""
        draft = pull.title.startswith(("WIP:", "[WIP]"))
        there = pull.head in self.branches
        none: list[Any] | None = None if brief else []
        repository = {"id": NUMBER, "full_name": f"{OWNER}/{REPO}"}
        ours = FORK if pull.fork else NUMBER
        if there:
            self.tips[pull.number] = self.branches[pull.head]
        return {
            "id": 100 + pull.number,
            "number": pull.number,
            "html_url": f"https://gitea.example.com/{OWNER}/{REPO}/pulls/{pull.number}",
            "title": pull.title,
            "body": pull.body,
            "state": "open" if pull.state == "open" else "closed",
            "draft": draft,
            "merged": pull.state == "merged",
            "mergeable": pull.state != "open" or not (self.conflicts or draft or self.looks),
            "merge_commit_sha": pull.merge_commit or None,
            "labels": _labels(dict(enumerate(pull.labels))),
            "assignees": [{"login": name} for name in self.assigned.get(pull.number, [])] or none,
            "requested_reviewers": [{"login": name} for name in pull.reviewers] or none,
            "requested_reviewers_teams": [{"name": name} for name in self.teams.get(pull.number, [])] or none,
            "base": {
                "ref": pull.base,
                "label": pull.base,
                "sha": self.branches[pull.base],
                "repo_id": NUMBER,
                "repo": repository,
            },
            "head": {
                "ref": pull.head if there else f"refs/pull/{pull.number}/head",
                "label": pull.head,
                "sha": self.tips.get(pull.number, ""),
                "repo_id": ours,
                "repo": {**repository, "id": ours},
            },
        }


ROUTES: dict[tuple[str, str], Callable[..., Reply]] = {
    ("GET", r"branches/(.+)"): Gitea._branch,
    ("GET", r"pulls"): Gitea._list,
    ("POST", r"pulls"): Gitea._create,
    ("GET", r"pulls/(\d+)"): Gitea._one,
    ("PATCH", r"pulls/(\d+)"): Gitea._one,
    ("GET", r"pulls/([^/]+)/(?!reviews$)(.+)"): Gitea._by_ends,
    ("GET", r"labels"): Gitea._labels,
    ("POST", r"labels"): Gitea._labels,
    ("POST", r"issues/(\d+)/labels"): Gitea._set_labels,
    ("GET", r"pulls/(\d+)/reviews"): Gitea._reviews,
    ("POST", r"pulls/(\d+)/requested_reviewers"): Gitea._ask_reviewers,
    ("POST", r"pulls/(\d+)/merge"): Gitea._merge,
}


def _cut(title: str) -> str:
    """A title that is too long is no error."""
    return title if len(title) <= 255 else f"{title[:252]}…"


def _error(status: int, message: str) -> Reply:
    return Reply(status, {"message": message, "url": "https://gitea.example.com/api/swagger"})


NOT_FOUND = Reply(404, {"errors": None, "message": "not found", "url": "https://gitea.example.com/api/swagger"})


def _labels(names: dict[int, str]) -> list[dict[str, Any]]:
    return [{"id": number, "name": name, "color": "5b6b7b"} for number, name in names.items()]
