"""Merge requests on GitLab, whether gitlab.com or self-managed
(docs.gitlab.com/api/merge_requests).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from task.errors import ForgeError, RepositoryError
from task.forges.client import Client, ForgeAddress, no_repository_error, numbered, web_below
from task.forges.deployment import Deployment, DeploymentState
from task.forges.host import (
    PAGES,
    AlreadyThere,
    Comment,
    Comments,
    Deployments,
    ForgeKind,
    Host,
    Notes,
    missing,
)
from task.forges.proposal import described
from task.forges.protection import open_on_gitlab, rules_in
from task.git.hosts import RemoteUrl
from task.http import Response
from task.model import Proposal, Proposed
from task.plain_data import dig, mappings, value_at
from task.retry import until
from task.urls import path_part, web_page

DRAFT = "Draft: "
_MERGE = "merge it"  # completes the sentence "could not …"
_REJECTED_FORM = 400  # the merge train rejects the request's parameters
# seconds between attempts while GitLab is still checking a new request
_PAUSES = (0.5, 1.0, 2.0, 4.0)
# GitLab has no state for a deployment that is waiting for Argo CD, so use "running"
STATES: Mapping[DeploymentState, str] = {
    "queued": "running",
    "in_progress": "running",
    "success": "success",
    "failure": "failed",
}
_OPEN = ("created", "running", "blocked")  # unfinished deployments
_UNREADY = ("checking", "preparing", "unchecked", "approvals_syncing", "")


class GitLabClient(Client):
    """A client for GitLab's API."""

    page = ("web_url",)

    def path_of(self, project: Sequence[str]) -> str:
        """Return a project's API path. `project` contains the project's groups and its name."""
        return f"/projects/{path_part('/'.join(project))}"


class GitLab(Host):
    """A project on GitLab."""

    connect = GitLabClient
    needs = (
        "use a personal, project, or group access token with the api scope and the Developer role"
        " (a job token, CI_JOB_TOKEN, cannot write merge requests)"
    )
    auto_merge_after_push = "ends"

    def newest(self, base: str, head: str) -> Proposed | None:
        """Return the open merge request from the branch `head` into the branch `base`. If there is
        none, return the newest closed or merged one. If there is no request at all, return None.
        """
        response = self._client.json(
            "GET",
            f"{self._path}/merge_requests",
            f"find the merge request for {head}",
            params={
                "source_branch": head,
                "target_branch": base,
                "state": "all",
                "order_by": "created_at",
                "sort": "desc",
                "per_page": 50,
            },
        )
        ours = [
            pull
            for pull in mappings(response)
            if _is_from_own_branch(pull) and self.branches(pull) == (base, head)
        ]
        if not ours:
            return None
        # an open one, else the one with the highest number
        chosen = max(ours, key=lambda pull: (_request_state(pull) == "open", pull["iid"]))
        return self.to_proposed(chosen)

    def fetch(self, number: str) -> Any:
        """Return GitLab's data about the merge request with this number."""
        return self._client.json(
            "GET",
            f"{self._path}/merge_requests/{number}",
            "read the merge request",
        )

    def to_proposed(self, pull: Any) -> Proposed:
        """Convert GitLab's merge request data to our format."""
        state = _request_state(pull)
        title = str(pull["title"])
        if pull.get("draft"):
            title = title.removeprefix(DRAFT)
        merge_commit = ""
        if state == "merged":
            # after a fast-forward merge, GitLab reports neither of these commits, only the head
            # commit
            own_commit = pull.get("merge_commit_sha") or pull.get("squash_commit_sha")
            merge_commit = str(own_commit or pull.get("sha") or "")
        conflicts = state == "open" and bool(pull.get("has_conflicts"))
        return Proposed(
            url=str(pull["web_url"]),
            number=str(pull["iid"]),
            state=state,
            title=title,
            body=str(pull.get("description") or "").replace("\r\n", "\n"),
            head_commit=str(pull.get("sha") or ""),
            merge_commit=merge_commit,
            conflicts=conflicts,
            auto_merge=bool(pull.get("merge_when_pipeline_succeeds")),
            note=f"it conflicts with {pull['target_branch']}" if conflicts else "",
        )

    def branches(self, pull: Any) -> tuple[str, str]:
        """Return the base and head branches from GitLab's merge request data."""
        return dig(pull, "target_branch"), dig(pull, "source_branch")

    def create(self, proposal: Proposal) -> Any:
        """Open a merge request, and return GitLab's data about it.

        Raises `AlreadyThere` if this branch already has an open merge request.
        """
        draft_prefix = DRAFT if proposal.draft else ""
        body = {
            "source_branch": proposal.head,
            "target_branch": proposal.base,
            "title": f"{draft_prefix}{proposal.title}",
            "description": proposal.body,
            "remove_source_branch": self.ours_to_delete(proposal),
        }
        what = "open the merge request"
        answer = self._client.ask(
            "POST",
            f"{self._path}/merge_requests",
            what,
            json=body,
            expected=(409,),
        )
        if answer.status != 409:
            return self._client.parse(answer, what)
        if b"already exists" in answer.body:
            raise AlreadyThere
        raise self._client.error_for(answer, what)

    def change(self, pull: Any, title: str, body: str) -> Any:
        """Change a merge request's title and text, and return the updated data from GitLab. A
        draft, which GitLab marks in the title, remains a draft.
        """
        draft_prefix = DRAFT if pull.get("draft") else ""
        return self._write(
            str(pull["iid"]),
            "update the merge request",
            title=f"{draft_prefix}{title}",
            description=body,
        )

    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Add the proposal's labels, reviewers, and assignees that the merge request lacks, and set
        auto-merge if the proposal requests it. Return the request both in our format and as
        GitLab's data.

        Failures become notes (sentences shown with the request). GitLab creates missing labels.
        """
        labels = []
        for label in missing(proposal.labels, pull.get("labels") or ()):
            if "," in label:
                notes.add(f"label {label!r}: GitLab labels cannot contain a comma", "label", label)
            else:
                labels.append(label)

        new_ids: dict[str, dict[str, int]] = {}  # ids of the people to add, by role and name
        for role, names in (("reviewer", proposal.reviewers), ("assignee", proposal.assignees)):
            with notes.on_failure(f"{role}s", role, *names):
                new_ids[role] = self._new_ids(pull, role, names, notes)

        fields = _label_fields(pull, labels, new_ids)
        if fields:
            pull = self._set_fields(pull, fields, labels, new_ids, notes)

        request = self.to_proposed(pull)
        if proposal.auto_merge:
            with notes.on_failure("auto-merge", "auto-merge"):
                request = self._set_auto_merge(pull, described(proposal.body), notes)
        return request, pull

    def _set_fields(
        self,
        pull: Any,
        fields: Mapping[str, Any],
        labels: Sequence[str],
        new_ids: Mapping[str, Mapping[str, int]],
        notes: Notes,
    ) -> Any:
        """Set these fields of a merge request, and return the updated data from GitLab. If GitLab
        rejects the fields, return the old data. Labels and people that could not be set become
        notes.

        `labels` and `new_ids` (by role and name) are the labels and people that the fields add.
        """
        try:
            changed = self._write(str(pull["iid"]), "set labels and people", **fields)
        except (ForgeError, RepositoryError) as error:
            message = f"labels and people: {error.message}"
            for kind, failed_names in (("label", labels), *new_ids.items()):
                if failed_names:
                    notes.add(message, kind, *failed_names)
            return pull

        # GitLab silently ignores people that it does not accept
        for role, ids in new_ids.items():
            accepted_ids = {user["id"] for user in changed.get(f"{role}s") or ()}
            ignored = [name for name, user_id in ids.items() if user_id not in accepted_ids]
            if ignored:
                why = "GitLab did not accept them (more than one requires GitLab Premium)"
                notes.add(f"{role} {', '.join(ignored)}: {why}", role, *ignored)
        return changed

    def close_request(self, pull: Any, body: str) -> None:
        """Close the open merge request, and replace its text with `body`."""
        self._write(
            str(pull["iid"]),
            "close the merge request",
            description=body,
            state_event="close",
        )

    def others_may_push(self, name: str) -> bool:
        """Return whether other users may push a branch with this name."""
        protected = self._client.json(
            "GET",
            f"{self._path}/protected_branches",
            "read the protected branches",
            params={"per_page": 100},
        )
        return open_on_gitlab(rules_in(protected), name)

    def tip(self, head: str) -> str:
        """Return the commit of the branch `head`, or "" if GitLab does not report it."""
        branch = self._client.json(
            "GET",
            f"{self._path}/repository/branches/{path_part(head)}",
            "read the branch",
            expected=(403, 404),
        )
        return dig(branch, "commit", "id")

    def _write(self, number: str, what: str, **fields: Any) -> Any:
        """Change these fields of a merge request, and return the updated data from GitLab. `what`
        completes the sentence "could not …".
        """
        return self._client.json("PUT", f"{self._path}/merge_requests/{number}", what, json=fields)

    def _new_ids(
        self,
        pull: Mapping[str, Any],
        role: str,
        names: Iterable[str],
        notes: Notes,
    ) -> dict[str, int]:
        """Return the user ids, by name, of those `names` that do not have this role ("reviewer" or
        "assignee") in the merge request yet. Unknown names become notes.
        """
        ids: dict[str, int] = {}
        present = (user["username"] for user in pull.get(f"{role}s") or ())
        for name in missing(names, present):
            user_id = self._user_id(name)
            if user_id:
                ids[name] = user_id
            else:
                notes.add(f"{role} {name}: GitLab has no user with that name", role, name)
        return ids

    def _user_id(self, name: str) -> int:
        """Return the id of the user (never of a group) with this name, or 0 if there is none."""
        users = self._client.json(
            "GET",
            "/users",
            f"look up {name}",
            params={"username": name},
        )
        matching = [user for user in users if user["username"].lower() == name.lower()]
        return int(matching[0]["id"]) if matching else 0

    def _set_auto_merge(self, pull: Mapping[str, Any], commit: str, notes: Notes) -> Proposed:
        """Have GitLab merge exactly this commit, not a later push, once its pipeline and checks
        pass. Return the merge request.

        `commit` is "" if it is unknown. If GitLab refuses, the reason becomes a note.
        """
        checked_pull = self._after_checks(pull, commit)
        request = self.to_proposed(checked_pull)
        if checked_pull.get("draft"):
            notes.add("GitLab cannot merge a draft automatically", "auto-merge")
            return request
        if checked_pull.get("merge_when_pipeline_succeeds"):  # auto-merge is already on
            return request
        exact_commit = commit or request.head_commit
        if self._has_trains():
            self._join_train(checked_pull, exact_commit, notes)
            return request
        return self._merge_when_possible(request, exact_commit, notes)

    def _merge_when_possible(self, request: Proposed, commit: str, notes: Notes) -> Proposed:
        """Have GitLab merge this commit once its pipeline passes, or now if it has no pipeline.
        Return the merge request. If GitLab refuses, the reason becomes a note.
        """
        merge = partial(self._merge, request.number, commit)
        # the option has two names: the second is for GitLab before 17.11
        merge_later = partial(merge, auto_merge=True, merge_when_pipeline_succeeds=True)
        # GitLab refuses to merge until it has checked the new commit, so retry a few times.
        answer = until(
            lambda latest: latest.status not in {405, 409, 422},
            merge_later(),
            merge_later,
            _PAUSES,
        )
        if answer.status < 300:
            return self.to_proposed(self._client.parse(answer, _MERGE))

        pull = self.fetch(request.number)
        status = str(pull.get("detailed_merge_status") or "").replace("_", " ")
        # Without a pipeline, there is nothing to wait for. In that case, GitLab rejects auto-merge,
        # so merge now.
        if answer.status == 405 and status == "mergeable" and not pull.get("head_pipeline"):
            answer = merge()
            if answer.status < 300:
                notes.add("it has no pipeline to wait for, so it is already merged")
                return self.to_proposed(self._client.parse(answer, _MERGE))
        why = self._client.message_in(answer)
        if status:
            why = f"{why} ({status})"
        notes.add(f"GitLab cannot merge it automatically: {why}", "auto-merge")
        return request

    def _after_checks(self, pull: Mapping[str, Any], commit: str) -> Mapping[str, Any]:
        """Wait a few seconds for GitLab's checks of this commit, and return the merge request's
        latest data. `commit` is "" if it is unknown.

        Until GitLab has processed a push, it still reports the previous commit's auto-merge, which
        the push will cancel.
        """

        def is_checked(latest: Mapping[str, Any]) -> bool:
            """Return whether the data is about this commit, and the commit's checks
            are complete.
            """
            # if GitLab is too old to have this field, the request counts as ready
            if latest.get("detailed_merge_status", "unknown") in _UNREADY:
                return False
            return commit in ("", latest.get("sha"))

        number = str(pull["iid"])
        return until(is_checked, pull, lambda: self.fetch(number), _PAUSES[:-1])

    def _merge(self, number: str, commit: str, **options: bool) -> Response:
        """Merge exactly this commit, now or (depending on the options) later. Return GitLab's
        response, which may be a refusal.
        """
        return self._client.ask(
            "PUT",
            f"{self._path}/merge_requests/{number}/merge",
            _MERGE,
            json={**options, "sha": commit},
            expected=(401, 403, 405, 406, 409, 422),
        )

    def _has_trains(self) -> bool:
        """Return whether the project uses merge trains (queues in which GitLab merges requests).

        Without GitLab Premium, the project's data does not contain the field for merge trains.
        """
        project = self._client.json(
            "GET",
            self._path,
            "check whether the project uses merge trains",
            expected=(403, 404),
        )
        return value_at(project, "merge_trains_enabled") is True

    def _join_train(self, pull: Mapping[str, Any], commit: str, notes: Notes) -> None:
        """Have GitLab add exactly this commit to its target branch's merge train (a queue in which
        it merges requests) once the checks pass. If GitLab refuses, the reason becomes a note.

        The usual endpoint for a merge, `PUT …/merge`, would bypass the train.
        """

        def join(**options: bool) -> Response:
            """Ask GitLab to add the commit to the train, now or (depending on `options`) later."""
            return self._client.ask(
                "POST",
                f"{self._path}/merge_trains/merge_requests/{pull['iid']}",
                "add it to the merge train",
                json={**options, "sha": commit},
                expected=(400, 403, 404, 409, 422),
            )

        answer = join(auto_merge=True)
        has_passed_checks = pull.get("detailed_merge_status") == "mergeable"
        # Before 18.11, GitLab rejects `auto_merge` if all checks have passed.
        if has_passed_checks and answer.status == _REJECTED_FORM:
            answer = join()
        if not has_passed_checks:
            # A rejection has two possible reasons: GitLab has not created the new commit's pipeline
            # yet, or (before 17.11) the option has another name. So retry with the other name.
            answer = until(
                lambda latest: latest.status != _REJECTED_FORM,
                answer,
                partial(join, when_pipeline_succeeds=True),
                _PAUSES,
            )
        if answer.status >= 300:
            message = self._client.message_in(answer)
            notes.add(f"GitLab cannot add it to the merge train: {message}", "auto-merge")


class GitLabComments(Comments):
    """Comments on GitLab merge requests. GitLab's API calls them
    notes (docs.gitlab.com/api/notes).
    """

    connect = GitLabClient
    needs = (
        "use a personal, project, or group access token with the api scope and the Reporter role"
        " (a job token, CI_JOB_TOKEN, cannot write comments; a fork's pipeline does not get"
        " protected variables)"
    )

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Yield our own comments that contain the mark (a hidden line) on a merge request, newest
        first.

        GitLab's API calls comments "notes".
        """
        for page in range(1, PAGES + 1):
            response = self._client.json(
                "GET",
                self._notes(request),
                "find the comment",
                params={
                    "order_by": "created_at",
                    "sort": "desc",
                    "per_page": 100,
                    "page": page,
                },
            )
            notes = mappings(response)
            for note in notes:
                number = dig(note, "id")
                body = dig(note, "body")
                if self.holds(body, mark) and dig(note, "author", "id") == self._client.me:
                    yield Comment(number=number, body=body, url=self._page(request, number))
            if len(notes) < 100:  # the last page
                break

    def add(self, request: str, body: str) -> str:
        """Add a comment to a merge request, and return its URL."""
        response = self._client.json(
            "POST",
            self._notes(request),
            "post the comment",
            json={"body": body},
        )
        return self._page(request, dig(response, "id"))

    def change(self, request: str, comment: Comment, body: str) -> str:
        """Change a comment's text, and return its URL."""
        self._client.ask(
            "PUT",
            f"{self._notes(request)}/{comment.number}",
            "edit the comment",
            json={"body": body},
            repeatable=True,
        )
        return comment.url

    def _notes(self, request: str) -> str:
        return f"{self._path}/merge_requests/{request}/notes"

    def _page(self, request: str, number: str) -> str:
        """Return the URL of a comment's web page, which GitLab's responses do not include."""
        return f"{self.place.web}/-/merge_requests/{request}#note_{number}"


class GitLabDeployments(Deployments):
    """GitLab's environments and deployments (docs.gitlab.com/api/deployments, /api/environments).

    The commit's status is not set, because GitLab would show it as a pipeline job.
    """

    connect = GitLabClient
    needs = (
        "use a personal, project, or group access token with the api scope and the Developer role"
        " (for a protected environment, a token that is allowed to deploy to it)"
    )

    def create(self, deployment: Deployment) -> str:
        """Create a deployment in this state, and return its number.

        GitLab creates the environment if it does not exist.
        """
        response = self._client.json(
            "POST",
            f"{self._path}/deployments",
            f"report the deployment to {deployment.environment}",
            json={
                "environment": deployment.environment,
                "sha": deployment.commit,
                "status": STATES[deployment.state],
                "ref": deployment.ref or deployment.commit,
                "tag": deployment.is_tag,
            },
        )
        self._link(response, deployment)
        return numbered(dig(response, "id"), self.place.host, "a deployment")

    def find(self, deployment: Deployment) -> str:
        """Return the number of our newest unfinished deployment of this commit to this environment,
        or "" if there is none.
        """
        response = self._client.json(
            "GET",
            f"{self._path}/deployments",
            f"find the deployment to {deployment.environment}",
            params={
                "environment": deployment.environment,
                "order_by": "id",
                "sort": "desc",
                "per_page": 20,
            },
        )
        for candidate in mappings(response):
            has_same_commit = dig(candidate, "sha") == deployment.commit
            may_change = dig(candidate, "status") in _OPEN
            belongs_to_job = bool(candidate.get("deployable"))  # a pipeline job created it
            if has_same_commit and may_change and not belongs_to_job:
                return dig(candidate, "id")
        return ""

    def change(self, number: str, deployment: Deployment) -> None:
        """Set the deployment's state."""
        self._client.ask(
            "PUT",
            f"{self._path}/deployments/{path_part(number)}",
            f"report the deployment to {deployment.environment}",
            json={"status": STATES[deployment.state]},
            repeatable=True,
        )

    def _link(self, response: Any, deployment: Deployment) -> None:
        """Set the environment's link to Argo CD, unless the environment already has a link, which a
        person may have set.

        `response` is GitLab's data about the deployment. If this fails, only warn.
        """
        environment_id = dig(response, "environment", "id")
        page = web_page(deployment.page)
        has_link = dig(response, "environment", "external_url") != ""
        if not environment_id or not page or has_link:
            return
        try:
            self._client.ask(
                "PUT",
                f"{self._path}/environments/{path_part(environment_id)}",
                f"link {deployment.environment} to Argo CD",
                json={"external_url": page},
                repeatable=True,
            )
        except (ForgeError, RepositoryError) as error:
            self._client.reach.warn(f"{error.message}; {error.hint}")


def _label_fields(
    pull: Mapping[str, Any],
    labels: Sequence[str],
    new_ids: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """Return the fields of GitLab's API that add these labels and people to a merge request:
    `add_labels`, `reviewer_ids`, and `assignee_ids`. `new_ids` contains the people's ids, by role
    and name.
    """
    fields = dict[str, Any]()
    if labels:
        fields["add_labels"] = ",".join(labels)
    for role, ids in new_ids.items():
        if ids:
            # GitLab replaces the whole list, so include the people already in it
            present_ids = [user["id"] for user in pull.get(f"{role}s") or ()]
            fields[f"{role}_ids"] = [*present_ids, *ids.values()]
    return fields


def _is_from_own_branch(pull: Mapping[str, Any]) -> bool:
    """Return whether the source branch is in the target's project. A fork's branch may have any
    name.
    """
    source_project = dig(pull, "source_project_id")
    return source_project != "" and source_project == dig(pull, "target_project_id")


def _request_state(pull: Mapping[str, Any]) -> Literal["open", "merged", "closed"]:
    """Return a merge request's state. `locked` means that GitLab is merging the request."""
    state = pull["state"]
    return state if state in ("merged", "closed") else "open"


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Return a project's address on GitLab, without the host. `remote` contains the parts of the
    project's URL, and `root` is the root URL of the host's web pages.
    """
    if len(remote.parts) < 2:
        raise no_repository_error("GitLab", "https://gitlab.com/group/project")
    return ForgeAddress(
        forge="gitlab",
        host="",
        api=f"{root}/api/v4",
        project=remote.parts,
        web=web_below(root, remote.parts),
    )


def _is_it(answer: Response) -> bool:
    """Return whether a response is from GitLab. GitLab shows its version only to logged-in users,
    and otherwise returns a typical error.
    """
    data = answer.mapping()
    if answer.status == 401:
        return data.get("message") == "401 Unauthorized" or "X-Gitlab-Meta" in answer.headers
    return answer.status == 200 and "version" in data and "revision" in data


KIND = ForgeKind(
    name="gitlab",
    hosts=("gitlab.com",),
    words=("gitlab",),
    client=GitLab,
    place=_place,
    question=("/api/v4/version", _is_it),
    compare="{0}/-/compare/{1}...{2}",
    deployments=GitLabDeployments,
    comments=GitLabComments,
)
