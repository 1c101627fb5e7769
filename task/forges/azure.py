"""Azure DevOps, Services and Server (REST API 7.1): labels, reviewers, drafts and auto-complete; no assignees.

learn.microsoft.com/rest/api/azure/devops/git. A list cuts descriptions to 400 characters; a wrong token is answered
with a page to sign in, under a status that looks like success.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from task.errors import CredentialsError, ForgeError, RepositoryError, TaskError
from task.forges import azure_comments
from task.forges.client import (
    PAIR,
    STAYS,
    Client,
    ForgeAddress,
    ForgeToken,
    Reach,
    dig,
    listed,
    names_none,
    numbered,
    valid_token,
    web_below,
)
from task.forges.host import (
    COMMENTS_STAY,
    AlreadyThere,
    ForgeKind,
    Host,
    Notes,
    Overtaken,
    missing,
    ours_to_delete,
    tried,
)
from task.forges.proposal import LONGEST_BODY
from task.git.hosts import RemoteUrl
from task.http import Response
from task.model import Proposal, Proposed
from task.urls import origin, path_part

_NEEDS = "give the token the scope Code (read & write), and its owner the permission to contribute to pull requests"
_SERVICES, _IDENTITIES = "https://dev.azure.com/", "https://vssps.dev.azure.com/"
_VERSION = "7.1"
_WITHOUT = {"assignees": "Azure DevOps has no assignees on pull requests: name them as reviewers"}
_STATES: dict[str, Any] = {"active": "open", "completed": "merged", "abandoned": "closed"}
_MERGE_POLICY = "fa4e907d-c16b-4a4c-9dfa-4916e5d171ab"  # "Limit merge types"
_STRATEGIES = {
    "allowNoFastForward": "noFastForward",
    "allowSquash": "squash",
    "allowRebase": "rebase",
    "allowRebaseMerge": "rebaseMerge",
}
_GUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_REFUSED, _CONFLICT = 400, 409
_NOT_NOW = (400, 403, 409)  # statuses for a request that is no longer open


class Azure(Host):
    """One repository on Azure DevOps."""

    longest = LONGEST_BODY["azure"]
    without = _WITHOUT

    def __init__(self, reach: Reach) -> None:
        """Contact nobody yet."""
        place = reach.place
        self._client = _AzureClient(reach)
        self._people = _AzureClient(replace(reach, place=replace(place, api=identities_api(place.api))))
        self._host, self._web = place.host, place.web
        _organization, project, repository = place.project
        self._project = f"/{path_part(project)}/_apis"
        self._base = f"{self._project}/git/repositories/{path_part(repository)}"

    def find(self, base: str, head: str) -> Proposed | None:
        """As `ForgeApi.find`: the open request, else the newest, read whole. Lists come newest first."""
        path, what = f"{self._base}/pullrequests", f"look for the pull request of {head}"
        params = {
            "searchCriteria.sourceRefName": f"refs/heads/{head}",
            "searchCriteria.targetRefName": f"refs/heads/{base}",
            "searchCriteria.status": "all",
            "$top": 50,
        }
        found = listed(self._client.json("GET", path, what, params=params), "value")
        ours = [one for one in found if isinstance(one, dict) and not one.get("forkSource")]
        if not ours:
            return None
        newest = next((one for one in ours if dig(one, "status") == "active"), ours[0])
        return self._proposed(self._read(numbered(dig(newest, "pullRequestId"), self._host)))

    def close(self) -> None:
        """As `ForgeApi.close`."""
        self._client.close()
        self._people.close()

    def create(self, proposal: Proposal) -> tuple[Proposed, Any]:
        """As `Host.create`."""
        body = {
            "sourceRefName": f"refs/heads/{proposal.head}",
            "targetRefName": f"refs/heads/{proposal.base}",
            "title": proposal.title,
            "description": proposal.body,
            "isDraft": proposal.draft,
        }
        what = f"open a pull request from {proposal.head} into {proposal.base}"
        answer = self._client.ask("POST", f"{self._base}/pullrequests", what, json=body, fine=(_REFUSED, _CONFLICT))
        if answer.status in (_REFUSED, _CONFLICT):
            if _key(answer) == "GitPullRequestExistsException" or b"TF401179" in answer.body:
                raise AlreadyThere
            raise self._client.refused(answer, what)
        item = self._client.parsed(answer, what)
        return self._proposed(item), item

    def read(self, number: str) -> tuple[Proposed, Any]:
        """As `Host.read`."""
        item = self._read(number)
        return self._proposed(item), item

    def write(self, said: Any, title: str, body: str) -> tuple[Proposed, Any]:
        """As `Host.write`."""
        number = self._proposed(said).number
        path, what = f"{self._base}/pullrequests/{path_part(number)}", f"update pull request {number}"
        text = {"title": title, "description": body}
        answer = self._client.ask("PATCH", path, what, json=text, fine=_NOT_NOW, again=True)
        item = self._client.parsed(answer, what) if answer.status < _REFUSED else self._read(number)
        now = self._proposed(item)
        if now.state != "open":
            raise Overtaken
        if answer.status >= _REFUSED:
            raise self._client.refused(answer, what)
        return now, item

    def complete(self, said: Any, proposal: Proposal, notes: Notes) -> tuple[Proposed, Any]:
        """As `Host.complete`."""
        found = self._proposed(said)
        request = f"{self._base}/pullRequests/{path_part(found.number)}"
        present = {dig(one, "id").lower() for one in listed(said, "reviewers")}
        for name in dict.fromkeys(proposal.reviewers):
            with tried(notes, f"reviewer {name}", "reviewer", name):
                identity = name if _GUID.fullmatch(name) else self._identity(name)
                if identity.lower() not in present:  # to add somebody again would take the vote away
                    path = f"{request}/reviewers/{path_part(identity)}"
                    self._client.ask("PUT", path, f"add the reviewer {name}", json={"vote": 0})
        for label in missing(proposal.labels, (dig(one, "name") for one in listed(said, "labels"))):
            with tried(notes, "labels", "label", label):
                self._client.ask("POST", f"{request}/labels", f"add the label {label}", json={"name": label})
        if proposal.auto_merge and not dig(said, "autoCompleteSetBy", "id"):
            with tried(notes, "auto-complete", "auto-merge"):
                self._auto_complete(said, found, proposal)
        return found, said

    def shut(self, said: Any, body: str) -> None:
        """As `Host.shut`."""
        path = f"{self._base}/pullrequests/{path_part(self._proposed(said).number)}"
        text = {"description": body, "status": "abandoned"}
        self._client.ask("PATCH", path, "abandon the pull request", json=text, again=True)

    def tip(self, head: str) -> str:
        """As `Host.tip`."""
        params = {"filter": f"heads/{head}"}  # every ref with this prefix
        found = self._client.json("GET", f"{self._base}/refs", f"read the branch {head}", params=params)
        names = (dig(one, "objectId") for one in listed(found, "value") if dig(one, "name") == f"refs/heads/{head}")
        return next(names, "")

    def _identity(self, name: str) -> str:
        """Return the id of the only identity with that name or address."""
        params = {"searchFilter": "General", "filterValue": name, "queryMembership": "None"}
        found = listed(self._people.json("GET", "/_apis/identities", f"look up {name}", params=params), "value")
        exact = [
            one
            for one in found
            if name.casefold() in (dig(one, "providerDisplayName").casefold(),
                                   dig(one, "properties", "Account", "$value").casefold(),
                                   dig(one, "properties", "Mail", "$value").casefold())
        ]  # fmt: skip
        ids = {identity for one in exact or found if (identity := dig(one, "id"))}
        if len(ids) != 1:
            hint = "name the person by e-mail address or id"
            raise ForgeError(f"{self._host} knows nobody, or several, of that name", hint=hint)
        return ids.pop()

    def _auto_complete(self, item: Any, found: Proposed, proposal: Proposal) -> None:
        """Let it complete once all policies are met, with the first merge type that they allow."""
        options: dict[str, Any] = {"deleteSourceBranch": ours_to_delete(proposal.head)}
        if strategy := self._strategy(dig(item, "repository", "id"), proposal.base):
            options["mergeStrategy"] = strategy
        body = {"autoCompleteSetBy": {"id": dig(item, "createdBy", "id")}, "completionOptions": options}
        path = f"{self._base}/pullrequests/{path_part(found.number)}"
        self._client.ask("PATCH", path, "set auto-complete", json=body, again=True)

    def _strategy(self, repository: str, base: str) -> str:
        """Return a merge type that the branch's policies allow; "" if there is no limit, or we may not read them."""
        params = {"repositoryId": repository, "refName": f"refs/heads/{base}", "policyType": _MERGE_POLICY}
        try:
            found = self._client.json(
                "GET", f"{self._project}/git/policy/configurations", "read policies", params=params
            )
        except (ForgeError, RepositoryError):
            return ""
        limits = [one for one in listed(found, "value") if isinstance(one, dict) and one.get("isEnabled")]
        if not limits:
            return ""
        allowed = (way for rule, way in _STRATEGIES.items() if dig(limits[0], "settings", rule) == "True")
        return next(allowed, "")

    def _read(self, number: str) -> Any:
        return self._client.json("GET", f"{self._base}/pullrequests/{path_part(number)}", f"read pull request {number}")

    def _proposed(self, item: Any) -> Proposed:
        state, number = _STATES.get(dig(item, "status"), "closed"), numbered(dig(item, "pullRequestId"), self._host)
        conflicted = state == "open" and dig(item, "mergeStatus") == "conflicts"
        return Proposed(
            url=f"{self._web}/pullrequest/{number}",
            number=number,
            state=state,
            title=dig(item, "title"),
            body=dig(item, "description"),
            head_commit=dig(item, "lastMergeSourceCommit", "commitId"),
            merge_commit=dig(item, "lastMergeCommit", "commitId") if state == "merged" else "",
            conflicts=conflicted,
            note="it conflicts with its base branch" if conflicted else "",
        )


class _AzureClient(Client):
    """Adds the API's version to each request, and recognises Azure's sign-in page."""

    def __init__(self, reach: Reach, stays: str = STAYS) -> None:
        headers = {"Accept": "application/json", "X-TFS-FedAuthRedirect": "Suppress"}
        super().__init__(reach, lambda: login(reach.token), _NEEDS, headers, stays=stays)
        self._version = _VERSION

    def ask(self, method: str, path: str, what: str, **more: Any) -> Response:
        """As `Client.ask`. If a Server is older than the wanted version of the API, ask again with its own version."""
        answer = self._versioned(method, path, what, more)
        if _key(answer) == "VssVersionOutOfRangeException":
            self._version = next(iter(re.findall(rb"supports is (\d+\.\d+)", answer.body)), b"6.0").decode()
            answer = self._versioned(method, path, what, more)
        if answer.status == _REFUSED and _REFUSED not in more.get("fine", ()):
            raise self.refused(answer, what)
        html = "html" in answer.headers.get("Content-Type", "")
        if answer.status == 203 or html or origin(answer.url) != origin(self.reach.place.api):
            raise self._locked_out(what)
        return answer

    def _versioned(self, method: str, path: str, what: str, more: dict[str, Any]) -> Response:
        fine = more.get("fine", ())
        params = {**(more.get("params") or {}), "api-version": self._version}
        return super().ask(method, path, what, **{**more, "params": params, "fine": (_REFUSED, *fine)})

    def refused(self, answer: Response, what: str) -> TaskError:
        """As `Client.refused`. A redirect to the sign-in page is a refusal, too."""
        if 300 <= answer.status < 400:
            return self._locked_out(what)
        return super().refused(answer, what)

    def _locked_out(self, what: str) -> TaskError:
        place = self.reach.place
        return CredentialsError(
            f"{place.host} answers with its page to sign in: could not {what}",
            hint=f"{valid_token(self.reach.token.secret, place.host, place.forge)}: a personal access token of this "
            f"organization, or System.AccessToken; {_NEEDS}",
        )


def login(token: ForgeToken) -> Mapping[str, str]:
    """Return the header for the job's own token (System.AccessToken, a JWT), or for a personal access token."""
    secret = token.secret.reveal()
    if not secret:
        return {}
    if secret.startswith("eyJ") and secret.count(".") == 2:  # parts of a JWT, less one
        return {"Authorization": f"Bearer {secret}"}
    return {"Authorization": f"Basic {b64encode(f'{token.user}:{secret}'.encode()).decode()}"}


def identities_api(api: str) -> str:
    """Return where to look up people: Services have a separate host for it, and a Server does it itself."""
    return _IDENTITIES + api.removeprefix(_SERVICES) if api.startswith(_SERVICES) else api


def _key(answer: Response) -> str:
    """Return the class of an error."""
    try:
        return dig(answer.json(), "typeKey")
    except (ValueError, RecursionError):
        return ""


def _place(remote: RemoteUrl, root: str) -> ForgeAddress:
    """Services: ORGANIZATION/PROJECT/_git/REPOSITORY. Server: the collection's path comes before the project."""
    parts = remote.parts
    if remote.ssh and parts[:1] in {("v3",), ("V3",)} and len(parts) == 4:
        return _address(root, parts[1], parts[2], parts[3])
    at = parts.index("_git") if "_git" in parts else -1
    if at < 0 or at + PAIR != len(parts):
        raise names_none("Azure DevOps", "https://dev.azure.com/organization/project/_git/repository")
    repository, before = parts[-1], parts[:at]
    host = remote.host
    if host.endswith(".visualstudio.com"):
        before = (host.partition(".")[0], *(part for part in before if part.lower() != "defaultcollection"))
        root = "https://dev.azure.com"
    if not before:
        raise names_none("Azure DevOps", "https://dev.azure.com/organization/project/_git/repository")
    if len(before) == 1:  # the project is left out because it has the repository's name
        before = (*before, repository)
    return _address(web_below(root, before[:-PAIR]), before[-PAIR], before[-1], repository)


def _address(root: str, organization: str, project: str, repository: str) -> ForgeAddress:
    api = web_below(root, (organization,))
    project_parts = (organization, project, repository)
    return ForgeAddress("azure", "", api, project_parts, web_below(api, (project, "_git", repository)))


KIND = ForgeKind(
    name="azure",
    hosts=("dev.azure.com",),
    host_ends=(".visualstudio.com",),  # each customer has a host
    client=Azure,
    place=_place,
    comments=lambda reach: azure_comments.AzureComments(_AzureClient(reach, COMMENTS_STAY)),
    compare="{0}/branchCompare?baseVersion=GB{1}&targetVersion=GB{2}",
)
