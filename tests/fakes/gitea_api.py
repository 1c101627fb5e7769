"""A fake of Gitea's API v1, covering what pull requests need. It was compared with a real Gitea
1.26.0 on 2026-11-22.

tests/data/recorded/gitea-1.26 contains responses of the real server, and
tests/forges/test_gitea_recorded.py puts the fake into the same situations. The real server also
cancels an auto-merge on DELETE (tests/real). Only the timeline is taken from Gitea's source.
"""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from unicodedata import east_asian_width

from fakes.forge_server import ForgeServer, Note, Pull, Reply, Request

OWNER, REPO = "acme", "deploy"
NUMBER, FORK = 5, 6
STYLES = {"merge", "rebase", "rebase-merge", "squash", "fast-forward-only", "manually-merged"}
SWAGGER = "https://gitea.example.com/api/swagger"
STRANGER = "Only signed in user is allowed to call APIs."
PROHIBITED = "This account is prohibited from signing in, please contact your site administrator."


class Gitea(ForgeServer):
    """A repository."""

    login = "token good-token"
    forge, api = "gitea", "/api/v1"
    aside = ("/version",)
    excused = (
        "('Do' was unexpected)",
    )  # documented as `do` since 1.26, and as `Do` before that; 1.26 accepts both

    def __init__(self) -> None:
        super().__init__()
        self.people |= {"person": "", "stranger": "", "ci": ""}
        self.assigned: dict[int, list[str]] = {}
        self.teams: dict[int, list[str]] = {}
        self.known_teams = {"deployers", "ops"}
        self.tips: dict[int, str] = {}  # the latest tips of the requests' branches
        self.known_labels: dict[int, str] = {1: "deploy"}
        self.organization_labels: dict[int, str] = {90: "automatic"}
        self.passwords: dict[str, str] = {}  # the users' passwords, for Basic authentication
        self.old_names: set[str] = set()  # previous names of the repository
        self.sign_in_required = self.prohibited = False
        # The owner of the token, the token's scopes, and the owner's role in the repository.
        self.user, self.scopes, self.role = (
            "ci",
            ["write:issue", "write:repository", "read:user"],
            "write",
        )
        self.private = self.public_only = self.archived = self.without_pulls = False
        self.merging: set[int] = set()  # requests that will be merged after being read once more
        self.most = 50  # rows per page
        self.checks = "pending"  # "pending", "none", "forbidden"
        self.looks = 0  # how many more reads report that the server is still checking for conflicts
        self.conflicts = self.signs_not = self.fork_gone = False
        self.settings = {
            "allow_merge_commits": True, "allow_squash_merge": True, "allow_rebase": True,
            "allow_rebase_explicit": True, "allow_fast_forward_only_merge": True, "default_merge_style": "merge",
        }  # fmt: skip
        self.events: dict[int, list[dict[str, Any]]] = {}  # the timeline of each request
        self.now = datetime(2026, 11, 20, 10, tzinfo=UTC)

    def serve(self, request: Request) -> Reply:
        if request.path == "/api/v1/version":
            self.seen.append(request)
            if self.sign_in_required and not self._known(request):
                return Reply(403, {"message": STRANGER})
            return Reply(200, {"version": "1.26.0"})
        if "authorization" not in request.headers and not self.faults:
            with self.lock:
                self.seen.append(request)
                unseen = self.private or request.method == "GET"
                return (
                    NOT_FOUND
                    if unseen and request.method == "GET"
                    else _error(401, "token is required")
                )
        if self._known(request):
            request.headers["authorization"] = self.login
        return super().serve(request)

    def _known(self, request: Request) -> bool:
        """Return whether the login is valid: a token, a username with its password, or any username
        with a token.
        """
        given = request.headers.get("authorization", "")
        if not given.startswith("Basic "):
            return given == self.login
        user, _, password = base64.b64decode(given.removeprefix("Basic ")).decode().partition(":")
        return f"token {password}" == self.login or self.passwords.get(user) == password != ""

    def answer(self, request: Request) -> Reply:
        self._close_without_branch()
        path = request.path.removeprefix("/api/v1")
        if self.prohibited:
            return Reply(403, {"message": PROHIBITED})
        if refusal := self._out_of_scope(request.method, path):
            return refusal
        if match := re.fullmatch("/orgs/([^/]+)/labels", path):
            if match[1] != OWNER:
                said = f"user redirect does not exist [name: {match[1]}]"
                return Reply(404, {"errors": [said], "message": "GetOrgByName", "url": SWAGGER})
            return self._page(request, _labels(self.organization_labels))
        if path == "/user" and request.method == "GET":
            return Reply(200, {"id": 3, "login": self.user})
        for name in self.old_names:
            if path == f"/repos/{OWNER}/{name}" or path.startswith(f"/repos/{OWNER}/{name}/"):
                there = request.target.replace(f"/{OWNER}/{name}", f"/{OWNER}/{REPO}", 1)
                return Reply(301, "" if request.method == "GET" else None, (("Location", there),))
        ours = f"/repos/{OWNER}/{REPO}"
        if self.private and self.role == "none":
            return NOT_FOUND
        if path == ours:
            return Reply(200, {**self._repository(), "html_url": f"{self.url}/{OWNER}/{REPO}"})
        if not path.startswith(f"{ours}/") or (self.without_pulls and "/pulls" in path):
            return NOT_FOUND
        path = path.removeprefix(ours)[1:]
        for (method, route), work in ROUTES.items():
            if method == request.method and (match := re.fullmatch(route, path)):
                return work(self, request, *match.groups())
        self.wrong.append(f"{request.method} {request.path} is not documented")
        return NOT_FOUND

    def _out_of_scope(self, method: str, path: str) -> Reply | None:
        """Return an error if the token's scopes do not allow the request. Issues and labels have
        their own scope, but pull requests do not.
        """
        of_issues = "/issues/" in path or path.endswith("/labels")
        kind = (
            "organization"
            if path.startswith("/orgs/")
            else "user"
            if path == "/user"
            else "issue"
            if of_issues
            else "repository"
        )
        wanted = f"{'read' if method == 'GET' else 'write'}:{kind}"
        if not {wanted, wanted.replace("read:", "write:")} & set(self.scopes):
            said = f"token does not have at least one of required scope(s), required=[{wanted}]"
            return _error(403, f"{said}, token scope={','.join(self.scopes)}")
        return (
            _error(403, "token scope is limited to public repos")
            if self.public_only and self.private
            else None
        )

    def _close_without_branch(self) -> None:
        """Close the open pull requests whose branches were deleted, as the person who deleted them.
        The timeline contains both events.
        """
        for pull in self.pulls:
            tip = self.branches.get(pull.head)
            if tip:
                self.tips[pull.number] = tip
            elif pull.state == "open" and not pull.fork:
                pull.state = "closed"
                self.happened(pull, "close", "delete_branch")
            if pull.state == "open" and pull.fork and self.fork_gone:
                pull.state = "closed"

    def happened(self, pull: Pull, *kinds: str, user: str = "person", later: int = 60) -> None:
        """Add events to a request's timeline, all with the same time."""
        self.now += timedelta(seconds=later)
        at = self.now.isoformat().replace("+00:00", "Z")
        events = self.events.setdefault(pull.number, [])
        events += [{"id": len(events) + n, "type": kind, "user": {"login": user}, "created_at": at}
                   for n, kind in enumerate(kinds)]  # fmt: skip

    def decline(self, number: str) -> None:
        super().decline(number)
        pull = self.pull(number)
        assert pull is not None
        self.happened(pull, "close")

    def _page(self, request: Request, found: list[Any]) -> Reply:
        size, page = min(self.most, int(request.one("limit", "30"))), int(request.one("page", "1"))
        headers = [("X-Total-Count", str(len(found)))]
        if page * size < len(found):
            headers.append(("Link", f'<{self.url}{request.path}?page={page + 1}>; rel="next"'))
        return Reply(200, found[(page - 1) * size : page * size], tuple(headers))

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
        """Return the oldest pull request for these branches, in any state."""
        found = [one for one in self.pulls if (one.base, one.head, one.fork) == (base, head, False)]
        return Reply(200, self.shown(found[0])) if found else NOT_FOUND

    def _create(self, request: Request) -> Reply:
        body = request.body
        if self.archived:
            return _error(423, f"{OWNER}/{REPO} is archived")
        if self.role == "none":
            return _error(403, "user must be a collaborator")
        if not body["title"]:
            return _error(422, "[Title]: Required")
        if body["head"] == body["base"]:
            return _error(
                422, "Invalid PullRequest: There are no changes between the head and the base"
            )
        for branch in (body["head"], body["base"]):
            if branch not in self.branches:
                return NOT_FOUND
        for one in self.open:
            if (one.head, one.base, one.fork) == (body["head"], body["base"], False):
                said = f"[id: {40 + one.number}, issue_id: {one.number}, head_repo_id: {NUMBER}, base_repo_id: {NUMBER}"
                said = f"{said}, head_branch: {one.head}, base_branch: {one.base}]"
                return _error(409, f"pull request already exists for these targets {said}")
        pull = self.add(
            base=body["base"], head=body["head"], title=_cut(body["title"]), body=body["body"]
        )
        return Reply(201, self.shown(pull))

    def _one(self, request: Request, number: str) -> Reply:
        if (pull := self.pull(number)) is None:
            return NOT_FOUND
        if request.method == "GET":
            reply = Reply(200, self.shown(pull))
            self.looks -= self.looks > 0
            if pull.number in self.merging:
                self.merging.remove(pull.number)
                self.merge(number)
                if (
                    pull.auto
                    and pull.auto["delete_branch_after_merge"]
                    and isinstance(self.branches, dict)
                ):
                    self.branches.pop(pull.head, None)
            return reply
        body = request.body
        for name in body.get("assignees", []):
            if name not in self.people:
                return _error(
                    422,
                    f"Assignee does not exist: [name: user does not exist [uid: 0, name: {name}]]",
                )
        pull.title, pull.body = _cut(body.get("title") or pull.title), body.get("body", pull.body)
        if body.get("state") == "closed" and pull.state == "open":
            self.decline(number)
        self.assigned[pull.number] = body.get("assignees", self.assigned.get(pull.number, []))
        return Reply(201, self.shown(pull))

    def _labels(self, request: Request) -> Reply:
        """Handle a request for labels. Two labels may have the same name."""
        if request.method == "GET":
            return self._page(request, _labels(self.known_labels))
        self.require(re.fullmatch("#[0-9a-f]{6}", request.body["color"]), "POST labels: color")
        if self.role != "write":
            return _error(403, "user should have a permission to write to a repo")
        self.known_labels[10 + len(self.known_labels)] = request.body["name"]
        return Reply(201, _labels(self.known_labels)[-1])

    def _set_labels(self, request: Request, number: str) -> Reply:
        """Add labels by number or by name. Names are case-sensitive, and unknown labels are
        ignored.
        """
        if (pull := self.pull(number)) is None:
            return NOT_FOUND
        if self.role != "write":
            return _error(403, "write permission is required")
        wanted = request.body["labels"]
        if len({type(one) for one in wanted}) > 1:
            return _error(400, "labels should be an array of strings or integers")
        for one, name in {**self.organization_labels, **self.known_labels}.items():
            if (one in wanted or name in wanted) and name not in pull.labels:
                pull.labels.append(name)
        known = {**self.known_labels, **self.organization_labels}
        there = [(one, name) for one, name in known.items() if name in pull.labels]
        return Reply(200, _labels(dict(sorted(there, key=lambda pair: pair[1]))))

    def _timeline(self, request: Request, number: str) -> Reply:
        since = request.one("since", "1970-01-01T00:00:00Z")
        return Reply(
            200, [one for one in self.events.get(int(number), []) if one["created_at"] >= since]
        )

    def _comments(self, request: Request, number: str) -> Reply:
        """Handle a request for comments. All are returned at once, oldest first."""
        if (pull := self.pull(number)) is None:
            return NOT_FOUND
        if request.method == "POST":
            return Reply(201, self._comment(self.say(pull.number, request.body["body"])))
        return Reply(200, [self._comment(one) for one in self.notes if one.request == pull.number])

    def _change_comment(self, request: Request, number: str) -> Reply:
        if (note := self.note(number)) is None:
            return NOT_FOUND
        note.body = request.body["body"]
        return Reply(200, self._comment(note))

    def _comment(self, note: Note) -> dict[str, Any]:
        ours = note.author == "image-bot"
        page = f"https://gitea.example.com/{OWNER}/{REPO}/pulls/{note.request}#issuecomment-{note.number}"
        user = {"id": 3 if ours else 4, "login": self.user if ours else note.author}
        return {"id": note.number, "body": note.body, "html_url": page, "user": user}

    def _reviews(self, request: Request, number: str) -> Reply:
        pull = self.pull(number)
        assert pull is not None
        asked = [_review(name) for name in pull.reviewers]
        return self._page(
            request, asked + [_review(team=name) for name in self.teams.get(pull.number, [])]
        )

    def _ask_reviewers(self, request: Request, number: str) -> Reply:
        """Request reviews from all of these reviewers or none. The response leaves out those who
        had already been requested.
        """
        pull = self.pull(number)
        assert pull is not None
        people, teams = request.body.get("reviewers", []), request.body.get("team_reviewers", [])
        for name in people:
            if name not in self.people:
                return Reply(404, {**NOT_FOUND.body, "message": f"User '{name}' not exist"})
            if name == self.user:
                return _error(
                    422, f"poster of pr can't be reviewer [user_id: 3, repo_id: {NUMBER}]"
                )
            if name == "stranger" and self.private:
                return _error(422, f"Reviewer can't read [user_id: 3, repo_id: {NUMBER}]")
        if unknown := [name for name in teams if name not in self.known_teams]:
            return Reply(404, {**NOT_FOUND.body, "message": f"Team '{unknown[0]}' not exist"})
        has = self.teams.setdefault(pull.number, [])
        new, new_teams = ([one for one in some if one not in there]
                          for some, there in ((people, pull.reviewers), (teams, has)))  # fmt: skip
        pull.reviewers += new
        has += new_teams
        return Reply(
            201, [*(_review(name) for name in new), *(_review(team=name) for name in new_teams)]
        )

    def _merge(self, request: Request, number: str) -> Reply:
        """Schedule or cancel an auto-merge, which is not tied to one commit.

        Disabled merge styles and missing approvals are accepted.
        """
        pull = self.pull(number)
        assert pull is not None
        if request.method == "DELETE":
            found, pull.auto = pull.auto, None
            return NOT_FOUND if found is None else Reply(204)
        body = request.body
        self.require(
            body["Do"] in STYLES and body["merge_when_checks_succeed"] is True, f"merge: {body}"
        )
        if pull.state == "merged":
            return _error(405, "The PR is already merged")
        if self.checks == "forbidden" or self.role != "write":
            return _error(405, "User not allowed to merge PR")
        if _draft(pull):
            return _error(405, "Work in progress PRs cannot be merged")
        if self.looks or self.conflicts:
            self.looks -= self.looks > 0
            return _error(405, "Please try again later")
        if self.signs_not:
            return _error(405, "wont sign: nokey")
        if pull.auto is not None:
            return _error(
                409,
                "pull request is already scheduled to auto merge when checks succeed [pull_id: 1]",
            )
        pull.auto = body
        if self.checks == "none":  # it is merged a moment later, within three seconds
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

    def _repository(self) -> dict[str, Any]:
        return {
            "id": NUMBER, "full_name": f"{OWNER}/{REPO}", "archived": self.archived, "private": self.private,
            **self.settings,
        }  # fmt: skip

    def shown(self, pull: Pull, *, brief: bool = False) -> dict[str, Any]:
        """Return a pull request as the API returns it. If it is part of a list, its own empty lists
        are null.
        """
        there = not self.fork_gone if pull.fork else pull.head in self.branches
        none: list[Any] | None = None if brief else []
        ours = (-1 if self.fork_gone else FORK) if pull.fork else NUMBER
        if there and not pull.fork:
            self.tips[pull.number] = self.branches[pull.head]
        fork = None if self.fork_gone else {"id": FORK, "full_name": f"stranger/{REPO}"}
        closed = [
            one["created_at"] for one in self.events.get(pull.number, []) if one["type"] == "close"
        ]
        return {
            "id": 100 + pull.number,
            "number": pull.number,
            "html_url": f"https://gitea.example.com/{OWNER}/{REPO}/pulls/{pull.number}",
            "title": pull.title,
            "body": pull.body,
            "state": "open" if pull.state == "open" else "closed",
            "closed_at": None
            if pull.state == "open"
            else closed[-1]
            if closed
            else "2026-11-20T10:00:00Z",
            "draft": _draft(pull),
            "merged": pull.state == "merged",
            "mergeable": pull.state != "open" or not (self.conflicts or _draft(pull) or self.looks),
            "merge_commit_sha": pull.merge_commit or None,
            "labels": _labels(dict(enumerate(pull.labels))),
            "assignees": [{"login": name} for name in self.assigned.get(pull.number, [])] or none,
            "requested_reviewers": [{"login": name} for name in pull.reviewers] or none,
            "requested_reviewers_teams": [
                {"name": name} for name in self.teams.get(pull.number, [])
            ]
            or none,
            "base": {
                "ref": pull.base,
                "label": pull.base,
                "sha": self.branches.get(pull.base, "0" * 40),
                "repo_id": NUMBER,
                "repo": self._repository(),
            },
            "head": {
                "ref": pull.head if there else f"refs/pull/{pull.number}/head",
                "label": pull.head,
                "sha": self.tips.get(pull.number, ""),
                "repo_id": ours,
                "repo": fork if pull.fork else self._repository(),
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
    ("GET", r"issues/(\d+)/timeline"): Gitea._timeline,
    ("GET", r"issues/(\d+)/comments"): Gitea._comments,
    ("POST", r"issues/(\d+)/comments"): Gitea._comments,
    ("PATCH", r"issues/comments/(\d+)"): Gitea._change_comment,
    ("GET", r"pulls/(\d+)/reviews"): Gitea._reviews,
    ("POST", r"pulls/(\d+)/requested_reviewers"): Gitea._ask_reviewers,
    ("POST", r"pulls/(\d+)/merge"): Gitea._merge,
    ("DELETE", r"pulls/(\d+)/merge"): Gitea._merge,
}


def _draft(pull: Pull) -> bool:
    return pull.title.startswith(("WIP:", "[WIP]"))


def _cut(title: str) -> str:
    """Truncate a title to 255 columns. Wide letters take up two columns. Longer titles are not an
    error.
    """
    if sum(map(_columns, title)) <= 255:
        return title
    kept = ""
    for letter in title:
        if sum(map(_columns, kept + letter)) > 252:
            break
        kept += letter
    return f"{kept}…"


def _columns(letter: str) -> int:
    return 2 if east_asian_width(letter) in "WF" else 1


def _error(status: int, message: str) -> Reply:
    return Reply(status, {"message": message, "url": SWAGGER})


NOT_FOUND = Reply(404, {"errors": None, "message": "not found", "url": SWAGGER})


def _labels(names: dict[int, str]) -> list[dict[str, Any]]:
    return [{"id": number, "name": name, "color": "5b6b7b"} for number, name in names.items()]


def _review(user: str = "", team: str = "") -> dict[str, Any]:
    """Return a review that was requested, but not submitted yet."""
    who = {"user": {"login": user} if user else None, "team": {"name": team} if team else None}
    return {**who, "state": "REQUEST_REVIEW"}
