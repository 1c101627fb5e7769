"""Azure DevOps Services and Server (REST API 7.1): labels, reviewers, drafts, and auto-complete,
but no assignees.

learn.microsoft.com/rest/api/azure/devops/git. Lists truncate descriptions to 400 characters. For an
invalid token, the response is a sign-in page with a success status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from task.errors import CredentialsError, ForgeError, RepositoryError, TaskError
from task.forges.client import Client, ForgeAddress, Reach, names_none, numbered, web_below
from task.forges.host import AlreadyThere, Comment, Comments, ForgeKind, Host, Notes, missing
from task.forges.protection import AZURE_NAMESPACE, azure_token, listed, open_on_azure
from task.git.hosts import RemoteUrl
from task.http import Response, basic, bearer
from task.model import Proposal, Proposed
from task.plain_data import dig, elements, mappings
from task.urls import origin, path_part

NEEDS = (
    "grant the token the Code (read & write) scope, and its owner the permission to contribute to"
    " pull requests"
)
_SERVICES = "https://dev.azure.com/"
_IDENTITIES = "https://vssps.dev.azure.com/"
_STATES: dict[str, Any] = {
    "active": "open",
    "completed": "merged",
    "abandoned": "closed",
}
_MERGE_POLICY = "fa4e907d-c16b-4a4c-9dfa-4916e5d171ab"  # "Limit merge types"
_STRATEGIES = {
    "allowNoFastForward": "noFastForward",
    "allowSquash": "squash",
    "allowRebase": "rebase",
    "allowRebaseMerge": "rebaseMerge",
}
_GUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEADS = "refs/heads/"
_REFUSED = 400
_CONFLICT = 409
_TEXT = 1
# values of CommentType and CommentThreadStatus; a policy may require all threads to be resolved
_CLOSED = 4
_NOT_NOW = (400, 403, 409)  # statuses of a request that is no longer open


class AzureClient(Client):
    """Adds the API version to each request, and recognizes Azure's sign-in page."""

    repository = "/{1}/_apis/git/repositories/{2}"
    page = ("webUrl",)
    headers: ClassVar[Mapping[str, str]] = {
        "Accept": "application/json",
        "X-TFS-FedAuthRedirect": "Suppress",
    }
    version = "7.1"

    def login(self) -> Mapping[str, str]:
        """Like `Client.login`, with the job's own token (System.AccessToken, a JWT) or a personal
        access token.
        """
        token = self.reach.token
        secret = token.secret.reveal()
        if secret.startswith("eyJ") and secret.count(".") == 2:  # the number of dots in a JWT
            return bearer(token.secret)
        return basic(token.user, token.secret)

    def ask(self, method: str, path: str, what: str, **more: Any) -> Response:
        """Like `Client.ask`.

        If a Server is too old for the API version, retry with the Server's own version.
        """
        answer = self._versioned(method, path, what, more)
        if answer.mapping().get("typeKey") == "VssVersionOutOfRangeException":
            self.version = next(
                iter(re.findall(rb"supports is (\d+\.\d+)", answer.body)),
                b"6.0",
            ).decode()
            answer = self._versioned(method, path, what, more)
        if answer.status == _REFUSED and _REFUSED not in more.get("fine", ()):
            raise self.refused(answer, what)
        html = "html" in answer.headers.get("Content-Type", "")
        if answer.status == 203 or html or origin(answer.url) != origin(self.reach.place.api):
            raise self._locked_out(what)
        return answer

    def _versioned(
        self,
        method: str,
        path: str,
        what: str,
        more: dict[str, Any],
    ) -> Response:
        fine = more.get("fine", ())
        params = {**(more.get("params") or {}), "api-version": self.version}
        return super().ask(
            method,
            path,
            what,
            **{
                **more,
                "params": params,
                "fine": (_REFUSED, *fine),
            },
        )

    def refused(self, answer: Response, what: str) -> TaskError:
        """Like `Client.refused`. A redirect to the sign-in page also means that the token was
        rejected.
        """
        if 300 <= answer.status < 400:
            return self._locked_out(what)
        return super().refused(answer, what)

    def _locked_out(self, what: str) -> TaskError:
        place = self.reach.place
        return CredentialsError(
            f"{place.host} returned its sign-in page: could not {what}",
            hint=(
                f"{self.valid_token()}: a personal access token for this organization, or"
                f" System.AccessToken; {self._needs}"
            ),
        )


class Azure(Host):
    """A repository on Azure DevOps."""

    connect = AzureClient
    needs = NEEDS
    without: ClassVar[Mapping[str, str]] = {
        "assignees": "Azure DevOps pull requests have no assignees: add them as reviewers"
    }

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach)
        place = reach.place
        self._people = AzureClient(
            replace(reach, place=replace(place, api=identities_api(place.api))),
            self.needs,
        )

    def newest(self, base: str, head: str) -> Proposed | None:
        """Like `Host.newest`: the open request, else the newest, with its full description. Lists
        are sorted newest first.
        """
        path = f"{self._path}/pullrequests"
        what = f"find the pull request for {head}"
        params = {
            "searchCriteria.sourceRefName": f"refs/heads/{head}",
            "searchCriteria.targetRefName": f"refs/heads/{base}",
            "searchCriteria.status": "all",
            "$top": 50,
        }
        found = self._client.json("GET", path, what, params=params)
        ours = [
            mapping
            for mapping in mappings(found, "value")
            if not mapping.get("forkSource") and self.branches(mapping) == (base, head)
        ]
        if not ours:
            return None
        newest = next((our for our in ours if dig(our, "status") == "active"), ours[0])
        return self.checked(numbered(dig(newest, "pullRequestId"), self.place.host))

    def close(self) -> None:
        """Like `Connected.close`."""
        super().close()
        self._people.close()

    def ask(self, number: str) -> Any:
        """Like `Host.ask`."""
        return self._client.json(
            "GET",
            f"{self._path}/pullrequests/{path_part(number)}",
            f"read pull request {number}",
        )

    def proposed(self, said: Any) -> Proposed:
        """Like `Host.proposed`."""
        number = numbered(dig(said, "pullRequestId"), self.place.host)
        state = _STATES.get(dig(said, "status"), "closed")
        conflicts = state == "open" and dig(said, "mergeStatus") == "conflicts"
        return Proposed(
            url=f"{self.place.web}/pullrequest/{number}",
            number=number,
            state=state,
            title=dig(said, "title"),
            body=dig(said, "description"),
            head_commit=dig(said, "lastMergeSourceCommit", "commitId"),
            merge_commit=dig(said, "lastMergeCommit", "commitId") if state == "merged" else "",
            conflicts=conflicts,
            note="it conflicts with its base branch" if conflicts else "",
        )

    def branches(self, said: Any) -> tuple[str, str]:
        """Like `Host.branches`."""
        base = dig(said, "targetRefName")
        head = dig(said, "sourceRefName")
        return base.removeprefix(_HEADS), head.removeprefix(_HEADS)

    def create(self, proposal: Proposal) -> Any:
        """Like `Host.create`."""
        body = {
            "sourceRefName": f"refs/heads/{proposal.head}",
            "targetRefName": f"refs/heads/{proposal.base}",
            "title": proposal.title,
            "description": proposal.body,
            "isDraft": proposal.draft,
        }
        what = f"open a pull request from {proposal.head} into {proposal.base}"
        answer = self._client.ask(
            "POST",
            f"{self._path}/pullrequests",
            what,
            json=body,
            fine=(_REFUSED, _CONFLICT),
        )
        if answer.status in (_REFUSED, _CONFLICT):
            if (
                answer.mapping().get("typeKey") == "GitPullRequestExistsException"
                or b"TF401179" in answer.body
            ):
                raise AlreadyThere
            raise self._client.refused(answer, what)
        return self._client.parsed(answer, what)

    def change(self, said: Any, title: str, body: str) -> Any:
        """Like `Host.change`."""
        number = self.proposed(said).number
        path = f"{self._path}/pullrequests/{path_part(number)}"
        what = f"update pull request {number}"
        text = {"title": title, "description": body}
        answer = self._client.ask(
            "PATCH",
            path,
            what,
            json=text,
            fine=_NOT_NOW,
            again=True,
        )
        if answer.status < _REFUSED:
            return self._client.parsed(answer, what)
        now, said = self.read(number)
        if now.state == "open":
            raise self._client.refused(answer, what)
        return said

    def complete(self, said: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Like `Host.complete`."""
        found = self.proposed(said)
        request = f"{self._path}/pullRequests/{path_part(found.number)}"
        present = {dig(element, "id").lower() for element in elements(said, "reviewers")}
        for name in dict.fromkeys(proposal.reviewers):
            with notes.tried(f"reviewer {name}", "reviewer", name):
                identity = name if _GUID.fullmatch(name) else self._identity(name)
                # adding a reviewer again would reset the vote
                if identity.lower() not in present:
                    path = f"{request}/reviewers/{path_part(identity)}"
                    self._client.ask("PUT", path, f"add the reviewer {name}", json={"vote": 0})
        for label in missing(
            proposal.labels,
            (dig(element, "name") for element in elements(said, "labels")),
        ):
            with notes.tried("labels", "label", label):
                self._client.ask(
                    "POST",
                    f"{request}/labels",
                    f"add the label {label}",
                    json={"name": label},
                )
        if proposal.auto_merge and not dig(said, "autoCompleteSetBy", "id"):
            with notes.tried("auto-complete", "auto-merge"):
                self._auto_complete(said, found, proposal)
        return found, said

    def shut(self, said: Any, body: str) -> None:
        """Like `Host.shut`."""
        path = f"{self._path}/pullrequests/{path_part(self.proposed(said).number)}"
        text = {"description": body, "status": "abandoned"}
        self._client.ask(
            "PATCH",
            path,
            "abandon the pull request",
            json=text,
            again=True,
        )

    def is_open(self, name: str) -> bool:
        """Like `Host.is_open`. Azure does not have branch patterns: permissions are set on a
        branch's folder.
        """
        what = "read the branch permissions"
        repository = self._client.json("GET", self._path, what)
        project = dig(repository, "project", "id")
        number = dig(repository, "id")
        folder = name.rpartition("/")[0] or name
        path = f"/_apis/accesscontrollists/{AZURE_NAMESPACE}"
        query = {"token": azure_token(project, number, folder), "recurse": "false"}
        found = self._client.json("GET", path, what, params=query)
        return open_on_azure(listed(found, "value"))

    def tip(self, head: str) -> str:
        """Like `Host.tip`."""
        params = {"filter": f"heads/{head}"}  # every ref with this prefix
        found = self._client.json(
            "GET",
            f"{self._path}/refs",
            f"read the branch {head}",
            params=params,
        )
        names = (
            dig(element, "objectId")
            for element in elements(found, "value")
            if dig(element, "name") == f"refs/heads/{head}"
        )
        return next(names, "")

    def _identity(self, name: str) -> str:
        """Return the id of the only identity with this name or address."""
        params = {
            "searchFilter": "General",
            "filterValue": name,
            "queryMembership": "None",
        }
        found = elements(
            self._people.json("GET", "/_apis/identities", f"look up {name}", params=params),
            "value",
        )
        exact = []
        for item in found:
            names = (
                dig(item, "providerDisplayName"),
                dig(item, "properties", "Account", "$value"),
                dig(item, "properties", "Mail", "$value"),
            )
            if name.casefold() in map(str.casefold, names):
                exact.append(item)
        ids = {identity for item in exact or found if (identity := dig(item, "id"))}
        if len(ids) != 1:
            hint = "specify the person by email address or ID"
            raise ForgeError(
                f"{self.place.host} has no user with that name, or more than one",
                hint=hint,
            )
        return ids.pop()

    def _auto_complete(self, item: Any, found: Proposed, proposal: Proposal) -> None:
        """Set auto-complete: Azure merges once all required policies are met, with the first merge
        type they allow.

        Azure also waits for optional policies, unless they are listed; they may never be met.
        """
        policies = self._policies(dig(item, "repository", "id"), proposal.base)
        options: dict[str, Any] = {"deleteSourceBranch": self.ours_to_delete(proposal)}
        optional = [policy.get("id") for policy in policies if policy.get("isBlocking") is False]
        if numbers := [entry for entry in optional if type(entry) is int]:
            options["autoCompleteIgnoreConfigIds"] = numbers
        if strategy := _strategy(policies):
            options["mergeStrategy"] = strategy
        body = {
            "autoCompleteSetBy": {"id": dig(item, "createdBy", "id")},
            "completionOptions": options,
        }
        path = f"{self._path}/pullrequests/{path_part(found.number)}"
        self._client.ask("PATCH", path, "set auto-complete", json=body, again=True)

    def _policies(self, repository: str, base: str) -> list[Mapping[str, Any]]:
        """Return the branch's enabled policies, or an empty list if we are not allowed to read
        them.
        """
        path = f"/{path_part(self.place.project[1])}/_apis/git/policy/configurations"
        params = {"repositoryId": repository, "refName": f"refs/heads/{base}"}
        try:
            found = self._client.json("GET", path, "read policies", params=params)
        except (ForgeError, RepositoryError):
            return []
        return [mapping for mapping in mappings(found, "value") if mapping.get("isEnabled")]


def _strategy(policies: Iterable[Mapping[str, Any]]) -> str:
    """Return a merge type that the policies allow, or "" if the policies do not limit merge
    types.
    """
    limit = next(
        (policy for policy in policies if dig(policy, "type", "id") == _MERGE_POLICY),
        None,
    )
    allowed = (way for rule, way in _STRATEGIES.items() if dig(limit, "settings", rule) == "True")
    return next(allowed, "")


class AzureComments(Comments):
    """Comments on Azure DevOps pull requests.

    Each comment starts a thread, and only the author can edit a comment.
    """

    connect = AzureClient
    needs = NEEDS

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Like `Comments.marked`. Azure returns all threads at once, oldest first."""
        said = self._client.json("GET", self._threads(request), "find the comment")
        for thread in reversed(mappings(said, "value")):
            for mapping in mappings(thread, "comments")[:1]:
                if not mapping.get("isDeleted") and self.holds(dig(mapping, "content"), mark):
                    number = f"{dig(thread, 'id')}/comments/{dig(mapping, 'id')}"
                    yield Comment(
                        number,
                        dig(mapping, "content"),
                        self._page(request, dig(thread, "id")),
                    )

    def add(self, request: str, body: str) -> str:
        """Like `Comments.add`."""
        thread = {
            "comments": [
                {
                    "parentCommentId": 0,
                    "content": body,
                    "commentType": _TEXT,
                }
            ],
            "status": _CLOSED,
        }
        said = self._client.json("POST", self._threads(request), "post the comment", json=thread)
        return self._page(request, dig(said, "id"))

    def change(self, request: str, comment: Comment, body: str) -> str | None:
        """Like `Comments.change`."""
        path = f"{self._threads(request)}/{comment.number}"
        text = {"content": body}
        answer = self._client.ask(
            "PATCH",
            path,
            "edit the comment",
            json=text,
            fine=(403,),
            again=True,
        )
        return None if answer.status == 403 else comment.url

    def _threads(self, request: str) -> str:
        return f"{self._path}/pullRequests/{path_part(request)}/threads"

    def _page(self, request: str, thread: str) -> str:
        """Return the URL of a comment's page. Azure's responses only have the API URL."""
        return f"{self.place.web}/pullrequest/{request}?discussionId={thread}"


def identities_api(api: str) -> str:
    """Return the API base for looking up people: Services have a separate host; a Server uses its
    own.
    """
    return _IDENTITIES + api.removeprefix(_SERVICES) if api.startswith(_SERVICES) else api


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Services: ORGANIZATION/PROJECT/_git/REPOSITORY.

    Server: the collection's path comes before the project.
    """
    parts = remote.parts
    if remote.ssh and parts[:1] in {("v3",), ("V3",)} and len(parts) == 4:
        return _address(root, parts[1], parts[2], parts[3])
    at = parts.index("_git") if "_git" in parts else -1
    if at < 0 or at + 2 != len(parts):
        raise names_none(
            "Azure DevOps",
            "https://dev.azure.com/organization/project/_git/repository",
        )
    repository = parts[-1]
    before = parts[:at]
    host = remote.host
    if host.endswith(".visualstudio.com"):
        before = (
            host.partition(".")[0],
            *(part for part in before if part.lower() != "defaultcollection"),
        )
        root = "https://dev.azure.com"
    if not before:
        raise names_none(
            "Azure DevOps",
            "https://dev.azure.com/organization/project/_git/repository",
        )
    if len(before) == 1:  # the project is omitted because it has the repository's name
        before = (*before, repository)
    *above, organization, project = before
    return _address(web_below(root, above), organization, project, repository)


def _address(root: str, organization: str, project: str, repository: str) -> ForgeAddress:
    api = web_below(root, (organization,))
    project_parts = (organization, project, repository)
    return ForgeAddress(
        "azure",
        "",
        api,
        project_parts,
        web_below(api, (project, "_git", repository)),
    )


KIND = ForgeKind(
    name="azure",
    hosts=("dev.azure.com",),
    host_ends=(".visualstudio.com",),  # each customer has their own host
    client=Azure,
    place=_place,
    comments=AzureComments,
    compare="{0}/branchCompare?baseVersion=GB{1}&targetVersion=GB{2}",
    range="{0}/branchCompare?baseVersion=GC{1}&targetVersion=GC{2}",
)
