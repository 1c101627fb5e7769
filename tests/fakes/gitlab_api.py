"""A fake of GitLab's REST API v4, covering what merge requests need.

Requests match those of GitLab's own Go client (tests/data/forges/gitlab.json, compared on
2026-11-22). The response formats and error messages are from docs.gitlab.com/api/merge_requests,
/api/branches, /api/users, and /api/rest, and from recordings of GitLab 17. The effects of a push
are from GitLab's source code.
"""

from typing import Any
from urllib.parse import quote

from fakes.forge_server import ForgeServer, Note, Pull, Reply, Request, Shown

PROJECT = "acme/team/deploy"
NUMBER, FORK = 42, 43
ME = "77"
STATES = {"open": "opened", "merged": "merged", "closed": "closed"}


class GitLab(ForgeServer):
    """A project."""

    forge, api = "gitlab", "/api/v4"
    aside = ("/version",)

    def __init__(self) -> None:
        super().__init__()
        self.people = {"ann": "7", "bob": "8"}
        self.removes: dict[int, bool] = {}
        self.assigned: dict[int, list[str]] = {}
        self.premium = True
        self.looks = 0  # how many more reads report a request as "checking"
        # "running", "none", "required" (missing, but required by the project), "forbidden"
        self.pipeline = "running"
        self.trains = False
        self.conflicts = False
        self.links: dict[int, str] = {}  # the URLs of the environments
        self.old_names: set[str] = set()  # previous paths of the project

    def answer(self, request: Request) -> Reply:
        self._refresh()
        path = request.path.removeprefix("/api/v4")
        if path == "/users" and request.method == "GET":
            self.require(set(request.query) == {"username"}, f"users by {request.query}")
            name = request.one("username").lower()
            return Reply(
                200, [_user(one, number) for one, number in self.people.items() if one == name]
            )
        if path == "/user" and request.method == "GET":
            return Reply(200, _user("image-bot", ME))
        for name in self.old_names:
            if path.startswith(f"/projects/{name}"):
                if request.method != "GET":
                    return _error(405, "Non GET methods are not allowed for moved projects")
                there = request.target.replace(quote(name, safe=""), str(NUMBER), 1)
                return Reply(301, None, (("Location", f"{self.url}{there}"),))
        if path == f"/projects/{PROJECT}":
            return Reply(200, {"id": NUMBER, "merge_trains_enabled": self.trains})
        if path == f"/projects/{NUMBER}":
            return Reply(200, {"id": NUMBER, "web_url": f"{self.url}/{PROJECT}"})
        path = path.replace(f"/projects/{NUMBER}/", f"/projects/{PROJECT}/", 1)
        ours = f"/projects/{PROJECT}/"
        if not path.startswith(ours):
            return _error(404, "404 Project Not Found")
        path = path.removeprefix(ours)
        if path.startswith("repository/branches/") and request.method == "GET":
            name = path.removeprefix("repository/branches/")
            tip = self.branches.get(name)
            found = {"name": name, "commit": {"id": tip}, "protected": False}
            return Reply(200, found) if tip else _error(404, "404 Branch Not Found")
        if path.startswith(("deployments", "environments/")):
            return self._deployments(request, *path.split("/")[:2])
        if path == "merge_requests":
            return self._list(request) if request.method == "GET" else self._create(request)
        if path.startswith("merge_trains/merge_requests/") and request.method == "POST":
            return self._join_train(request, path.rpartition("/")[2])
        _, number, *rest = path.split("/")
        if (pull := self.pull(number)) is None:
            return _error(404, "404 Not found")
        if rest[:1] == ["notes"]:
            return self._notes(request, pull, rest[1:])
        if rest == ["merge"] and request.method == "PUT":
            return self._merge(request, pull)
        if not rest and request.method == "GET":
            self.looks -= self.looks > 0
            return Reply(200, self.shown(pull))
        if not rest and request.method == "PUT":
            return self._change(request, pull)
        self.wrong.append(f"{request.method} {request.path} is not documented")
        return _error(404, "404 Not found")

    def _join_train(self, request: Request, number: str) -> Reply:
        """Add a request to the merge train, either at once or (with a 202) when its pipeline
        succeeds.
        """
        if not self.trains:
            return _error(403, "403 Forbidden")
        if (pull := self.pull(number)) is None:
            return _error(404, "404 Not found")
        if request.body.get("sha") != self.branches.get(pull.head):
            return _error(409, "SHA does not match HEAD of source branch")
        waits = request.body.get("auto_merge") or request.body.get("when_pipeline_succeeds")
        if self.conflicts or bool(waits) is not (self.pipeline == "running"):
            return _error(400, "400 Bad request - Failed to merge")
        pull.auto = {"train": True, **request.body}
        return Reply(202 if waits else 201, [{"id": 267, "merge_request": {"iid": pull.number}}])

    def _refresh(self) -> None:
        """Do what GitLab's RefreshService does after a push: cancel auto-merges, and close requests
        whose branches are gone.
        """
        for pull in self.open:
            if pull.auto and self.branches.get(pull.head) != pull.auto["sha"]:
                pull.auto = None
            if not pull.fork and pull.head not in self.branches:
                pull.state = "closed"

    def _list(self, request: Request) -> Reply:
        state = request.one("state", "all")
        self.require(state in ("all", "opened", "closed", "locked", "merged"), f"state={state}")
        found = [
            one for one in self.pulls
            if request.one("source_branch", one.head) == one.head
            and request.one("target_branch", one.base) == one.base
            and state in ("all", STATES[one.state])
        ]  # fmt: skip
        if request.one("sort", "desc") == "desc":
            found.reverse()
        return Reply(200, [self.shown(one) for one in found[: int(request.one("per_page", "20"))]])

    def _deployments(self, request: Request, kind: str, number: str = "") -> Reply:
        """Handle a request for deployments. A deployment with a `deployable` belongs to a job, and
        only that job may change it.
        """
        body = request.body
        if request.method == "GET":
            self.require(
                request.one("order_by") in ("id", "iid", "created_at", "finished_at", "ref"),
                "order_by",
            )
            found = [
                one
                for one in reversed(self.deployments)
                if one.environment == request.one("environment")
            ]
            return Reply(
                200, [self._deployment(one) for one in found[: int(request.one("per_page", "20"))]]
            )
        if not number:
            missing = [
                name for name in ("environment", "sha", "ref", "tag", "status") if name not in body
            ]
            self.require(not missing, f"a deployment without {missing}")
            self.require(
                body["status"] in ("running", "success", "failed", "canceled"),
                f"status={body['status']}",
            )
            if body["sha"] not in self.commits:
                return _error(400, {"sha": ["The commit does not exist"]})
            return Reply(
                201, self._deployment(self.deploy(body["environment"], body["sha"], body["status"]))
            )
        if kind == "environments":
            self.links[int(number)] = body["external_url"]
            return Reply(200, {"id": int(number), "external_url": body["external_url"]})
        (one,) = [one for one in self.deployments if str(one.number) == number]
        if not one.ours:
            return _error(403, "403 Forbidden")
        if one.states[-1] not in ("created", "running"):
            return _error(400, "Cannot transition status")
        one.states.append(body["status"])
        return Reply(200, self._deployment(one))

    def _deployment(self, one: Shown) -> dict[str, Any]:
        names = list(dict.fromkeys(each.environment for each in self.deployments))
        number = 500 + names.index(one.environment)
        environment = {
            "id": number,
            "name": one.environment,
            "external_url": self.links.get(number),
        }
        job = None if one.ours else {"id": 1}
        return {
            "id": one.number, "sha": one.commit, "status": one.states[-1], "environment": environment,
            "deployable": job,
        }  # fmt: skip

    def _notes(self, request: Request, pull: Pull, rest: list[str]) -> Reply:
        """Handle a request for comments, including GitLab's own notes."""
        if request.method == "GET":
            found = [one for one in self.notes if one.request == pull.number]
            self.require(
                request.one("order_by") == "created_at", f"order_by={request.one('order_by')}"
            )
            if request.one("sort", "desc") == "desc":
                found.reverse()
            size, page = int(request.one("per_page", "20")), int(request.one("page", "1"))
            return Reply(200, [_note(one) for one in found[(page - 1) * size : page * size]])
        if not rest:
            return Reply(201, _note(self.say(pull.number, request.body["body"])))
        if (note := self.note(rest[0])) is None:
            return _error(404, "404 Note Not Found")
        note.body = request.body["body"]
        return Reply(200, _note(note))

    def _create(self, request: Request) -> Reply:
        body = request.body
        if len(body["title"]) > 255:
            return _error(400, {"title": ["is too long (maximum is 255 characters)"]})
        for branch in ("source_branch", "target_branch"):
            if body[branch] not in self.branches:
                return _error(400, {branch: [f"{branch} does not exist"]})
        for one in self.open:
            if (one.head, one.base, one.fork) == (
                body["source_branch"],
                body["target_branch"],
                False,
            ):
                said = f"Another open merge request already exists for this source branch: !{one.number}"
                return _error(409, [said])
        pull = self.add(
            base=body["target_branch"],
            head=body["source_branch"],
            title=body["title"],
            body=body["description"],
        )
        self.removes[pull.number] = body.get("remove_source_branch", False)
        return Reply(201, self.shown(pull))

    def _change(self, request: Request, pull: Pull) -> Reply:
        body = request.body
        self.require(body, "PUT changes nothing")
        if len(body.get("title", "")) > 255:
            return _error(400, {"title": ["is too long (maximum is 255 characters)"]})
        pull.title, pull.body = body.get("title", pull.title), body.get("description", pull.body)
        self.require(
            body.get("state_event", "close") == "close", f"state_event={body.get('state_event')}"
        )
        if "state_event" in body and pull.state == "open":
            self.decline(str(pull.number))
        pull.labels += [
            one for one in body.get("add_labels", "").split(",") if one and one not in pull.labels
        ]
        names = {int(number): name for name, number in self.people.items()}
        most = None if self.premium else 1
        if "reviewer_ids" in body:
            pull.reviewers = [names[one] for one in body["reviewer_ids"]][:most]
        if "assignee_ids" in body:
            self.assigned[pull.number] = [names[one] for one in body["assignee_ids"]][:most]
        return Reply(200, self.shown(pull))

    def _merge(self, request: Request, pull: Pull) -> Reply:
        if request.body.get("sha") != self.branches.get(pull.head):
            return _error(
                409, "SHA does not match HEAD of source branch: " + self.branches[pull.head]
            )
        if self.pipeline == "forbidden":
            return _error(401, "401 Unauthorized")
        if self.looks or self.conflicts or pull.title.startswith("Draft:"):
            self.looks -= self.looks > 0
            return _error(405, "405 Method Not Allowed")
        waits = request.body.get("auto_merge", False)
        self.require(waits or self.pipeline != "running", "auto_merge: true where a pipeline runs")
        if self.pipeline in ("none", "required") and (waits or self.pipeline == "required"):
            return _error(405, "405 Method Not Allowed")
        if waits:
            pull.auto = request.body
        else:
            self.merge(str(pull.number))
        return Reply(200, self.shown(pull))

    def refusal(self, kind: str) -> Reply:
        return {
            "unauthorized": _error(401, "401 Unauthorized"),
            "forbidden": _error(403, "403 Forbidden"),
            "limited": Reply(
                429, {"message": {"error": "You have been rate limited. Try again later."}}
            ),
            "invalid": _error(422, {"title": ["is too long (maximum is 255 characters)"]}),
            "down": Reply(502, "<html><head><title>GitLab is not responding</title></head></html>"),
        }[kind]

    def shown(self, pull: Pull) -> dict[str, Any]:
        """Return a merge request as the API returns it."""
        status = "checking" if self.looks else "conflict" if self.conflicts else "mergeable"
        if self.pipeline == "required":
            status = "ci_must_pass"
        if self.trains and self.pipeline == "running":
            status = "ci_still_running"
        return {
            "id": 1000 + pull.number,
            "iid": pull.number,
            "project_id": NUMBER,
            "title": pull.title,
            "description": pull.body,
            "state": STATES[pull.state],
            "target_branch": pull.base,
            "source_branch": pull.head,
            "source_project_id": FORK if pull.fork else NUMBER,
            "target_project_id": NUMBER,
            "labels": pull.labels,
            "draft": pull.title.startswith("Draft:"),
            "work_in_progress": pull.title.startswith("Draft:"),
            "merge_when_pipeline_succeeds": pull.auto is not None,
            "detailed_merge_status": status,
            "merge_status": "can_be_merged",
            "has_conflicts": self.conflicts,
            "head_pipeline": {"id": 1, "status": "running"} if self.pipeline == "running" else None,
            "sha": self.branches.get(pull.head),
            "merge_commit_sha": pull.merge_commit or None,
            "squash_commit_sha": None,
            "assignees": [
                _user(one, self.people[one]) for one in self.assigned.get(pull.number, [])
            ],
            "reviewers": [_user(one, self.people[one]) for one in pull.reviewers],
            "web_url": f"https://gitlab.example.com/{PROJECT}/-/merge_requests/{pull.number}",
        }


def _error(status: int, message: Any) -> Reply:
    return Reply(status, {"message": message})


def _note(note: Note) -> dict[str, Any]:
    author = _user(note.author, ME if note.author == "image-bot" else "7")
    return {
        "id": note.number,
        "body": note.body,
        "author": author,
        "system": False,
        "noteable_iid": note.request,
    }


def _user(name: str, number: str) -> dict[str, Any]:
    return {"id": int(number), "username": name, "name": name.title(), "state": "active"}
