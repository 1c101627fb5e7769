"""A fake of Bitbucket Cloud's REST API 2.0, covering what pull requests need.

Requests match Bitbucket's API description (tests/data/forges/bitbucket.json, compared on
2026-11-22). The fake has never been compared with a real server. The response formats are from
developer.atlassian.com/cloud/bitbucket/rest/api-group-pullrequests, and the query language is from
…/rest/intro/#filtering. A second POST for a branch that already has an open request is not an
error, but renames that request.
"""

import re
from typing import Any
from urllib.parse import urlencode

from fakes.forge_server import ForgeServer, Note, Pull, Reply, Request

WORKSPACE, SLUG = "acme", "deploy"
STATES = {"open": "OPEN", "merged": "MERGED", "closed": "DECLINED"}
ANN, BOB = "{11111111-1111-4111-8111-111111111111}", "{22222222-2222-4222-8222-222222222222}"
LONGEST_TITLE = 255
_TERM = re.compile(r'\s*([\w.]+) (=|!=) "((?:[^"\\]|\\.)*)"\s*')
_KEYS = {
    "title",
    "description",
    "source",
    "destination",
    "reviewers",
    "close_source_branch",
    "draft",
}


class BitbucketCloud(ForgeServer):
    """A repository in a workspace."""

    forge, api = "bitbucket", "/2.0"
    # The schema contains only the rendered form of a summary, but all clients send the text like
    # this.
    excused = ("('description' was unexpected)",)

    def __init__(self) -> None:
        super().__init__()
        self.people = {"ann": ANN, "bob": BOB}
        self.author = BOB
        self.page_size = 50
        self.can_list_members = True

    def answer(self, request: Request) -> Reply:
        ours = f"/2.0/repositories/{WORKSPACE}/{SLUG}"
        if request.path == f"/2.0/workspaces/{WORKSPACE}/members" and request.method == "GET":
            return self._members(request)
        if not request.path.startswith(f"{ours}/"):
            return _error(404, f"Repository {request.path} not found")
        return self._in_repository(request, request.path.removeprefix(f"{ours}/"))

    def _in_repository(self, request: Request, path: str) -> Reply:
        if path == "pullrequests":
            return self._list(request) if request.method == "GET" else self._create(request)
        if match := re.fullmatch(r"pullrequests/(\d+)", path):
            pull = self.pull(match[1])
            if pull is None:
                return _error(404, "Not found")
            return (
                Reply(200, self.shown(pull))
                if request.method == "GET"
                else self._change(request, pull)
            )
        if (match := re.fullmatch(r"pullrequests/(\d+)/decline", path)) and (
            pull := self.pull(match[1])
        ):
            if pull.state != "open":
                return _error(400, "This pull request is already closed.")
            self.decline(match[1])
            return Reply(200, self.shown(pull))
        if match := re.fullmatch(r"pullrequests/(\d+)/comments(?:/(\d+))?", path):
            pull = self.pull(match[1])
            return (
                self._comments(request, pull, match[2] or "") if pull else _error(404, "Not found")
            )
        if request.method == "GET" and path.startswith(("refs/branches/", "commit/")):
            return self._git(path)
        self.wrong.append(f"{request.method} {request.path} is not documented")
        return _error(404, "Not found")

    def _comments(self, request: Request, pull: Pull, number: str) -> Reply:
        """Handle a request for comments. Comments may be edited only by their authors. Deleted
        comments are still listed.
        """
        if request.method == "GET":
            found = [_comment(one) for one in self.notes if one.request == pull.number]
            self.require(request.one("sort") in ("", "created_on", "-created_on"), "sort")
            return self._page(
                request, found[::-1] if request.one("sort").startswith("-") else found
            )
        text = request.body["content"]["raw"]
        if not number:
            return Reply(201, _comment(self.say(pull.number, text)))
        if (note := self.note(number)) is None:
            return _error(404, "Not found")
        if note.author != "image-bot":
            return _error(403, "You do not have permission to edit this comment.")
        note.body = text
        return Reply(200, _comment(note))

    def _git(self, path: str) -> Reply:
        if path.startswith("refs/branches/"):
            tip = self.branches.get(path.removeprefix("refs/branches/"))
            return (
                Reply(200, {"type": "branch", "target": {"hash": tip}})
                if tip
                else _error(404, "No such branch")
            )
        wanted = path.removeprefix("commit/")
        full = next(one for one in self._commits() if one.startswith(wanted))
        return Reply(200, {"type": "commit", "hash": full})

    def _commits(self) -> list[str]:
        return [*self.branches.values(), *(pull.merge_commit for pull in self.pulls)]

    def _list(self, request: Request) -> Reply:
        self.require(
            set(request.query) <= {"q", "sort", "pagelen", "page", "state", "fields"},
            f"{request.query}",
        )
        self.require(int(request.one("pagelen", "10")) <= 50, "Invalid pagelen")
        terms = self._terms(request.one("q"))
        found = [
            pull
            for pull in self.pulls
            if all(any(self._holds(pull, *one) for one in each) for each in terms)
        ]
        if request.one("sort") in ("-created_on", "-id"):
            found.reverse()
        return self._page(request, [self.shown(pull, brief=True) for pull in found])

    def _terms(self, query: str) -> list[list[tuple[str, str, str]]]:
        """Parse a query into terms, all of which must be satisfied. Each term is a list of
        alternatives.
        """
        terms = []
        for part in query.split(" AND ") if query else []:
            choices = (
                part[1:-1].split(" OR ") if part.startswith("(") and part.endswith(")") else [part]
            )
            matches = [_TERM.fullmatch(choice) for choice in choices]
            self.require(all(matches), f"not BBQL: {query}")
            terms.append(
                [(one[1], one[2], re.sub(r"\\(.)", r"\1", one[3])) for one in matches if one]
            )
        return terms

    def _holds(self, pull: Pull, field: str, sign: str, value: str) -> bool:
        fields = {
            "source.repository.full_name": "somebody/fork" if pull.fork else f"{WORKSPACE}/{SLUG}",
            "source.branch.name": pull.head,
            "destination.branch.name": pull.base,
            "state": STATES[pull.state],
        }
        self.require(field in fields, f"{field} cannot be filtered by")
        return (fields.get(field) == value) == (sign == "=")

    def _page(self, request: Request, values: list[Any]) -> Reply:
        size = min(self.page_size, int(request.one("pagelen", "10")))
        page = int(request.one("page", "1"))
        body: dict[str, Any] = {
            "values": values[(page - 1) * size : page * size],
            "page": page,
            "pagelen": size,
        }
        if page * size < len(values):
            rest = {**{name: one[-1] for name, one in request.query.items()}, "page": str(page + 1)}
            body["next"] = f"{self.url}{request.path}?{urlencode(rest)}"
        return Reply(200, body)

    def _create(self, request: Request) -> Reply:
        body = request.body
        self.require(set(body) <= _KEYS, f"POST knows no {set(body) - _KEYS}")
        head, base = body["source"]["branch"]["name"], body["destination"]["branch"]["name"]
        if refusal := self._invalid(body):
            return refusal
        if head not in self.branches:
            return _error(
                400, f"source: branch not found: {head}", source=[f"branch not found: {head}"]
            )
        for pull in self.open:
            if (pull.head, pull.base, pull.fork) == (head, base, False):
                pull.title = body["title"]
                return Reply(201, self.shown(pull))
        pull = self.add(
            base=base,
            head=head,
            title=body["title"],
            body=body.get("description", ""),
            draft=body.get("draft", False),
            reviewers=[one["uuid"] for one in body.get("reviewers", [])],
        )
        return Reply(201, self.shown(pull))

    def _change(self, request: Request, pull: Pull) -> Reply:
        self.require(request.method == "PUT", f"{request.method} {request.path} is not documented")
        body = request.body
        self.require(set(body) <= _KEYS - {"source"}, f"PUT knows no {set(body)}")
        if pull.state != "open":
            return _error(400, "Can only update an open pull request.")
        if refusal := self._invalid(body):
            return refusal
        pull.title, pull.body = body.get("title", pull.title), body.get("description", pull.body)
        if "reviewers" in body:
            pull.reviewers = [one["uuid"] for one in body["reviewers"]]
        return Reply(200, self.shown(pull))

    def _invalid(self, body: dict[str, Any]) -> Reply | None:
        if "title" in body and not 0 < len(body["title"]) <= LONGEST_TITLE:
            return _error(
                400, "title: Bad request", title=["Ensure this value has at most 255 characters."]
            )
        for reviewer in body.get("reviewers", []):
            if (
                set(reviewer) not in ({"uuid"}, {"account_id"})
                or reviewer["uuid"] not in self.people.values()
            ):
                return _error(
                    400,
                    "reviewers: Malformed reviewers list",
                    reviewers=["Malformed reviewers list"],
                )
            if reviewer["uuid"] == self.author:
                said = "Bob is the author and cannot be included as a reviewer."
                return _error(400, f"reviewers: {said}", reviewers=[said])
        return None

    def _members(self, request: Request) -> Reply:
        if not self.can_list_members:
            return self.refusal("forbidden")
        (((field, sign, value),),) = self._terms(request.one("q"))
        self.require(
            (field, sign) in (("user.nickname", "="), ("user.account_id", "=")),
            f"members by {field}",
        )
        found = [
            {
                "type": "workspace_membership",
                "user": {"uuid": uuid, "nickname": name, "display_name": name.title()},
            }
            for name, uuid in self.people.items()
            if value == name
        ]
        return self._page(request, found)

    def shown(self, pull: Pull, *, brief: bool = False) -> dict[str, Any]:
        """Return a pull request as the API returns it. In lists, the reviewers are left out."""
        full_name = f"{WORKSPACE}/{SLUG}"
        people = {
            "reviewers": [{"uuid": uuid, "type": "user"} for uuid in pull.reviewers],
            "participants": [],
        }
        merged = {"hash": pull.merge_commit[:12]} if pull.merge_commit else None
        return {
            "type": "pullrequest",
            "id": pull.number,
            "title": pull.title,
            "description": pull.body,
            "summary": {"raw": pull.body, "markup": "markdown"},
            "state": STATES[pull.state],
            "draft": pull.draft,
            "author": {"uuid": self.author},
            "source": {
                "branch": {"name": pull.head},
                "commit": {"hash": self.branches.get(pull.head, "")[:12]},
                "repository": {"full_name": "somebody/fork" if pull.fork else full_name},
            },
            "destination": {"branch": {"name": pull.base}, "repository": {"full_name": full_name}},
            "merge_commit": merged,
            "links": {
                "html": {"href": f"https://bitbucket.org/{full_name}/pull-requests/{pull.number}"}
            },
            **({} if brief else people),
        }

    def refusal(self, kind: str) -> Reply:
        if kind == "unauthorized":
            return _error(401, "Token is invalid, expired, or not supported for this endpoint.")
        if kind == "forbidden":
            return _error(403, "Your credentials lack one or more required privilege scopes.")
        if kind == "limited":
            return _error(429, "Rate limit for this resource has been exceeded")
        if kind == "invalid":
            return _error(400, "title: This field is required.", title=["This field is required."])
        return Reply(503, "<html><body>Bitbucket is down</body></html>")


def _error(status: int, message: str, **fields: list[str]) -> Reply:
    more = {"fields": fields} if fields else {}
    return Reply(status, {"type": "error", "error": {"message": message, **more}})


def _comment(note: Note) -> dict[str, Any]:
    page = f"https://bitbucket.org/{WORKSPACE}/{SLUG}/pull-requests/{note.request}#comment-{note.number}"
    raw = {"type": "rendered", "raw": note.body, "markup": "markdown"}
    return {"id": note.number, "content": raw, "deleted": False, "links": {"html": {"href": page}}}
