"""Azure DevOps Services and Server (REST API 7.1): labels, reviewers, drafts, and auto-complete,
but not assignees.

learn.microsoft.com/rest/api/azure/devops/git. Descriptions in lists are truncated to 400
characters. For an invalid token, the response is a sign-in page with a success status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from task.errors import CredentialsError, ForgeError, RepositoryError, TaskError
from task.forges.client import Client, ForgeAddress, Reach, no_repository_error, numbered, web_below
from task.forges.host import AlreadyThere, Comment, Comments, ForgeKind, Host, Notes, missing
from task.forges.protection import AZURE_NAMESPACE, azure_token, open_on_azure, rules_in
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
_TEXT = 1  # CommentType: text
_CLOSED = 4  # CommentThreadStatus: closed
_NOT_NOW = (400, 403, 409)  # HTTP statuses if the request is no longer open


class AzureClient(Client):
    """A client for Azure's API that adds the API version to each request, and recognizes the
    sign-in page.
    """

    repository = "/{1}/_apis/git/repositories/{2}"
    page = ("webUrl",)
    headers: ClassVar[Mapping[str, str]] = {
        "Accept": "application/json",
        "X-TFS-FedAuthRedirect": "Suppress",
    }
    version = "7.1"

    def login(self) -> Mapping[str, str]:
        """Return the authentication header: Bearer for the job's own token (System.AccessToken, a
        JWT), and Basic for a personal access token.
        """
        token = self.reach.token
        secret = token.secret.reveal()
        is_jwt = secret.startswith("eyJ") and secret.count(".") == 2
        if is_jwt:
            return bearer(token.secret)
        return basic(token.user, token.secret)

    def ask(self, method: str, path: str, what: str, **more: Any) -> Response:
        """Send an HTTP request to Azure, and return the response. `more` contains the other
        arguments of `Client.ask`.

        If an Azure DevOps Server is too old for the API version, retry with the newest version that
        it supports. Raises the errors of `Client.ask`, and `CredentialsError` if the response is
        Azure's sign-in page.
        """
        answer = self._ask_with_version(method, path, what, more)
        if answer.mapping().get("typeKey") == "VssVersionOutOfRangeException":
            supported = re.search(rb"supports is (\d+\.\d+)", answer.body)
            self.version = supported[1].decode() if supported else "6.0"  # for Server 2020
            answer = self._ask_with_version(method, path, what, more)

        # a 400 could have meant an unsupported version, so it was not raised earlier
        expected_statuses = more.get("expected", ())
        if answer.status == _REFUSED and _REFUSED not in expected_statuses:
            raise self.error_for(answer, what)

        # for an invalid token, Azure returns its sign-in page with a success status
        is_page = answer.status == 203 or "html" in answer.headers.get("Content-Type", "")
        if is_page or origin(answer.url) != origin(self.reach.place.api):
            raise self._sign_in_page_error(what)
        return answer

    def _ask_with_version(
        self,
        method: str,
        path: str,
        what: str,
        more: dict[str, Any],
    ) -> Response:
        """Send an HTTP request with the API version as a parameter, and return the response. A
        status of 400 is returned, not raised.

        `more` contains the other arguments of `Client.ask`.
        """
        params = more.get("params") or {}
        expected_statuses = more.get("expected", ())
        options = {
            **more,
            "params": {**params, "api-version": self.version},
            "expected": (_REFUSED, *expected_statuses),
        }
        return super().ask(method, path, what, **options)

    def error_for(self, answer: Response, what: str) -> TaskError:
        """Return the error for a response with a status of 300 or above.

        A redirect leads to the sign-in page, which means that the token was rejected.
        """
        if 300 <= answer.status < 400:
            return self._sign_in_page_error(what)
        return super().error_for(answer, what)

    def _sign_in_page_error(self, what: str) -> TaskError:
        """Return the error for a response that contains Azure's sign-in page instead of data."""
        host = self.reach.place.host
        return CredentialsError(
            f"{host} returned its sign-in page: could not {what}",
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
        """Return the open pull request from the branch `head` into the branch `base`. If there is
        none, return the newest closed or merged one. If there is no request at all, return None.
        """
        response = self._client.json(
            "GET",
            f"{self._path}/pullrequests",
            f"find the pull request for {head}",
            params={
                "searchCriteria.sourceRefName": f"refs/heads/{head}",
                "searchCriteria.targetRefName": f"refs/heads/{base}",
                "searchCriteria.status": "all",
                "$top": 50,
            },
        )
        ours = [
            pull
            for pull in mappings(response, "value")
            if not pull.get("forkSource") and self.branches(pull) == (base, head)
        ]
        if not ours:
            return None

        chosen = ours[0]  # the list is sorted, newest first
        for pull in ours:
            is_open = dig(pull, "status") == "active"
            if is_open:
                chosen = pull
                break
        # the list truncates descriptions, so fetch the request itself
        return self.read_completely(numbered(dig(chosen, "pullRequestId"), self.place.host))

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._people.close()

    def fetch(self, number: str) -> Any:
        """Return Azure's data about the pull request with this number."""
        return self._client.json(
            "GET",
            f"{self._path}/pullrequests/{path_part(number)}",
            f"read pull request {number}",
        )

    def to_proposed(self, pull: Any) -> Proposed:
        """Convert Azure's pull request data to our format."""
        number = numbered(dig(pull, "pullRequestId"), self.place.host)
        state = _STATES.get(dig(pull, "status"), "closed")
        conflicts = state == "open" and dig(pull, "mergeStatus") == "conflicts"
        merge_commit = dig(pull, "lastMergeCommit", "commitId") if state == "merged" else ""
        return Proposed(
            url=f"{self.place.web}/pullrequest/{number}",
            number=number,
            state=state,
            title=dig(pull, "title"),
            body=dig(pull, "description"),
            head_commit=dig(pull, "lastMergeSourceCommit", "commitId"),
            merge_commit=merge_commit,
            conflicts=conflicts,
            note="it conflicts with its base branch" if conflicts else "",
        )

    def branches(self, pull: Any) -> tuple[str, str]:
        """Return the base and head branches from Azure's pull request data."""
        base = dig(pull, "targetRefName")
        head = dig(pull, "sourceRefName")
        return base.removeprefix(_HEADS), head.removeprefix(_HEADS)

    def create(self, proposal: Proposal) -> Any:
        """Open a pull request, and return Azure's data about it.

        Raises `AlreadyThere` if this branch already has an open pull request.
        """
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
            expected=(_REFUSED, _CONFLICT),
        )
        if answer.status not in (_REFUSED, _CONFLICT):
            return self._client.parse(answer, what)
        error_class = answer.mapping().get("typeKey")
        # TF401179 is the code of the same error in its message
        if error_class == "GitPullRequestExistsException" or b"TF401179" in answer.body:
            raise AlreadyThere
        raise self._client.error_for(answer, what)

    def change(self, pull: Any, title: str, body: str) -> Any:
        """Change a pull request's title and text, and return the updated data from Azure.

        Azure rejects changes to a request that is no longer open. In that case, return the
        request's current data.
        """
        number = self.to_proposed(pull).number
        what = f"update pull request {number}"
        answer = self._client.ask(
            "PATCH",
            f"{self._path}/pullrequests/{path_part(number)}",
            what,
            json={"title": title, "description": body},
            expected=_NOT_NOW,
            repeatable=True,
        )
        if answer.status < _REFUSED:
            return self._client.parse(answer, what)

        current, current_pull = self.read(number)
        if current.state == "open":
            raise self._client.error_for(answer, what)
        return current_pull

    def complete(self, pull: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """Add the proposal's reviewers and labels that the pull request lacks, and set
        auto-complete. Return the request both in our format and as Azure's data.

        Failures become notes (sentences shown with the request).
        """
        request = self.to_proposed(pull)
        request_path = f"{self._path}/pullRequests/{path_part(request.number)}"
        self._add_reviewers(pull, f"{request_path}/reviewers", proposal, notes)

        present_labels = (dig(label, "name") for label in elements(pull, "labels"))
        for label in missing(proposal.labels, present_labels):
            with notes.on_failure("labels", "label", label):
                self._client.ask(
                    "POST",
                    f"{request_path}/labels",
                    f"add the label {label}",
                    json={"name": label},
                )

        if proposal.auto_merge and not dig(pull, "autoCompleteSetBy", "id"):
            with notes.on_failure("auto-complete", "auto-merge"):
                self._auto_complete(pull, request, proposal)
        return request, pull

    def close_request(self, pull: Any, body: str) -> None:
        """Abandon the open pull request, and replace its text with `body`."""
        number = self.to_proposed(pull).number
        self._client.ask(
            "PATCH",
            f"{self._path}/pullrequests/{path_part(number)}",
            "abandon the pull request",
            json={"description": body, "status": "abandoned"},
            repeatable=True,
        )

    def others_may_push(self, name: str) -> bool:
        """Return whether other users may push a branch with this name."""
        # Azure has no branch patterns. Instead, permissions are set on a branch's folder, such as
        # `image-update` for `image-update/web`.
        what = "read the branch permissions"
        repository = self._client.json("GET", self._path, what)
        project_id = dig(repository, "project", "id")
        repository_id = dig(repository, "id")
        folder = name.rpartition("/")[0] or name
        permissions = self._client.json(
            "GET",
            f"/_apis/accesscontrollists/{AZURE_NAMESPACE}",
            what,
            params={
                "token": azure_token(project_id, repository_id, folder),
                "recurse": "false",
            },
        )
        return open_on_azure(rules_in(permissions, "value"))

    def tip(self, head: str) -> str:
        """Return the head branch's current commit, or "" if Azure does not report it."""
        response = self._client.json(
            "GET",
            f"{self._path}/refs",
            f"read the branch {head}",
            params={"filter": f"heads/{head}"},
        )
        # the filter also matches branches whose names merely begin with `head`
        for ref in elements(response, "value"):
            if dig(ref, "name") == f"refs/heads/{head}":
                return dig(ref, "objectId")
        return ""

    def _add_reviewers(self, pull: Any, path: str, proposal: Proposal, notes: Notes) -> None:
        """Add the proposal's reviewers to a pull request. `path` is the API path of its reviewers.
        Names without an id on Azure become notes.
        """
        present_ids = {dig(reviewer, "id").lower() for reviewer in elements(pull, "reviewers")}
        for name in dict.fromkeys(proposal.reviewers):
            with notes.on_failure(f"reviewer {name}", "reviewer", name):
                identity = name if _GUID.fullmatch(name) else self._identity(name)
                if identity.lower() in present_ids:
                    continue  # adding a reviewer again would reset the vote
                self._client.ask(
                    "PUT",
                    f"{path}/{path_part(identity)}",
                    f"add the reviewer {name}",
                    json={"vote": 0},
                )

    def _identity(self, name: str) -> str:
        """Return the id of the user or group (an identity) with this name or address.

        Raises `ForgeError` if there is no match, or more than one.
        """
        response = self._people.json(
            "GET",
            "/_apis/identities",
            f"look up {name}",
            params={
                "searchFilter": "General",
                "filterValue": name,
                "queryMembership": "None",
            },
        )
        # Azure also returns identities with similar names: use them only if none matches exactly
        found = elements(response, "value")
        exact = [identity for identity in found if name.casefold() in _names_of_identity(identity)]
        ids = {dig(identity, "id") for identity in exact or found} - {""}
        if len(ids) != 1:
            raise ForgeError(
                f"{self.place.host} has no user with that name, or more than one",
                hint="specify the person by email address or ID",
            )
        return ids.pop()

    def _auto_complete(self, pull: Any, request: Proposed, proposal: Proposal) -> None:
        """Set auto-complete on a pull request: Azure merges it once all required policies are met,
        using the first merge type that the policies allow.
        """
        policies = self._policies(dig(pull, "repository", "id"), proposal.base)
        options: dict[str, Any] = {"deleteSourceBranch": self.ours_to_delete(proposal)}

        # Azure also waits for optional policies, which may never be met, unless they are listed
        # here.
        optional = [policy.get("id") for policy in policies if policy.get("isBlocking") is False]
        optional_ids = [policy_id for policy_id in optional if type(policy_id) is int]  # not a bool
        if optional_ids:
            options["autoCompleteIgnoreConfigIds"] = optional_ids

        strategy = _allowed_merge_strategy(policies)
        if strategy:
            options["mergeStrategy"] = strategy

        self._client.ask(
            "PATCH",
            f"{self._path}/pullrequests/{path_part(request.number)}",
            "set auto-complete",
            json={
                # Azure merges on behalf of this user, who opened the request
                "autoCompleteSetBy": {"id": dig(pull, "createdBy", "id")},
                "completionOptions": options,
            },
            repeatable=True,
        )

    def _policies(self, repository: str, base: str) -> list[Mapping[str, Any]]:
        """Return the enabled policies of the branch `base` in the repository with this id, or an
        empty list if we are not allowed to read them.
        """
        _organization, project, _repository = self.place.project
        try:
            response = self._client.json(
                "GET",
                f"/{path_part(project)}/_apis/git/policy/configurations",
                "read policies",
                params={"repositoryId": repository, "refName": f"refs/heads/{base}"},
            )
        except (ForgeError, RepositoryError):
            return []
        return [policy for policy in mappings(response, "value") if policy.get("isEnabled")]


def _names_of_identity(identity: Any) -> list[str]:
    """Return the display name, account, and address of an identity, for case-insensitive
    comparison.
    """
    names = (
        dig(identity, "providerDisplayName"),
        dig(identity, "properties", "Account", "$value"),
        dig(identity, "properties", "Mail", "$value"),
    )
    return [name.casefold() for name in names]


def _allowed_merge_strategy(policies: Iterable[Mapping[str, Any]]) -> str:
    """Return the first merge type that the policies allow, such as "squash", or "" if the policies
    do not limit merge types.
    """
    for policy in policies:
        if dig(policy, "type", "id") != _MERGE_POLICY:
            continue
        for setting, strategy in _STRATEGIES.items():
            if dig(policy, "settings", setting) == "True":  # `dig` returns strings
                return strategy
        break  # the first policy of this type wins
    return ""


class AzureComments(Comments):
    """Comments on Azure DevOps pull requests.

    Each comment starts a thread, and only the author can edit a comment.
    """

    connect = AzureClient
    needs = NEEDS

    def marked(self, request: str, mark: str) -> Iterator[Comment]:
        """Yield a pull request's comments that contain the mark (a hidden line), newest first. Each
        of our comments is the first in its thread.
        """
        response = self._client.json("GET", self._threads(request), "find the comment")
        for thread in reversed(mappings(response, "value")):  # listed oldest first
            comments = mappings(thread, "comments")
            if not comments:
                continue
            first_comment = comments[0]  # the other comments are replies
            content = dig(first_comment, "content")
            if first_comment.get("isDeleted") or not self.holds(content, mark):
                continue
            thread_id = dig(thread, "id")
            yield Comment(
                number=f"{thread_id}/comments/{dig(first_comment, 'id')}",
                body=content,
                url=self._page(request, thread_id),
            )

    def add(self, request: str, body: str) -> str:
        """Start a thread with this comment, and return the comment's URL.

        The thread is closed, because a policy may require that all threads are resolved.
        """
        comment = {
            "parentCommentId": 0,
            "content": body,
            "commentType": _TEXT,
        }
        thread = {"comments": [comment], "status": _CLOSED}
        response = self._client.json(
            "POST",
            self._threads(request),
            "post the comment",
            json=thread,
        )
        return self._page(request, dig(response, "id"))

    def change(self, request: str, comment: Comment, body: str) -> str | None:
        """Change a comment's text, and return the comment's URL. If someone else wrote it, return
        None.
        """
        answer = self._client.ask(
            "PATCH",
            f"{self._threads(request)}/{comment.number}",
            "edit the comment",
            json={"content": body},
            expected=(403,),
            repeatable=True,
        )
        return None if answer.status == 403 else comment.url

    def _threads(self, request: str) -> str:
        return f"{self._path}/pullRequests/{path_part(request)}/threads"

    def _page(self, request: str, thread: str) -> str:
        """Return the URL of a comment's web page. Azure's responses contain only the comment's API
        URL.
        """
        return f"{self.place.web}/pullrequest/{request}?discussionId={thread}"


def identities_api(api: str) -> str:
    """Return the base URL of the API for looking up people. `api` is the base URL of the rest of
    the API.

    Azure DevOps Services (dev.azure.com) uses a separate host for people. A Server uses the same
    URL for everything.
    """
    if api.startswith(_SERVICES):
        return _IDENTITIES + api.removeprefix(_SERVICES)
    return api


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Return a repository's address on Azure, without the host. `remote` contains the parts of the
    repository's URL, and `root` is the root URL of the host's web pages.

    The path is ORGANIZATION/PROJECT/_git/REPOSITORY. On a Server, the organization is the last part
    of the collection's path.
    """
    parts = remote.parts
    if remote.ssh and len(parts) == 4 and parts[0] in ("v3", "V3"):  # an ssh URL of Services
        _version, organization, project, repository = parts
        return _address(root, organization, project, repository)

    error = no_repository_error(
        "Azure DevOps", "https://dev.azure.com/organization/project/_git/repository"
    )
    # `_git` must be the second-to-last part: only the repository's name comes after it
    if "_git" not in parts or parts.index("_git") != len(parts) - 2:
        raise error
    *before_git, _git, repository = parts

    # https://acme.visualstudio.com/DefaultCollection/project/_git/repository
    if remote.host.endswith(".visualstudio.com"):
        root = "https://dev.azure.com"  # an older form of dev.azure.com URLs
        organization = remote.host.partition(".")[0]
        folders = [part for part in before_git if part.lower() != "defaultcollection"]
        before_git = [organization, *folders]
    if not before_git:
        raise error
    if len(before_git) == 1:  # the URL omits the project if it has the same name
        before_git.append(repository)

    *server_path, organization, project = before_git
    return _address(web_below(root, server_path), organization, project, repository)


def _address(root: str, organization: str, project: str, repository: str) -> ForgeAddress:
    """Return the address of a repository below the URL `root`, without the host."""
    organization_url = web_below(root, (organization,))
    return ForgeAddress(
        forge="azure",
        host="",
        api=organization_url,
        project=(organization, project, repository),
        web=web_below(organization_url, (project, "_git", repository)),
    )


KIND = ForgeKind(
    name="azure",
    hosts=("dev.azure.com",),
    host_ends=(".visualstudio.com",),  # each customer has its own host
    client=Azure,
    place=_place,
    comments=AzureComments,
    compare="{0}/branchCompare?baseVersion=GB{1}&targetVersion=GB{2}",
    range="{0}/branchCompare?baseVersion=GC{1}&targetVersion=GC{2}",
)
