"""Whole runs with Applications from a cluster: what is read, written, refreshed, patched, and
reported.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.kubernetes_api import (
    APPLICATIONS,
    CONFIG_MAPS,
    EVENTS,
    PROJECTS,
    SECRETS,
    UPDATERS,
    KubernetesApi,
    running,
)
from fakes.oci_images import image
from fakes.registry_api import registry_api
from support import Result, bare_repo, commit, git, show
from support.clusters import full_application, kubeconfig, live_app, refreshed, rules
from support.git_servers import git_server
from support.real_servers import sshd
from support.runs import KUSTOMIZATION, PREFIX, WEB, application, manifest, repository, run, target

from task.annotations.application import parse_application
from task.annotations.subscription import subscribe
from task.argocd.repo_secrets import RepoCredentials, credentials_of
from task.model import Subscription
from task.output.log import Log
from task.secret import Secret
from task.settings import Settings, SourceOptions
from task.wiring.argo import sources
from task.wiring.git import GitClients

HTTPS = "https://git.example.com/"
PASSWORD = "pa55-of-the-cluster"
CONTENT = image("linux/amd64")


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with running() as found:
        yield found


@pytest.fixture
def run_here(tmp_path: Path, api: KubernetesApi) -> Any:
    """A function that runs the command with this cluster."""

    def call(*more: str | Path, command: str = "run", **others: Any) -> Result:
        config = kubeconfig(tmp_path, api)
        return run(
            "--applications", "cluster", "--kubeconfig", config, *more, command=command, **others
        )

    return call


def test_a_run_updates_the_applications_of_a_cluster(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web", "api")
    api.add(
        APPLICATIONS,
        full_application("web", repo),
        full_application("api", repo),
        full_application("other", repo, image_list="x=ghcr.io/acme/other"),
    )
    api.add(APPLICATIONS, full_application("plain", repo, image_list=""))
    result = run_here()
    assert (result.code, result.json["status"]) == (0, "updated")
    assert rules(result) == {"argocd/api": "admitted", "argocd/web": "admitted"}
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    assert git(repo, "rev-list", "--count", "main") == "2"
    assert result.json["counts"]["applications"] == 3  # only Applications with an image list
    assert result.json["counts"]["matched"] == 2


def test_only_metadata_is_read_for_applications_that_do_not_track_the_image(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    api.add(
        APPLICATIONS,
        full_application("web", repo),
        *(full_application(f"o{n}", repo, image_list="x=acme/other") for n in range(1200)),
    )
    assert run_here().code == 0
    lists = [one for one in api.asked if one.verb == "list" and one.resource == APPLICATIONS]
    assert len(lists) == 3
    assert all("PartialObjectMetadataList" in one.accept for one in lists)
    assert [
        one.name for one in api.asked if one.verb == "get" and one.resource == APPLICATIONS
    ] == ["web"]


def test_only_updated_applications_are_refreshed(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web", "api", "same")
    commit(repo, {target("same"): KUSTOMIZATION.replace("1.0.0", "1.1.0")})
    api.add(
        APPLICATIONS,
        full_application("web", repo),
        full_application("api", repo, allow_tags="regexp:^2"),
        full_application("same", repo),
    )
    result = run_here()
    assert rules(result) == {
        "argocd/web": "admitted",
        "argocd/api": "allow-tags",
        "argocd/same": "same",
    }
    assert refreshed(api) == ["argocd/web"]
    assert (
        api.of(APPLICATIONS, "web")["metadata"]["annotations"]["argocd.argoproj.io/refresh"]
        == "normal"
    )
    assert run_here().json["status"] == "unchanged"
    assert refreshed(api) == ["argocd/web"]


@pytest.mark.parametrize("how", [("--no-refresh",), ()])
def test_the_no_refresh_option_skips_the_refresh(
    tmp_path: Path, api: KubernetesApi, run_here: Any, how: tuple[str, ...]
) -> None:
    api.add(APPLICATIONS, full_application("web", repository(tmp_path, "web")))
    assert run_here(*how).code == 0
    assert refreshed(api) == ([] if how else ["argocd/web"])


def test_a_plan_changes_neither_git_nor_the_cluster(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    api.add(APPLICATIONS, full_application("web", repo), live_app("live"))
    before = json.dumps(list(api.objects[APPLICATIONS].values()))
    result = run_here("--kubernetes-events", "--wait", command="plan")
    assert (result.code, sorted(rules(result))) == (0, ["argocd/live", "argocd/web"])
    assert git(repo, "rev-list", "--count", "main") == "1"
    assert json.dumps(list(api.objects[APPLICATIONS].values())) == before
    assert {one.verb for one in api.asked} == {"list", "get"}


def test_a_forbidden_refresh_is_a_warning(tmp_path: Path, api: KubernetesApi) -> None:
    repo = repository(tmp_path, "web")
    api.add(APPLICATIONS, full_application("web", repo))
    api.tokens = {"reader": "system:serviceaccount:ci:reader"}
    api.rules = [
        role(
            "ClusterRole",
            [
                {
                    "apiGroups": ["argoproj.io"],
                    "resources": ["applications"],
                    "verbs": ["list", "get"],
                }
            ],
        ),
        binding("ClusterRole"),
    ]
    config = kubeconfig(tmp_path, api, "reader")
    result = run("--applications", "cluster", "--kubeconfig", config)
    assert (result.code, result.json["status"]) == (0, "updated")
    assert "cannot request a refresh" in result.stderr
    assert "verbs: [patch]" in result.stderr
    assert "reader\n" not in result.stderr


def role(kind: str, granted: list[dict[str, Any]], name: str = "reader") -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": "argocd"}, "rules": granted}


def binding(kind: str, name: str = "reader") -> dict[str, Any]:
    return {
        "kind": f"{kind}Binding",
        "metadata": {"name": name, "namespace": "argocd"},
        "roleRef": {"kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "ci"}],
    }


def test_without_cluster_wide_access_only_the_argo_cd_namespace_is_read(
    tmp_path: Path, api: KubernetesApi
) -> None:
    repo = repository(tmp_path, "web", "far")
    api.add(
        APPLICATIONS, full_application("web", repo), full_application("far", repo, namespace="team")
    )
    api.tokens = {"reader": "system:serviceaccount:ci:reader"}
    granted = [
        {
            "apiGroups": ["argoproj.io"],
            "resources": ["applications"],
            "verbs": ["list", "get", "patch"],
        }
    ]
    api.rules = [role("Role", granted), binding("Role")]
    result = run("--applications", "cluster", "--kubeconfig", kubeconfig(tmp_path, api, "reader"))
    assert (result.code, rules(result)) == (0, {"argocd/web": "admitted"})
    assert "using only those in namespace 'argocd'" in result.stderr


def test_a_run_without_any_access_exits_4_and_names_the_missing_permission(
    tmp_path: Path, api: KubernetesApi
) -> None:
    api.tokens = {"nobody": "system:serviceaccount:ci:nobody"}
    result = run("--applications", "cluster", "--kubeconfig", kubeconfig(tmp_path, api, "nobody"))
    assert (result.code, result.json["status"]) == (4, "failed")
    assert "is not allowed to list applications.argoproj.io" in result.stderr
    result = run(
        "--applications", "cluster", "--kubeconfig", kubeconfig(tmp_path, api, "wrong-token")
    )
    assert result.code == 4
    assert "does not accept" in result.stderr
    assert "wrong-token" not in result.stderr + result.stdout


NARROW = [
    (("--application", "web"), ["argocd/web"]),
    (("--application", "team/*"), ["team/far"]),
    (("--namespace", "team"), ["team/far"]),
    (("--project", "shop"), ["team/far"]),
    (("--selector", "team=a"), ["argocd/api"]),
]


@pytest.mark.parametrize(("options", "found"), NARROW)
def test_options_narrow_the_selection_of_applications(
    tmp_path: Path, api: KubernetesApi, run_here: Any, options: tuple[str, ...], found: list[str]
) -> None:
    repo = repository(tmp_path, "web", "api", "far")
    labelled = full_application("api", repo)
    labelled["metadata"]["labels"] = {"team": "a"}
    api.add(
        APPLICATIONS,
        full_application("web", repo),
        labelled,
        full_application("far", repo, namespace="team", project="shop"),
    )
    result = run_here(*options)
    assert (result.code, sorted(rules(result))) == (0, found)
    assert result.json["counts"]["applications"] == 1


def test_an_image_that_no_application_tracks_is_a_warning(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    """Only metadata is read for Applications that do not track the image, but that is enough to
    suggest the closest name.
    """
    repo = repository(tmp_path, "web")
    api.add(
        APPLICATIONS,
        full_application("web", repo),
        full_application("far", repo, namespace="team", image_list="x=quay.io/acme/far"),
    )
    result = run_here(image="ghcr.io/acme/wbe:1.0.0")
    assert (result.code, result.json["counts"]["applications"]) == (0, 2)
    assert (
        "no Application tracks ghcr.io/acme/wbe\n  fix: did you mean ghcr.io/acme/web?"
        in result.stderr
    )
    assert not [one for one in api.requests() if one.startswith("get applications")]
    assert run_here("--require-match", image="ghcr.io/acme/far:1.0.0").code == 5


def test_reports_mistakes_in_applications_that_do_not_track_the_image(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    others = [
        full_application(
            f"o{n}", repo, image_list="x=acme/other", x__alow_tags="any", project="shop"
        )
        for n in range(6)
    ]
    listless = full_application("listless", repo, image_list="", image_lst=f"web={WEB}")
    api.add(APPLICATIONS, full_application("web", repo, colour="blue"), listless, *others)
    result = run_here()
    assert result.code == 0
    assert [one["application"] for one in result.json["errors"]] == [
        "argocd/web",
        "argocd/listless",
        None,
    ]
    assert (
        "6 other Applications have annotations that have no effect: argocd/o0 (x.alow-tags), "
        in result.stderr
    )
    # the metadata of these Applications does not include their project
    narrowed = run_here("--project", "default", image=f"{WEB}:1.2.0")
    assert [one["application"] for one in narrowed.json["errors"]] == ["argocd/web"]


def test_an_unknown_application_name_is_an_error_with_a_suggestion(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    api.add(
        APPLICATIONS,
        full_application("web", repo),
        full_application("api", repo, image_list="x=acme/other"),
    )
    known = run_here("--application", "api")  # it exists, but does not track the image
    assert (known.code, [one["rule"] for one in known.json["errors"]]) == (0, ["untracked"])
    unknown = run_here("--application", "wbe")
    assert unknown.code == 3
    assert "there is no Application named 'wbe'\n  fix: did you mean web?" in unknown.stderr


def test_an_image_updater_resource_configures_the_applications_that_it_references(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    api.add(
        APPLICATIONS,
        full_application("web", repo, image_list="", write_back_method="", write_back_target=""),
    )
    api.add(
        UPDATERS,
        {
            "metadata": {"name": "all", "namespace": "argocd"},
            "spec": {
                "writeBackConfig": {
                    "method": "git",
                    "gitConfig": {"writeBackTarget": "kustomization"},
                },
                "applicationRefs": [
                    {"namePattern": "w*", "images": [{"alias": "web", "imageName": WEB}]}
                ],
            },
        },
    )
    result = run_here()
    assert (result.code, rules(result)) == (0, {"argocd/web": "admitted"})
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))


def test_lint_checks_every_application_in_the_cluster(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    broken = full_application("web", repo, update_strategy="nonsense")
    listless = full_application("none", repo, image_list="")
    api.add(APPLICATIONS, broken, listless, full_application("good", repo))
    (tmp_path / "cluster").write_text(
        "argocd-image-updater.argoproj.io/update-strategy: nonsense\n"
    )
    result = run_here(command="lint", cwd=tmp_path)
    found = result.json["findings"]
    assert result.code == 3
    assert {(one["application"], one["severity"]) for one in found} >= {
        ("argocd/web", "error"), ("argocd/none", "warning"),
    }  # fmt: skip
    assert {(one["file"], one["line"]) for one in found} == {(None, None)}


def test_hold_rollback_and_release_work_with_applications_in_a_cluster(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    api.add(APPLICATIONS, full_application("web", repo))
    assert run_here().code == 0
    back = run_here("web", "--to", "previous", "--reason", "it breaks", command="rollback")
    assert (back.code, back.json["status"]) == (0, "updated"), back.stderr
    assert "newTag: 1.0.0" in show(repo, "main", target("web"))
    assert rules(run_here(image=f"{WEB}:1.2.0")) == {"argocd/web": "held"}
    assert run_here("argocd/web", command="release").code == 0
    assert "newTag: 1.2.0" in show(repo, "main", target("web"))
    assert refreshed(api)[:2] == ["argocd/web"] * 2
    unknown = run_here("nobody", "--reason", "x", command="hold")
    assert unknown.code == 3
    assert "there is no Application named 'nobody'" in unknown.stderr


# Credentials


def secret(name: str, namespace: str = "argocd", kind: str = "", **data: str) -> dict[str, Any]:
    labels = {"argocd.argoproj.io/secret-type": kind} if kind else {}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "data": encoded}


def login(name: str, user: str, url: str, kind: str = "repository", **more: str) -> dict[str, Any]:
    return secret(
        name, kind=kind, type="git", url=url, username=user, password=f"{PASSWORD}-{user}", **more
    )


def hidden(result: Result) -> bool:
    return PASSWORD not in result.stdout + result.stderr


KINDS = [("repository", "repo.git"), ("repository", "repo"), ("repo-creds", "")]


@pytest.mark.parametrize(("kind", "end"), KINDS)
def test_a_run_uses_the_repository_login_of_argo_cd(
    tmp_path: Path, api: KubernetesApi, run_here: Any, kind: str, end: str
) -> None:
    repo = repository(tmp_path, "web")
    git(repo, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server:
        server.logins = {"argo": f"{PASSWORD}-argo"}
        api.add(SECRETS, login("one", "argo", f"{server.url}{end}", kind))
        api.add(APPLICATIONS, full_application("web", f"{server.url}repo.git"))
        result = run_here("--log-level", "debug")
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert {user for _, user in server.seen} >= {"argo"}
    assert hidden(result)


def test_a_run_uses_the_secret_named_by_an_annotation(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    git(repo, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server:
        server.logins = {"mine": f"{PASSWORD}-mine"}
        api.add(SECRETS, secret("git", "team", username="mine", password=f"{PASSWORD}-mine"))
        api.add(
            APPLICATIONS,
            full_application(
                "web", f"{HTTPS}repo.git", "team", write_back_method="git:secret:team/git"
            ),
        )
        result = run_here("--rewrite-url", f"{HTTPS}={server.url}", "--log-level", "debug")
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert hidden(result)


@pytest.mark.measured
def test_each_application_is_pushed_with_the_login_from_its_own_secret(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "a", "b", "c")
    git(repo, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server:
        server.logins = {user: f"{PASSWORD}-{user}" for user in ("one", "two")}
        api.add(SECRETS, login("repo", "one", f"{HTTPS}repo.git"))
        api.add(SECRETS, secret("git", "team", username="two", password=f"{PASSWORD}-two"))
        api.add(
            APPLICATIONS,
            full_application("a", f"{HTTPS}repo.git"),
            full_application("c", f"{HTTPS}repo"),
        )
        api.add(
            APPLICATIONS,
            full_application(
                "b", f"{HTTPS}repo.git", "team", write_back_method="git:secret:team/git"
            ),
        )
        result = run_here("--rewrite-url", f"{HTTPS}={server.url}")
    assert (result.code, len(result.json["decisions"])) == (0, 3), result.stderr
    assert sorted(one["applications"] for one in result.json["commits"]) == [
        ["argocd/a", "argocd/c"],
        ["team/b"],
    ]
    pushed = {
        user
        for path, user in server.seen
        if path.startswith("POST") and "receive-pack" in path and user
    }
    assert pushed == {"one", "two"}
    for name in "abc":
        assert "newTag: 1.1.0" in show(repo, "main", target(name))
    assert hidden(result)


def test_projects_with_the_same_login_share_a_commit(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "a", "b", "c")
    git(repo, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server:
        server.logins = {user: f"{PASSWORD}-{user}" for user in ("all", "shop")}
        url = f"{server.url}repo.git"
        api.add(SECRETS, login("all", "all", url), login("shop", "shop", url, project="shop"))
        api.add(
            APPLICATIONS,
            full_application("a", url),
            full_application("b", url, project="other"),
            full_application("c", url, project="shop"),
        )
        result = run_here()
    assert result.code == 0, result.stderr
    assert sorted(one["applications"] for one in result.json["commits"]) == [
        ["argocd/a", "argocd/b"],
        ["argocd/c"],
    ]


FOREIGN = [
    ("git:secret:other/git", "argocd", 3, "not in the Application's namespace"),
    ("git:secret:argocd/gone", "argocd", 4, "secret argocd/gone not found"),
    ("git:secret:argocd/empty", "argocd", 4, "does not have a username and password"),
    ("git:secret:a/b/c", "argocd", 3, "git:secret:<namespace>/<name>"),
    ("git:secret:argocd/theirs", "team", 3, "Argo CD's credentials for another repository"),
    ("git:secret:argocd/theirs", "argocd", 3, "Argo CD's credentials for another repository"),
    ("git:secret:argocd/cluster-prod", "team", 3, "belongs to Argo CD"),
    ("git:secret:argocd/plain", "team", 3, "for Applications in namespace argocd"),
]


@pytest.mark.parametrize(("method", "namespace", "code", "said"), FOREIGN)
def test_secrets_for_other_namespaces_or_repositories_are_not_used(
    tmp_path: Path,
    api: KubernetesApi,
    run_here: Any,
    method: str,
    namespace: str,
    code: int,
    said: str,
) -> None:
    repo = repository(tmp_path, "web", "good")
    api.add(SECRETS, secret("git", "other", username="x", password=PASSWORD), secret("empty"))
    api.add(SECRETS, login("theirs", "them", "https://git.example.com/bank/infra.git"))
    api.add(SECRETS, secret("cluster-prod", kind="cluster", username="x", password=PASSWORD))
    api.add(SECRETS, secret("plain", username="x", password=PASSWORD))
    api.add(
        APPLICATIONS,
        full_application("web", f"{HTTPS}{repo.name}", namespace, write_back_method=method),
    )
    api.add(APPLICATIONS, full_application("good", f"{HTTPS}{repo.name}"))
    result = run_here("--rewrite-url", f"{HTTPS}={tmp_path}/")
    assert result.code == code, result.stderr
    assert said in result.stderr
    assert rules(result)["argocd/good"] == "admitted"
    assert hidden(result)


def test_a_run_uses_the_ssh_key_and_known_hosts_of_argo_cd(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    with sshd(tmp_path) as server:
        key = server.key.read_text()
        api.add(
            SECRETS,
            secret(
                "ssh", kind="repo-creds", type="git", url=server.url(tmp_path), sshPrivateKey=key
            ),
        )
        data = {"ssh_known_hosts": f"{server.host_key}\n"}
        api.add(CONFIG_MAPS, {"metadata": {"name": "argocd-ssh-known-hosts-cm"}, "data": data})
        api.add(APPLICATIONS, full_application("web", server.url(repo)))
        result = run_here("--log-level", "debug")
        assert (result.code, rules(result)) == (0, {"argocd/web": "admitted"}), result.stderr
        api.add(
            CONFIG_MAPS,
            {
                "metadata": {"name": "argocd-ssh-known-hosts-cm"},
                "data": {"ssh_known_hosts": "x y z"},
            },
        )
        refused = run_here(image=f"{WEB}:1.2.0")
    assert (refused.code, rules(refused)) == (4, {"argocd/web": "credentials"}), refused.stderr
    assert "PRIVATE KEY" not in result.stderr + refused.stderr


def test_credentials_from_options_override_secrets_in_the_cluster(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    git(repo, "config", "http.receivepack", "true")
    with git_server(tmp_path) as server:
        server.logins = {"given": "token-of-the-pipeline", "argo": f"{PASSWORD}-argo"}
        api.add(SECRETS, login("one", "argo", server.url, "repo-creds"))
        api.add(APPLICATIONS, full_application("web", f"{server.url}repo.git"))
        given = {
            "IMAGE_UPDATE_GIT_TOKEN": "token-of-the-pipeline",
            "IMAGE_UPDATE_GIT_USERNAME": "given",
        }
        result = run_here("--git-credentials-url", server.url, env=given)
        assert result.code == 0, result.stderr
        assert {user for _, user in server.seen if user} == {"given"}
        server.seen.clear()
        other = run_here(
            "--git-credentials-url",
            "https://elsewhere.example.com/",
            env=given,
            image=f"{WEB}:1.2.0",
        )
    assert other.code == 0, other.stderr
    assert {user for _, user in server.seen if user} == {"argo"}


def test_the_forge_client_uses_the_login_from_the_cluster_if_it_is_unambiguous() -> None:
    url = f"{HTTPS}acme/x"
    one = subscription_of(url)
    plans = {
        user: credentials_of(RepoCredentials(user, user, Secret("t")), url)
        for user in ("one", "two")
    }
    with ExitStack() as opened:
        found = iter(("one", "one", "two"))
        clients = GitClients(
            Settings("run"), {}, Log(), opened, lambda *_: (name := next(found), plans[name])
        )
        assert clients.logins(url) == ()
        clients.client(url, one)
        clients.client(url, one)
        assert [login.user for login in clients.logins(url)] == ["one"]
        assert clients.logins(f"{HTTPS}acme/y") == ()
        clients.client(url, one)
        assert clients.logins(url) == ()  # the login is now ambiguous, so none is used


def subscription_of(url: str) -> Subscription:
    parsed = parse_application(full_application("web", url), PREFIX, "cluster", "argocd")
    assert parsed is not None
    return subscribe(parsed).subscriptions[0]


@pytest.mark.measured
def test_empty_credential_folders_and_the_workflow_token_do_not_hide_secrets(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web")
    git(repo, "config", "http.receivepack", "true")
    (tmp_path / "none").mkdir()
    with git_server(tmp_path) as server:
        server.logins = {"argo": f"{PASSWORD}-argo"}
        api.add(SECRETS, login("one", "argo", server.url, "repo-creds"))
        api.add(APPLICATIONS, full_application("web", f"{server.url}repo.git"))
        empty = ("--ssh-directory", tmp_path / "none", "--basic-auth-directory", tmp_path / "none")
        env = {"GITHUB_TOKEN": "ghs_x", "GITHUB_SERVER_URL": "https://github.com"}
        result = run_here(*empty, "--ca-file", tmp_path / "none", env=env)
    assert result.code == 0, result.stderr


def test_a_run_continues_without_repository_secrets_that_it_may_not_read(
    tmp_path: Path, api: KubernetesApi
) -> None:
    repo = repository(tmp_path, "web")
    api.add(APPLICATIONS, full_application("web", repo))
    api.tokens = {"reader": "system:serviceaccount:ci:reader"}
    granted = [
        {
            "apiGroups": ["argoproj.io"],
            "resources": ["applications"],
            "verbs": ["list", "get", "patch"],
        }
    ]
    api.rules = [role("ClusterRole", granted), binding("ClusterRole")]
    result = run("--applications", "cluster", "--kubeconfig", kubeconfig(tmp_path, api, "reader"))
    assert (result.code, rules(result)) == (0, {"argocd/web": "admitted"})
    assert "Argo CD's repository secrets are not used" in result.stderr


# write-back-method: argocd


def kustomize(
    repo: str = "https://git.example.com/acme/gitops.git", *images: str, **annotations: str
) -> Any:
    one = live_app("web", repo, **annotations)
    if images:
        one["spec"]["source"]["kustomize"] = {"images": list(images)}
    return one


def test_the_live_application_is_patched(api: KubernetesApi, run_here: Any, tmp_path: Path) -> None:
    api.add(APPLICATIONS, kustomize())
    results = tmp_path / "results"
    result = run_here("--results-dir", results)
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert api.of(APPLICATIONS, "web")["spec"]["source"]["kustomize"] == {
        "images": [f"{WEB}:1.1.0"]
    }
    decision = result.json["decisions"][0]
    assert (decision["target"], decision["verdict"], decision["current"]) == (
        "live",
        "update",
        "1.0.0",
    )
    assert [decision[key] for key in ("repository", "branch", "head", "file")] == [None] * 4
    assert result.json["commits"] == []
    assert {name: (results / name).read_text() for name in ("updated", "commit", "applications")} == {
        "updated": "true", "commit": "", "applications": '["argocd/web"]',
    }  # fmt: skip
    assert refreshed(api) == ["argocd/web"]
    again = run_here()
    assert (again.json["status"], rules(again)) == ("unchanged", {"argocd/web": "same"})


@pytest.mark.parametrize(("heals", "leaves"), [(True, False), (True, True), (False, False)])
def test_a_run_warns_if_a_parent_application_would_revert_the_patch(
    api: KubernetesApi, run_here: Any, heals: bool, leaves: bool
) -> None:
    one = kustomize("https://git.example.com/x.git", f"{WEB}:1.0.0")
    one["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = (
        "root:argoproj.io/Application:argocd/web"
    )
    root = full_application("root", "https://git.example.com/x.git", image_list="")
    root["spec"]["syncPolicy"]["automated"] = {"selfHeal": heals}
    rule = {
        "group": "argoproj.io",
        "kind": "Application",
        "jsonPointers": ["/spec/source/kustomize/images"],
    }
    root["spec"]["ignoreDifferences"] = [rule] if leaves else []
    api.add(APPLICATIONS, one, root)
    planned, found, done = run_here(command="plan"), run_here(command="lint", image=""), run_here()
    told = "Application argocd/root reverts the patch, because it does not ignore this field of the Application"
    expected = [told] if heals and not leaves else []
    for report in (planned, done):
        assert [error["message"] for error in report.json["errors"]] == expected
    assert (planned.code, done.code, found.code) == (0, 0, 0)
    assert [
        one["message"] for one in found.json["findings"] if "reverts the patch" in one["message"]
    ] == expected


def test_unsigned_commits_are_refused_if_the_project_requires_signatures(
    api: KubernetesApi, run_here: Any, tmp_path: Path
) -> None:
    repo = repository(tmp_path, "web", "api")
    api.add(
        APPLICATIONS,
        full_application("web", repo, project="shop"),
        full_application("api", repo, project="other"),
    )
    policy = {"repos": [{"url": "*"}], "gpg": {"mode": "head", "keys": ["D56C4FCA57A46444"]}}
    spec = {"sourceIntegrity": {"git": {"policies": [policy]}}}
    api.add(PROJECTS, {"metadata": {"name": "shop", "namespace": "argocd"}, "spec": spec})
    result = run_here()
    assert (result.code, rules(result)) == (
        4,
        {"argocd/web": "repository", "argocd/api": "admitted"},
    ), result.stderr
    assert "newTag: 1.0.0" in show(repo, "main", target("web"))
    assert "only syncs commits signed by D56C4FCA57A46444" in result.stderr


def test_applications_without_a_write_back_method_are_written_to_git(
    api: KubernetesApi, run_here: Any, tmp_path: Path
) -> None:
    repo = repository(tmp_path, "web")
    api.add(APPLICATIONS, full_application("web", repo, write_back_method=""))
    assert run_here().json["commits"][0]["applications"] == ["argocd/web"]


def test_several_images_of_one_live_application_are_patched(
    api: KubernetesApi, run_here: Any
) -> None:
    one = kustomize("https://git.example.com/x.git", "reg:5000/a:1.0.0", "reg:5000/b:1.0.0",
                    image_list="a=reg:5000/a,b=reg:5000/b,c=reg:5000/c")  # fmt: skip
    one["status"]["summary"]["images"] = [
        "reg:5000/a:1.0.0",
        "reg:5000/b:1.0.0",
        "reg:5000/c:1.0.0",
    ]
    api.add(APPLICATIONS, one)
    result = run_here(image="reg:5000/b:2.0.0,reg:5000/a:3.0.0,reg:5000/c:4.0.0")
    assert result.code == 0, result.stderr
    images = api.of(APPLICATIONS, "web")["spec"]["source"]["kustomize"]["images"]
    assert images == ["reg:5000/a:3.0.0", "reg:5000/b:2.0.0", "reg:5000/c:4.0.0"]
    assert refreshed(api) == ["argocd/web"]


@pytest.mark.measured
def test_decides_again_after_a_patch_conflict(api: KubernetesApi, run_here: Any) -> None:
    api.add(APPLICATIONS, kustomize("https://git.example.com/x.git", f"{WEB}:1.0.0"))
    changes = iter(("1.0.5", "1.2.0"))

    def meanwhile(asked: Any) -> None:
        if asked.verb == "patch" and (tag := next(changes, "")):
            api.add(APPLICATIONS, kustomize("https://git.example.com/x.git", f"{WEB}:{tag}"))

    api.before = meanwhile
    result = run_here()
    assert (result.code, rules(result)) == (0, {"argocd/web": "not-newer"}), result.stderr
    assert api.of(APPLICATIONS, "web")["spec"]["source"]["kustomize"]["images"] == [f"{WEB}:1.2.0"]
    assert refreshed(api) == []


def test_helm_parameters_are_patched(api: KubernetesApi, run_here: Any) -> None:
    one = live_app("web", web__helm__image_tag="image.tag", web__helm__image_name="image.repo")
    one["status"]["sourceType"] = "Helm"
    one["spec"]["source"]["helm"] = {
        "parameters": [{"name": "image.tag", "value": "1.0.0", "forceString": True}]
    }
    api.add(APPLICATIONS, one)
    assert run_here().code == 0
    assert api.of(APPLICATIONS, "web")["spec"]["source"]["helm"]["parameters"] == [
        {"name": "image.tag", "value": "1.1.0", "forceString": True},
        {"name": "image.repo", "value": WEB, "forceString": True},
    ]


def test_a_forbidden_patch_is_an_error_for_that_application(
    tmp_path: Path, api: KubernetesApi
) -> None:
    repo = repository(tmp_path, "git")
    api.add(APPLICATIONS, kustomize(), full_application("git", repo))
    api.tokens = {"reader": "system:serviceaccount:ci:reader"}
    granted = [
        {"apiGroups": ["argoproj.io"], "resources": ["applications"], "verbs": ["list", "get"]}
    ]
    api.rules = [role("ClusterRole", granted), binding("ClusterRole")]
    result = run("--applications", "cluster", "--kubeconfig", kubeconfig(tmp_path, api, "reader"))
    assert result.code == 4
    assert rules(result) == {"argocd/web": "source", "argocd/git": "admitted"}
    assert "is not allowed to patch applications.argoproj.io 'web'" in result.stderr


def test_require_update_counts_live_applications(api: KubernetesApi, run_here: Any) -> None:
    api.add(APPLICATIONS, kustomize())
    assert run_here("--require-update").code == 0
    assert run_here("--require-update").code == 5


def test_a_live_application_cannot_be_held(api: KubernetesApi, run_here: Any) -> None:
    api.add(APPLICATIONS, kustomize())
    result = run_here("web", "--reason", "x", command="hold")
    assert result.code == 3
    assert "there is nothing in Git to hold" in result.stderr


def test_the_only_repository_option_skips_live_applications(
    api: KubernetesApi, run_here: Any, tmp_path: Path
) -> None:
    repo = repository(tmp_path, "git")
    api.add(APPLICATIONS, kustomize(), full_application("git", repo))
    assert rules(run_here("--only-repository", repo)) == {"argocd/git": "admitted"}
    assert "kustomize" not in api.of(APPLICATIONS, "web")["spec"]["source"]


# Events, parents, registries


def test_kubernetes_events_are_written_on_request(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web", "api")
    api.add(
        APPLICATIONS,
        full_application("web", repo),
        full_application("api", repo, allow_tags="regexp:^2"),
        live_app("live"),
    )
    assert run_here("--kubernetes-events").code == 0
    events = list(api.objects[EVENTS].values())
    assert sorted(one["involvedObject"]["name"] for one in events) == ["live", "web"]
    assert {one["reason"] for one in events} == {"ImagesUpdated"}
    web = next(one for one in events if one["involvedObject"]["name"] == "web")
    assert web["metadata"]["annotations"]["argocd-image-updater.image-0/new-tag"] == "1.1.0"
    assert run_here(image=f"{WEB}:1.2.0").code == 0
    assert len(api.objects[EVENTS]) == 2


@pytest.mark.measured
def test_a_forbidden_event_is_a_warning(tmp_path: Path, api: KubernetesApi) -> None:
    api.add(APPLICATIONS, full_application("web", repository(tmp_path, "web")))
    api.tokens = {"reader": "system:serviceaccount:ci:reader"}
    granted = [
        {
            "apiGroups": ["argoproj.io"],
            "resources": ["applications"],
            "verbs": ["list", "get", "patch"],
        }
    ]
    api.rules = [role("ClusterRole", granted), binding("ClusterRole")]
    config = kubeconfig(tmp_path, api, "reader")
    result = run("--applications", "cluster", "--kubeconfig", config, "--kubernetes-events")
    assert (result.code, result.json["status"]) == (0, "updated")
    warning = result.json["errors"][0]
    assert (warning["severity"], "is not allowed to create events" in warning["message"]) == (
        "warning",
        True,
    )
    assert refreshed(api) == ["argocd/web"]


def test_parent_applications_are_refreshed_on_request(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    child = full_application("web", repository(tmp_path, "web"))
    child["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = (
        "root:argoproj.io/Application:argocd/web"
    )
    root = full_application("root", "https://git.example.com/x.git", image_list="")
    api.add(APPLICATIONS, child, root)
    assert run_here("--refresh-parents").code == 0
    assert sorted(refreshed(api)) == ["argocd/root", "argocd/web"]


def test_pull_secrets_must_be_in_the_same_namespace_and_contain_the_login(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = repository(tmp_path, "web", "far")
    api.add(
        SECRETS,
        secret("pull", "argocd", **{".dockerconfigjson": json.dumps({"auths": {}})}),
        secret("pull", "other", **{".dockerconfigjson": PASSWORD}),
    )
    given: Mapping[str, str] = {"update_strategy": "newest-build"}
    api.add(
        APPLICATIONS, full_application("web", repo, pull_secret="pullsecret:argocd/pull", **given)
    )
    api.add(
        APPLICATIONS, full_application("far", repo, pull_secret="pullsecret:other/pull", **given)
    )
    result = run_here("--registry-check", "always")
    assert rules(result) == {"argocd/web": "registry", "argocd/far": "annotation"}
    assert "has no credentials for ghcr.io" in result.stderr
    assert "refers to a secret in namespace other" in result.stderr
    assert {
        one.namespace for one in api.asked if one.resource == SECRETS and one.verb == "get"
    } == {"argocd"}
    assert hidden(result)


def test_an_application_from_a_file_gets_no_secrets_from_the_cluster(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    """An Application in a file may claim any namespace."""
    repo = repository(tmp_path, "web")
    api.add(
        SECRETS,
        secret("pull", "argocd", pair=f"ci:{PASSWORD}"),
        login("repo", "them", f"{HTTPS}{repo.name}"),
    )
    claims = full_application(
        "web",
        f"{HTTPS}{repo.name}",
        pull_secret="secret:argocd/pull#pair",
        update_strategy="newest-build",
    )
    files = manifest(tmp_path, claims)
    result = run_here(
        "--applications",
        files,
        "--rewrite-url",
        f"{HTTPS}={tmp_path}/",
        "--registry-check",
        "always",
    )
    assert rules(result) == {"argocd/web": "registry"}
    assert "no cluster is available" in result.stderr
    assert [one for one in api.asked if one.resource == SECRETS] == []


@pytest.mark.parametrize(
    ("home", "named", "words"),
    [
        # The `config` in a cluster secret is JSON. Because it contains a colon, it was once
        # mistaken for `user:password`.
        (
            "argocd",
            "secret:argocd/cluster-prod#config",
            "belongs to Argo CD and does not contain registry credentials",
        ),
        (
            "team",
            "secret:argocd/cluster-prod#config",
            "namespace argocd, but the Application is in team",
        ),
        (
            "team",
            "secret:argocd/ldap-bind#pair",
            "namespace argocd, but the Application is in team",
        ),
    ],
)
@pytest.mark.parametrize("check", ["auto", "always"])
def test_secrets_of_argo_cd_itself_are_never_sent_to_a_registry(
    tmp_path: Path, api: KubernetesApi, run_here: Any, check: str, home: str, named: str, words: str
) -> None:
    api.add(
        SECRETS,
        secret("cluster-prod", kind="cluster", config=json.dumps({"bearerToken": PASSWORD})),
    )
    api.add(SECRETS, secret("ldap-bind", "argocd", pair=f"cn=admin:{PASSWORD}"))
    with registry_api() as server:
        server.put("acme/web", "1.1.0", CONTENT)
        server.challenge = 'Basic realm="registry"'
        given = {"image_list": f"web={server.name}/acme/web:1.1.0", "update_strategy": "digest"}
        repo = bare_repo(tmp_path, {target("web"): "resources: []\n"})
        api.add(APPLICATIONS, full_application("web", repo, home, pull_secret=named, **given))
        result = run_here("--registry-check", check, image=f"{server.name}/acme/web:1.1.0")
    assert (result.code, rules(result)) == (3, {f"{home}/web": "annotation"}), result.stderr
    assert words in result.stderr
    assert [one.login for one in server.seen if one.login] == []
    assert hidden(result)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"writeBackConfig": {"method": "git:secret:argocd/theirs"}},
            "Argo CD's credentials for another repository",
        ),
        (
            {"commonUpdateSettings": {"pullSecret": "pullsecret:argocd/cluster-prod"}},
            "does not contain registry credentials",
        ),
    ],
)
def test_an_image_updater_resource_cannot_use_secrets_forbidden_to_annotations(
    tmp_path: Path, api: KubernetesApi, run_here: Any, settings: dict[str, Any], words: str
) -> None:
    repo = repository(tmp_path, "web")
    api.add(SECRETS, login("theirs", "them", "https://git.example.com/bank/infra.git"))
    api.add(
        SECRETS,
        secret("cluster-prod", kind="cluster", config=json.dumps({"bearerToken": PASSWORD})),
    )
    api.add(
        APPLICATIONS,
        full_application("web", f"{HTTPS}{repo.name}", "team", image_list="", write_back_method=""),
    )
    spec = {
        **settings,
        "applicationRefs": [{"namePattern": "w*", "images": [{"alias": "web", "imageName": WEB}]}],
    }
    api.add(UPDATERS, {"metadata": {"name": "all", "namespace": "team"}, "spec": spec})
    result = run_here("--rewrite-url", f"{HTTPS}={tmp_path}/", "--registry-check", "always")
    assert (result.code, rules(result)) == (3, {"team/web": "annotation"}), result.stderr
    assert words in result.stderr
    assert hidden(result)


def test_a_refused_pull_secret_is_an_error_rather_than_a_warning(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    """`newest-build` continues if a registry does not respond, but not if the annotation itself is
    invalid.
    """
    repo = repository(tmp_path, "web")
    given = {"update_strategy": "newest-build", "pull_secret": "pullsecret:other/pull"}
    api.add(APPLICATIONS, full_application("web", repo, **given))
    result = run_here("--registry-check", "auto")
    assert (result.code, rules(result)) == (3, {"argocd/web": "annotation"}), result.stderr
    assert "newTag: 1.0.0" in show(repo, "main", target("web"))


def test_an_unreadable_pull_secret_is_an_error_for_its_application(
    tmp_path: Path, api: KubernetesApi
) -> None:
    repo = repository(tmp_path, "web", "good")
    given = {"update_strategy": "newest-build", "pull_secret": "pullsecret:argocd/pull"}
    api.add(APPLICATIONS, full_application("web", repo, **given), full_application("good", repo))
    api.tokens = {"reader": "system:serviceaccount:ci:reader"}
    granted = [
        {
            "apiGroups": ["argoproj.io"],
            "resources": ["applications"],
            "verbs": ["list", "get", "patch"],
        }
    ]
    api.rules = [role("ClusterRole", granted), binding("ClusterRole")]
    config = kubeconfig(tmp_path, api, "reader")
    check = ("--registry-check", "always", "--application", "web")
    result = run("--applications", "cluster", "--kubeconfig", config, *check)
    assert result.code == 4, result.stderr
    assert "is not allowed to get secrets 'pull'" in result.stderr


# The default source

HERE = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
THERE = {"ARGOCD_SERVER": "argocd.example.com"}
SOURCES: list[tuple[dict[str, str], bool, tuple[str, ...]]] = [
    ({}, False, ()),
    (HERE, True, ("cluster",)),
    (HERE, False, ()),
    (THERE, False, ("argocd",)),
    ({**HERE, **THERE}, True, ("cluster",)),
    ({**HERE, **THERE}, False, ("argocd",)),
    ({"ARGOCD_OPTS": "--server argocd.example.com"}, False, ("argocd",)),
    ({"KUBECONFIG": "/somewhere"}, False, ()),
]


@pytest.mark.parametrize(("environ", "account", "found"), SOURCES)
def test_the_default_source_depends_on_the_environment(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], account: bool, found: tuple[str, ...]
) -> None:
    monkeypatch.setattr("task.wiring.argo.in_cluster", lambda _environ: account)
    settings = Settings("run")
    assert sources(settings, environ) == found
    assert sources(replace(settings, sources=SourceOptions(applications=("x.yaml",))), environ) == (
        "x.yaml",
    )


# Faults


def test_a_missing_or_empty_kubeconfig_is_a_usage_error(tmp_path: Path) -> None:
    result = run("--applications", "cluster", "--kubeconfig", tmp_path / "none")
    assert result.code == 2
    result = run("--applications", "cluster")
    assert result.code == 2
    assert "no cluster is available" in result.stderr
    (tmp_path / "empty").write_text("{}")
    result = run("--applications", "cluster", "--kubeconfig", tmp_path / "empty")
    assert (result.code, f"the kubeconfig '{tmp_path}/empty' has no context" in result.stderr) == (
        2,
        True,
    )
    result = run(
        "--applications", "cluster", "--kubeconfig", tmp_path / "empty", "--kube-context", "a"
    )
    assert (
        "the kubeconfig has no context 'a'\n  fix: it has no contexts: pass another file with --kubeconfig"
        in result.stderr
    )


def test_requesting_events_without_a_cluster_is_a_warning(tmp_path: Path) -> None:
    apps = manifest(tmp_path, application("web", repository(tmp_path, "web")))
    result = run("--applications", apps, "--kubernetes-events")
    assert (result.code, result.json["status"]) == (0, "updated")
    assert (
        "warning: --kubernetes-events: Events cannot be created without a cluster" in result.stderr
    )


def test_an_unreachable_cluster_is_a_temporary_failure(tmp_path: Path, api: KubernetesApi) -> None:
    config = kubeconfig(tmp_path, api)
    text = config.read_text().replace(api.url, "http://127.0.0.1:1")
    config.write_text(text)
    result = run("--applications", "cluster", "--kubeconfig", config)
    assert (result.code, result.json["status"]) == (75, "failed")


def test_a_cluster_without_argo_cd_is_an_error(api: KubernetesApi, run_here: Any) -> None:
    api.forget(APPLICATIONS)
    result = run_here()
    assert result.code == 4
    assert "Argo CD is not installed in this cluster" in result.stderr


def test_certificates_from_the_argo_cd_config_map_are_trusted_as_well(
    tmp_path: Path, api: KubernetesApi, run_here: Any
) -> None:
    repo = bare_repo(tmp_path, {target("web"): KUSTOMIZATION})
    api.add(
        CONFIG_MAPS,
        {
            "metadata": {"name": "argocd-tls-certs-cm"},
            "data": {"git.example.com": "no certificate"},
        },
    )
    api.add(SECRETS, login("one", "argo", f"{HTTPS}repo.git"))
    api.add(APPLICATIONS, full_application("web", f"{HTTPS}repo.git"))
    result = run_here("--rewrite-url", f"{HTTPS}={tmp_path}/")
    assert result.code == 0, result.stderr
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    assert PREFIX in json.dumps(api.of(APPLICATIONS, "web"))
