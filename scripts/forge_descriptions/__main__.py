"""The command described in `scripts.forge_descriptions`."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from graphql import TypeDefinitionNode, parse, print_ast

from scripts.forge_descriptions.typescript import Declarations, Schema, closed

DATA = Path(__file__).resolve().parent.parent.parent / "tests" / "data" / "forges"
Operations = dict[str, dict[str, Any]]
_GITEA = "/repos/{owner}/{repo}"
_AZURE = "/{project}/_apis/git"
_CENTER = "/projects/{projectKey}/repos/{repositorySlug}"
_CLOUD = "/repositories/{workspace}/{repo_slug}"


class Source(NamedTuple):
    """A package with an API description, and the function that reads it."""

    package: str  # name in the registry, and version
    folder: str  # path below PACKAGES
    about: str  # origin and license
    read: Callable[[Path], Operations]


def main() -> None:
    """Write the files for the given forges, or for all forges if none are given."""
    packages = os.environ.get("PACKAGES")
    if not packages:
        sys.exit("set PACKAGES to the folder with the unpacked packages")
    for forge in sys.argv[1:] or SOURCES:
        source = SOURCES[forge]
        folder = Path(packages, source.folder)
        found: dict[str, Any] = {
            "source": f"{source.package}: {source.about}",
            "operations": source.read(folder),
        }
        if forge == "github":
            found |= _of_github(folder, found["operations"])
            _graphql(
                Path(packages, "octokit-graphql-schema", "schema.graphql"), DATA / "github.graphql"
            )
        text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
        (DATA / f"{forge}.json").write_text(f"{text}\n", encoding="utf-8")


def operation(query: Mapping[str, Schema], request: Schema | None = None) -> dict[str, Any]:
    """Return one API operation in the format of the files."""
    parameters = [
        {"in": "query", "name": name, "schema": schema} for name, schema in sorted(query.items())
    ]
    return {"parameters": parameters, **({"request": request} if request is not None else {})}


def _match(pattern: str, text: str, flags: int = 0) -> re.Match[str]:
    """Return the first match in the package. Raises `ValueError` if nothing matches, for example in
    a newer version of the package.
    """
    found = re.search(pattern, text, flags)
    if found is None:
        raise ValueError(f"no match in the package: {pattern}")
    return found


def gitea(folder: Path) -> Operations:
    """Read a Python client that OpenAPI Generator created from Gitea's API description."""
    used = (
        "repo_get", "repo_get_branch", "repo_list_pull_requests", "repo_create_pull_request", "repo_get_pull_request",
        "repo_edit_pull_request", "repo_get_pull_request_by_base_head", "repo_merge_pull_request",
        "repo_cancel_scheduled_auto_merge", "repo_list_pull_reviews", "repo_create_pull_review_requests",
        "repo_list_branch_protection", "issue_list_labels", "issue_create_label", "issue_add_label", "issue_get_comments_and_timeline",
        "org_list_labels", "get_version", "issue_get_comments", "issue_create_comment", "issue_edit_comment",
        "user_get_current",
    )  # fmt: skip
    found: Operations = {}
    for path in sorted((folder / "api").glob("*_api.py")):
        functions = {
            one.name: one
            for one in ast.walk(ast.parse(path.read_text()))
            if isinstance(one, _FUNCTION)
        }
        for name in used:
            if f"_{name}_serialize" not in functions:
                continue
            sends = ast.unparse(functions[f"_{name}_serialize"])
            method, where = (
                _match(rf"{key}='([^']+)'", sends) for key in ("method", "resource_path")
            )
            types = {
                one.arg: _inner(one.annotation)
                for one in functions[name].args.args
                if one.annotation
            }
            query = {key: _of_python(types[arg], folder)
                     for key, arg in re.findall(r"_query_params\.append\(\('(\w+)', (\w+)", sends)}  # fmt: skip
            body = re.search(r"_body_params = (\w+)$", sends, re.MULTILINE)
            request = _of_python(types[body[1]], folder) if body and body[1] in types else None
            found[f"{method[1]} {where[1]}"] = operation(query, request)
    return found


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def _inner(annotation: ast.expr) -> str:
    """Return the inner type of `Annotated[Optional[TYPE], Field(…)]`."""
    text = ast.unparse(annotation)
    text = text.removeprefix("Annotated[").partition(", Field(")[0]
    return re.sub(r"^Optional\[(.*)\]$", r"\1", text)


def _of_python(text: str, folder: Path) -> Schema:
    """Return the schema for a Python type in a client created by OpenAPI Generator."""
    text = re.sub(r"^Optional\[(.*)\]$", r"\1", text)
    if match := re.fullmatch(r"List\[(.*)\]", text):
        return {"type": "array", "items": _of_python(match[1], folder)}
    plain = {
        "StrictStr": "string",
        "StrictInt": "integer",
        "StrictBool": "boolean",
        "datetime": "string",
    }
    if text in plain:
        return {"type": plain[text]}
    path = folder / "models" / f"{re.sub('(?<=[a-z])(?=[A-Z])', '_', text).lower()}.py"
    if not path.exists():
        return {}
    (model,) = (
        one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.ClassDef)
    )
    fields = [
        one
        for one in model.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]
    properties = {one.target.id: _of_python(_inner(one.annotation), folder)
                  for one in fields if isinstance(one.target, ast.Name) and not one.target.id.startswith("_")
                  and one.target.id != "additional_properties"}  # fmt: skip
    return {"type": "object", "properties": properties}


def gitlab(folder: Path) -> Operations:
    """Read GitLab's own Go client: its methods, paths, and option fields."""
    used = {
        "ListProjectMergeRequests": "merge_requests", "GetMergeRequest": "merge_requests",
        "CreateMergeRequest": "merge_requests", "UpdateMergeRequest": "merge_requests",
        "AcceptMergeRequest": "merge_requests", "GetBranch": "branches", "ListUsers": "users", "GetProject": "projects",
        "CurrentUser": "users", "ListMergeRequestNotes": "notes", "CreateMergeRequestNote": "notes",
        "UpdateMergeRequestNote": "notes", "ListProjectDeployments": "deployments",
        "CreateProjectDeployment": "deployments", "UpdateProjectDeployment": "deployments",
        "EditEnvironment": "environments", "AddMergeRequestToMergeTrain": "merge_trains",
        "ListProtectedBranches": "protected_branches",
    }  # fmt: skip
    found: Operations = {}
    for name, file in used.items():
        text = (folder / f"{file}.go").read_text()
        match = _match(rf"^func \(s \*\w+\) {name}\(.*?^}}", text, re.MULTILINE | re.DOTALL)
        method = re.search(r"withMethod\(http\.Method(\w+)\)", match[0])
        path = _match(r'withPath\("([^"]+)"', match[0])
        verb, number = method[1].upper() if method else "GET", iter("abc")
        where = re.sub("%[sd]", lambda _one, number=number: f"{{{next(number)}}}", path[1])
        options = re.search(r"opts? \*(\w+)", match[0])
        fields = _of_go(text, options[1], "url" if verb == "GET" else "json") if options else {}
        request = {"type": "object", "properties": fields} if verb != "GET" else None
        found[f"{verb} /{where}"] = operation(fields if verb == "GET" else {}, request)
    return found


def _of_go(text: str, struct: str, tag: str) -> dict[str, Schema]:
    """Return a Go struct's fields, keyed by their tag names."""
    match = _match(rf"^type {struct} struct \{{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)
    fields: dict[str, Schema] = (
        {"page": {"type": "integer"}, "per_page": {"type": "integer"}} if tag == "url" else {}
    )
    plain = {"string": "string", "bool": "boolean", "int": "integer", "int64": "integer"}
    for kind, tags in re.findall(r"^\t\w+\s+(\S+)\s+`([^`]*)`", match[1], re.MULTILINE):
        name = re.search(rf'{tag}:"([^",]+)', tags)
        item = kind.lstrip("*").removeprefix("[]")
        one: Schema = {"type": plain[item]} if item in plain else {}
        if name and name[1] != "-":
            fields[name[1]] = {"type": "array", "items": one} if "[]" in kind else one
    return fields


def bitbucket(folder: Path) -> Operations:
    """Read the declarations that openapi-typescript generated from Bitbucket Cloud's API
    description.
    """
    used = (
        f"GET {_CLOUD}/pullrequests", f"POST {_CLOUD}/pullrequests", f"GET {_CLOUD}/pullrequests/{{pull_request_id}}",
        f"PUT {_CLOUD}/pullrequests/{{pull_request_id}}", f"POST {_CLOUD}/pullrequests/{{pull_request_id}}/decline",
        f"GET {_CLOUD}/refs/branches/{{name}}", f"GET {_CLOUD}/branch-restrictions", f"GET {_CLOUD}",
        f"GET {_CLOUD}/commit/{{commit}}", "GET /workspaces/{workspace}/members",
        f"GET {_CLOUD}/pullrequests/{{pull_request_id}}/comments",
        f"POST {_CLOUD}/pullrequests/{{pull_request_id}}/comments",
        f"PUT {_CLOUD}/pullrequests/{{pull_request_id}}/comments/{{comment_id}}",
    )  # fmt: skip
    text = (folder / "dist/cloud/openapi/openapi-typescript.d.ts").read_text()
    found = _of_openapi_typescript(text, used, "")
    for (
        name,
        one,
        # "filtering and sorting" and "pagination" are only described once for all lists
    ) in found.items():
        if name.startswith("GET") and not name.endswith("}"):
            more = {key: {"type": "string"} for key in ("q", "sort", "fields")} | {
                "page": {"type": "integer"}, "pagelen": {"type": "integer"}}  # fmt: skip
            one["parameters"] += operation(more)["parameters"]
    return found


def data_center(folder: Path) -> Operations:
    """Read the declarations that openapi-typescript generated from Bitbucket Data Center's API
    description.
    """
    used = (
        f"GET {_CENTER}/pull-requests", f"POST {_CENTER}/pull-requests",
        f"GET {_CENTER}/pull-requests/{{pullRequestId}}",
        f"PUT {_CENTER}/pull-requests/{{pullRequestId}}", f"POST {_CENTER}/pull-requests/{{pullRequestId}}/merge",
        f"POST {_CENTER}/pull-requests/{{pullRequestId}}/decline",
        f"GET {_CENTER}/pull-requests/{{pullRequestId}}/auto-merge", f"GET {_CENTER}/commits",
        f"GET {_CENTER}/pull-requests/{{pullRequestId}}/activities",
        f"POST {_CENTER}/pull-requests/{{pullRequestId}}/comments",
        f"PUT {_CENTER}/pull-requests/{{pullRequestId}}/comments/{{commentId}}",
        "GET /application-properties", f"GET {_CENTER}",
    )  # fmt: skip
    text = (folder / "dist/server/openapi/openapi-typescript.d.ts").read_text()
    return _of_openapi_typescript(text, used, "/api/latest")


def _of_openapi_typescript(text: str, used: tuple[str, ...], prefix: str) -> Operations:
    declared, found = Declarations(text), Operations()

    def named(name: str) -> Schema:
        return declared.member("components", name)

    for wanted in used:
        method, _, path = wanted.partition(" ")
        one = declared.member("paths", f"{prefix}{path}")["properties"][method.lower()]
        if ref := one.get("$ref"):
            one = declared.member("operations", ref)
        parts = one["properties"]
        query = parts["parameters"]["properties"].get("query", {}).get("properties", {})
        sends = (
            parts.get("requestBody", {})
            .get("properties", {})
            .get("content", {})
            .get("properties", {})
        )
        body = sends.get("application/json")
        inner = {name: closed(schema, named) for name, schema in query.items()}
        request = closed(body, named) if body else None
        if (
            request and "/comments" in wanted
            # otherwise, each comment would contain its pull request with all commits and repositories
        ):
            kept = {
                name: one
                for name, one in request["properties"].items()
                if name in ("content", "text", "version")
            }
            request = {"type": "object", "properties": kept}
        found[wanted] = operation(inner, request)
    return found


def azure(folder: Path) -> Operations:
    """Read Microsoft's own client for extensions: its routes, queries, and declared body types."""
    files = ("Git/Git.d.ts", "Core/Core.d.ts", "WebApi/WebApi.d.ts")
    declared = [Declarations((folder / name).read_text()) for name in files]
    used = {
        "getPullRequests": "", "createPullRequest": "GitPullRequest", "getPullRequest": "",
        "updatePullRequest": "GitPullRequest", "getRefs": "", "getPullRequestLabels": "",
        "createPullRequestLabel": "WebApiCreateTagRequestData", "createPullRequestReviewer": "IdentityRefWithVote",
        "getRepository": "", "getThreads": "", "createThread": "CommentThread", "updateComment": "Comment",
    }  # fmt: skip
    text = (folder / "Git/GitClient.js").read_text()

    def named(name: str) -> Schema:
        return next((found for one in declared if (found := one.interface(name))), {})

    found: Operations = {}
    for name, body in used.items():
        match = _match(rf"^    {name}\((.*?)^    }}", text, re.MULTILINE | re.DOTALL)
        method = re.search(r'method: "(\w+)"', match[0])
        route = _match(r'routeTemplate: "([^"]+)"', match[0])
        values = _match(r"routeValues: \{(.*?)\}", match[0], re.DOTALL)
        given = re.findall(r"(\w+):", values[1])
        # Parts of the route that have no value are omitted.
        parts = [
            part
            for part in route[1].split("/")
            if not part.startswith("{") or part.strip("{*}") in given
        ]
        query = re.search(r"const queryValues = \{(.*?)\n            \};", match[0], re.DOTALL)
        names = re.findall(r"^ +'?([$\w]+)'?:", query[1], re.MULTILINE) if query else []
        parameters: dict[str, Schema] = {
            one: {} for one in (*names, "api-version") if one != "searchCriteria"
        }
        if "searchCriteria" in names:
            fields = declared[0].interface("GitPullRequestSearchCriteria")["properties"]
            parameters |= {f"searchCriteria.{one}": {} for one in fields}
        verb = method[1] if method else "GET"
        found[f"{verb} /{'/'.join(parts)}"] = operation(
            parameters, closed({"$ref": body}, named) if body else None
        )
    # Microsoft's Python client contains more operations, but
    # no routes. The routes come from learn.microsoft.com.
    python = folder.parent / "azure_devops/azure/devops/v7_1"
    for file, function, path in (
        (
            "git/git_client_base.py",
            "get_policy_configurations",
            "/{project}/_apis/git/policy/configurations",
        ),
        ("identity/identity_client.py", "read_identities", "/_apis/identities"),
        (
            "security/security_client.py",
            "query_access_control_lists",
            "/_apis/accesscontrollists/{securityNamespaceId}",
        ),
    ):
        match = _match(
            rf"^    def {function}\(.*?(?=^    def )",
            (python / file).read_text(),
            re.MULTILINE | re.DOTALL,
        )
        names = ["api-version", *re.findall(r"query_parameters\['([^']+)'\]", match[0])]
        found[f"GET {path}"] = operation({one: {} for one in names})
    return found


def github(folder: Path) -> Operations:
    """Read GitHub's OpenAPI description, including responses, so that the responses of the fake
    forge can be compared with them.
    """
    used = (
        "GET /repos/{owner}/{repo}/git/ref/{ref}",
        "POST /repos/{owner}/{repo}/git/refs", "DELETE /repos/{owner}/{repo}/git/refs/{ref}",
        "GET /repos/{owner}/{repo}/pulls", "POST /repos/{owner}/{repo}/pulls",
        "GET /repos/{owner}/{repo}/pulls/{pull_number}", "PATCH /repos/{owner}/{repo}/pulls/{pull_number}",
        "GET /repos/{owner}/{repo}/pulls/{pull_number}/reviews", "PUT /repos/{owner}/{repo}/pulls/{pull_number}/merge",
        "POST /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers",
        "POST /repos/{owner}/{repo}/issues/{issue_number}/assignees",
        "POST /repos/{owner}/{repo}/issues/{issue_number}/labels",
        "POST /repos/{owner}/{repo}/issues/{issue_number}/comments",
        "PATCH /repos/{owner}/{repo}/issues/comments/{comment_id}",
        "GET /repos/{owner}/{repo}/deployments", "POST /repos/{owner}/{repo}/deployments",
        "POST /repos/{owner}/{repo}/deployments/{deployment_id}/statuses",
        "POST /repos/{owner}/{repo}/statuses/{sha}", "GET /repos/{owner}/{repo}/rules/branches/{branch}",
    )  # fmt: skip
    whole = json.loads((folder / "generated/api.github.com.json").read_text())
    found: Operations = {}
    for name in used:
        method, _, path = name.partition(" ")
        described = whole["paths"][path][method.lower()]
        parameters = [_referred(whole, one) for one in described["parameters"]]
        found[name] = {
            "parameters": [{key: _reduced(one[key]) for key in ("in", "name", "required", "schema") if key in one}
                           for one in parameters],
            "responses": {status: _reduced(answer["content"]["application/json"]["schema"])
                          for status, one in described["responses"].items()
                          if status < "3" and "content" in (answer := _referred(whole, one))},
        }  # fmt: skip
        if body := described.get("requestBody"):
            found[name]["request"] = _reduced(body["content"]["application/json"]["schema"])
    return found


def _of_github(folder: Path, operations: Operations) -> dict[str, Any]:
    """Return the schemas that these operations use, and GitHub's example responses."""
    components = json.loads((folder / "generated/api.github.com.json").read_text())["components"]
    schemas: dict[str, Schema] = {}
    left = {*re.findall(r"#/schemas/([\w-]+)", json.dumps(operations))}
    while left:
        name = left.pop()
        schemas[name] = _reduced(components["schemas"][name])
        left |= {*re.findall(r"#/schemas/([\w-]+)", json.dumps(schemas[name]))} - set(schemas)
    names = {
        "issue": "issue", "pull": "pull-request", "review": "pull-request-review", "comment": "issue-comment",
        "deployment": "deployment", "deployment status": "deployment-status", "status": "status",
    }  # fmt: skip
    return {
        "schemas": schemas,
        "examples": {key: components["examples"][name]["value"] for key, name in names.items()},
    }


_OF_A_QUEUE = {
    "AddedToMergeQueueEvent": "ADDED_TO_MERGE_QUEUE_EVENT",
    "AutoMergeDisabledEvent": "AUTO_MERGE_DISABLED_EVENT",
    "RemovedFromMergeQueueEvent": "REMOVED_FROM_MERGE_QUEUE_EVENT",
}


def _graphql(source: Path, target: Path) -> None:
    """Write GitHub's GraphQL schema, limited to the response fields that we read, but with all
    fields of our requests.
    """
    asked = {
        "Mutation": ["createCommitOnBranch", "updateRefs", "enablePullRequestAutoMerge", "enqueuePullRequest"],
        "CreateCommitOnBranchPayload": ["commit"], "Commit": ["oid"], "Query": ["repository"],
        "Repository": ["id", "pullRequest", "refs"],
        "RefConnection": ["nodes"], "Ref": ["name", "refUpdateRule"], "RefUpdateRule": ["pattern"],
        "RefOrder": ["direction"],
        "UpdateRefsPayload": ["clientMutationId"],
        "EnablePullRequestAutoMergePayload": ["pullRequest"],
        "PullRequest": [
            "state", "autoMergeRequest", "comments", "isInMergeQueue", "isMergeQueueEnabled", "timelineItems",
        ],
        "PullRequestTimelineItemsConnection": ["nodes"],
        "PullRequestTimelineItems": list(_OF_A_QUEUE),
        "PullRequestTimelineItemsItemType": list(_OF_A_QUEUE.values()),
        **{name: ["actor", "reason"] for name in _OF_A_QUEUE}, "Actor": ["login"],
        "IssueCommentConnection": ["nodes", "pageInfo"], "PageInfo": ["hasPreviousPage", "startCursor"],
        "IssueComment": ["fullDatabaseId", "body", "url", "viewerDidAuthor"],
        "AutoMergeRequest": ["enabledAt"],
        "EnqueuePullRequestPayload": ["mergeQueueEntry"], "MergeQueueEntry": ["position"],
    }  # fmt: skip
    known = {one.name.value: one for one in parse(source.read_text(), no_location=True).definitions
             if isinstance(one, TypeDefinitionNode)}  # fmt: skip
    found: dict[str, str] = {}
    left = [*asked]
    while left:
        name = left.pop()
        if name in found or name not in known:
            continue
        fields = [one for one in getattr(known[name], "fields", ()) or ()
                  if name not in asked or one.name.value in asked[name]]  # fmt: skip
        texts = (re.sub(r'""".*?"""', "", print_ast(one), flags=re.DOTALL) for one in fields)
        lines = [" ".join(re.sub(r" @\w+(\([^)]*\))?", "", text).split()) for text in texts]
        choices = [one.name.value for one in getattr(known[name], "values", ()) or ()
                   if name not in asked or one.name.value in asked[name]]  # fmt: skip
        members = [one.name.value for one in getattr(known[name], "types", ()) or ()
                   if one.name.value in asked.get(name, ())]  # fmt: skip
        kind = (
            known[name]
            .kind.removesuffix("_definition")
            .removesuffix("_type")
            .replace("input_object", "input")
        )
        kind = {"object": "type"}.get(kind, kind)
        body = "".join(f"  {line}\n" for line in (*lines, *choices))
        united = f" = {' | '.join(members)}" if members else ""
        found[name] = f"{kind} {name} {{\n{body}}}\n" if body else f"{kind} {name}{united}\n"
        left += members + re.findall(
            r"\w+", " ".join(line.partition(":")[2] + line.partition("(")[2] for line in lines)
        )
    about = "# npm package @octokit/graphql-schema 15.26.1: the used parts of GitHub's GraphQL schema; MIT, Octokit\n"
    target.write_text(
        about + "\n" + "\n".join(found[name] for name in sorted(found)), encoding="utf-8"
    )


def _referred(whole: Any, one: Any) -> Any:
    """Return the schema that a reference in the description points to."""
    for name in one["$ref"].split("/")[1:] if "$ref" in one else []:
        whole = whole[name]
    return whole if "$ref" in one else one


def _reduced(schema: Any) -> Any:
    """Return only those parts of a schema that a validator applies. OpenAPI's `nullable` is
    converted to JSON Schema.
    """
    if isinstance(schema, list):
        return [_reduced(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace("#/components/schemas/", "#/schemas/")}
    found: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            found[key] = {name: _reduced(one) for name, one in value.items()}
        elif key not in _UNUSED:
            found[key] = _reduced(value)
    if schema.get("nullable"):
        if "type" in found:
            found["type"] = [found["type"], "null"]
        if "enum" in found:
            found["enum"] = [*found["enum"], *([] if None in found["enum"] else [None])]
    return found


_UNUSED = frozenset(
    (
        "description",
        "example",
        "examples",
        "nullable",
        "title",
        "default",
        "deprecated",
        "x-github",
        "externalDocs",
    )
)


SOURCES: Mapping[str, Source] = {
    "github": Source(
        "npm package @octokit/openapi 23.0.2", "octokit-openapi",
        "GitHub's OpenAPI description (generated/api.github.com.json); MIT, Octokit contributors and GitHub", github,
    ),
    "gitea": Source(
        "PyPI package gitea-async-sdk 1.26.2", "gitea_async_sdk/gitea_async",
        "generated from Gitea 1.26.2's API description (swagger.v1.json); Apache-2.0", gitea,
    ),
    "gitlab": Source(
        "Go module gitlab.com/gitlab-org/api/client-go v1.46.0", "client-go",
        "the option fields of GitLab's own client; Apache-2.0", gitlab,
    ),
    "bitbucket": Source(
        "npm package @coderabbitai/bitbucket 1.1.4", "coderabbitai-bitbucket",
        "declarations generated from Bitbucket Cloud's API description; Apache-2.0", bitbucket,
    ),
    "bitbucket-server": Source(
        "npm package @coderabbitai/bitbucket 1.1.4", "coderabbitai-bitbucket",
        "declarations generated from Bitbucket Data Center's API description; Apache-2.0", data_center,
    ),
    "azure": Source(
        "npm package azure-devops-extension-api 5.276.0", "azure-devops-extension-api",
        "the routes, queries, and types of Microsoft's own client; MIT", azure,
    ),
}  # fmt: skip

if __name__ == "__main__":
    main()
