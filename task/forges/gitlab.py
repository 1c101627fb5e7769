"""Merge requests on GitLab, gitlab.com or self-managed (docs.gitlab.com/api/merge_requests)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from task.errors import ForgeError, RepositoryError
from task.forges import gitlab_comments, gitlab_deployments
from task.forges.client import PAIR, STAYS, Client, ForgeAddress, Reach, dig, names_none, web_below
from task.forges.host import (
    COMMENTS_STAY,
    DEPLOYMENTS_STAY,
    AlreadyThere,
    ForgeKind,
    Host,
    Notes,
    Overtaken,
    missing,
    ours_to_delete,
    tried,
)
from task.forges.marks import described
from task.git.hosts import RemoteUrl
from task.http import Response
from task.model import Proposal, Proposed
from task.plain_data import mappings
from task.retry import until
from task.urls import path_part

NEEDS = (
    "give a personal, project or group access token with scope api and role Developer "
    "(a job token, CI_JOB_TOKEN, cannot write merge requests)"
)
DRAFT = "Draft: "
_PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds, while GitLab still checks a new request
_UNREADY = ("checking", "preparing", "unchecked", "approvals_syncing", "")


class GitLab(Host):
    """One project on GitLab."""

    auto_merge_after_push = "ends"

    def __init__(self, reach: Reach) -> None:
        self._client, self._path = connected(reach, NEEDS)

    def find(self, base: str, head: str) -> Proposed | None:
        """As `ForgeApi.find`. A fork's branch may bear any name: only the project's own count."""
        params = {
            "source_branch": head, "target_branch": base, "state": "all",
            "order_by": "created_at", "sort": "desc", "per_page": 50,
        }  # fmt: skip
        what = f"look for the merge request of {head}"
        found = self._client.json("GET", f"{self._path}/merge_requests", what, params=params)
        ours = [
            one
            for one in mappings(found)
            if dig(one, "source_project_id") == dig(one, "target_project_id") != ""
            and (dig(one, "source_branch"), dig(one, "target_branch")) == (head, base)
        ]
        ours.sort(key=lambda one: (_state(one) == "open", one["iid"]), reverse=True)
        return proposed(ours[0]) if ours else None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def create(self, proposal: Proposal) -> tuple[Proposed, Any]:
        """As `Host.create`."""
        body = {
            "source_branch": proposal.head,
            "target_branch": proposal.base,
            "title": f"{DRAFT if proposal.draft else ''}{proposal.title}",
            "description": proposal.body,
            "remove_source_branch": ours_to_delete(proposal.head),
        }
        what = "open the merge request"
        answer = self._client.ask("POST", f"{self._path}/merge_requests", what, json=body, fine=(409,))
        if answer.status == 409:
            if b"already exists" in answer.body:
                raise AlreadyThere
            raise self._client.refused(answer, what)
        request = self._client.parsed(answer, what)
        return proposed(request), request

    def read(self, number: str) -> tuple[Proposed, Any]:
        """As `Host.read`."""
        request = self._read(number)
        return proposed(request), request

    def write(self, said: Any, title: str, body: str) -> tuple[Proposed, Any]:
        """As `Host.write`. A draft stays one, and what a person made ready stays ready."""
        text = {"title": f"{DRAFT if said.get('draft') else ''}{title}", "description": body}
        request = self._write(str(said["iid"]), "update the merge request", **text)
        if _state(request) != "open":
            raise Overtaken
        return proposed(request), request

    def complete(self, said: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """As `Host.complete`. GitLab makes labels that are missing."""
        request, fields = said, dict[str, Any]()
        wanted = missing(proposal.labels, request.get("labels") or ())
        for label in [label for label in wanted if "," in label]:
            notes.add(f"label {label!r}: GitLab accepts none with a comma", "label", label)
        labels = [label for label in wanted if "," not in label]
        if labels:
            fields["add_labels"] = ",".join(labels)
        asked: dict[str, dict[str, int]] = {}
        for role, names in (("reviewer", proposal.reviewers), ("assignee", proposal.assignees)):
            with tried(notes, f"{role}s", role, *names):
                asked[role] = self._people(request, role, names, notes)
            if new := asked.get(role):  # the list is replaced as a whole, so include those who are already in it
                fields[f"{role}_ids"] = [*(one["id"] for one in request.get(f"{role}s") or ()), *new.values()]
        if fields:
            number = str(request["iid"])
            try:
                request = self._write(number, "set labels and people", **fields)
            except (ForgeError, RepositoryError) as error:
                for kind, failed in (("label", labels), *asked.items()):
                    notes.add(f"labels and people: {error.message}", kind if failed else "", *failed)
                asked = {}
            for role, new in asked.items():
                took = {one["id"] for one in request.get(f"{role}s") or ()}
                if left := [name for name, person in new.items() if person not in took]:
                    more = "GitLab did not take them (several need GitLab Premium)"
                    notes.add(f"{role} {', '.join(left)}: {more}", role, *left)
        done = proposed(request)
        if proposal.auto_merge:
            with tried(notes, "auto-merge", "auto-merge"):
                done = self._auto_merged(request, described(proposal.body), notes)
        return done, request

    def shut(self, said: Any, body: str) -> None:
        """As `Host.shut`."""
        self._write(str(said["iid"]), "close the merge request", description=body, state_event="close")

    def tip(self, head: str) -> str:
        """As `Host.tip`."""
        path = f"{self._path}/repository/branches/{path_part(head)}"
        answer = self._client.ask("GET", path, "look at the branch", fine=(403, 404))
        return dig(self._client.parsed(answer, "look at the branch"), "commit", "id") if answer.status < 300 else ""

    def _read(self, number: str) -> Any:
        return self._client.json("GET", f"{self._path}/merge_requests/{number}", "read the merge request")

    def _write(self, number: str, what: str, **fields: Any) -> Any:
        return self._client.json("PUT", f"{self._path}/merge_requests/{number}", what, json=fields)

    def _people(self, request: Mapping[str, Any], role: str, names: Iterable[str], notes: Notes) -> dict[str, int]:
        """Return the numbers of people who are not in the list yet. An unknown name becomes a note."""
        found = {}
        for name in missing(names, (one["username"] for one in request.get(f"{role}s") or ())):
            known = self._client.json("GET", "/users", f"look for {name}", params={"username": name})  # never a group
            if person := next((int(one["id"]) for one in known if one["username"].lower() == name.lower()), 0):
                found[name] = person
            else:
                notes.add(f"{role} {name}: GitLab knows nobody of that name", role, name)
        return found

    def _auto_merged(self, request: Mapping[str, Any], commit: str, notes: Notes) -> Proposed:
        """Let GitLab merge exactly this commit, and no other push, once its pipeline and checks pass."""
        number = str(request["iid"])
        # Use the request as GitLab shows it after its check, if that does not take long. Until GitLab has noticed a
        # push, it still shows an auto-merge that the push will end.
        request = until(
            lambda one: one.get("detailed_merge_status", "unknown") not in _UNREADY and commit in ("", one.get("sha")),
            request,
            lambda: self._read(number),
            _PAUSES[:-1],
        )
        done = proposed(request)
        if request.get("merge_when_pipeline_succeeds") or request.get("draft"):
            if request.get("draft"):
                notes.add("GitLab cannot merge a draft by itself", "auto-merge")
            return done
        path, what, exact = (
            f"{self._path}/merge_requests/{number}/merge",
            "merge it",
            {"sha": commit or done.head_commit},
        )

        def ask(**how: bool) -> Response:
            return self._client.ask("PUT", path, what, json={**how, **exact}, fine=(401, 403, 405, 406, 409, 422))

        wait = partial(ask, auto_merge=True, merge_when_pipeline_succeeds=True)
        # GitLab may not have checked the new commit yet.
        answer = until(lambda answer: answer.status not in {405, 409, 422}, wait(), wait, _PAUSES)
        if answer.status < 300:
            return proposed(self._client.parsed(answer, what))
        request = self._read(number)
        status = str(request.get("detailed_merge_status") or "").replace("_", " ")
        # Without a pipeline there is nothing to wait for, and GitLab refuses auto-merge.
        if answer.status == 405 and status == "mergeable" and not request.get("head_pipeline"):
            answer = ask()
            if answer.status < 300:
                notes.add("it has no pipeline to wait for: it is merged already")
                return proposed(self._client.parsed(answer, what))
        why = f"{self._client.words(answer)}{f' ({status})' if status else ''}"
        notes.add(f"GitLab cannot merge it by itself: {why}", "auto-merge")
        return done


def connected(reach: Reach, needs: str, stays: str = STAYS) -> tuple[Client, str]:
    """Return a client, and the project's path."""
    token, path = reach.token.secret, f"/projects/{path_part('/'.join(reach.place.project))}"
    login = lambda: {"Authorization": f"Bearer {token.reveal()}"}  # noqa: E731
    return Client(reach, login, needs, repository=path, stays=stays), path


def _state(request: Mapping[str, Any]) -> str:
    """Return the state. `locked` means that GitLab is merging the request."""
    return {"merged": "merged", "closed": "closed"}.get(request["state"], "open")


def proposed(request: Mapping[str, Any]) -> Proposed:
    """Return our form of GitLab's merge request, with its title without the draft's prefix."""
    state = _state(request)
    merged = request.get("merge_commit_sha") or request.get("squash_commit_sha") or request.get("sha")
    title = str(request["title"])
    return Proposed(
        url=str(request["web_url"]),
        number=str(request["iid"]),
        state="merged" if state == "merged" else "closed" if state == "closed" else "open",
        title=title.removeprefix(DRAFT) if request.get("draft") else title,
        body=str(request.get("description") or "").replace("\r\n", "\n"),
        head_commit=str(request.get("sha") or ""),
        merge_commit=str(merged or "") if state == "merged" else "",  # for a fast-forward, it is the head itself
        conflicts=state == "open" and bool(request.get("has_conflicts")),
        auto_merge=bool(request.get("merge_when_pipeline_succeeds")),
        note=f"it conflicts with {request['target_branch']}"
        if state == "open" and request.get("has_conflicts")
        else "",
    )


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    if len(remote.parts) < PAIR:
        raise names_none("GitLab", "https://gitlab.com/group/project")
    return ForgeAddress("gitlab", "", f"{root}/api/v4", remote.parts, web_below(root, remote.parts))


def _is_it(answer: Response) -> bool:
    """GitLab shows its version only to logged-in users, and its refusal identifies it."""
    said = answer.mapping()
    if answer.status == 401:
        return said.get("message") == "401 Unauthorized" or "X-Gitlab-Meta" in answer.headers
    return answer.status == 200 and "version" in said and "revision" in said


KIND = ForgeKind(
    name="gitlab",
    hosts=("gitlab.com",),
    words=("gitlab",),
    client=GitLab,
    place=_place,
    question=("/api/v4/version", _is_it),
    compare="{0}/-/compare/{1}...{2}",
    deployments=lambda reach: gitlab_deployments.GitLabDeployments(
        *connected(reach, gitlab_deployments.NEEDS, DEPLOYMENTS_STAY)
    ),
    comments=lambda reach: gitlab_comments.GitLabComments(*connected(reach, gitlab_comments.NEEDS, COMMENTS_STAY)),
)
