"""Whole runs with Applications from Argo CD's API: what is read, written, refreshed, and
patched.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes.argocd_api import ArgoCDServer, Fault, argocd_server
from fakes.kubernetes_api import APPLICATIONS, running
from support import Result, git, image_update, show
from support.clusters import full_application, kubeconfig, live_app, rules
from support.runs import WEB, repository, run, target

TOKEN = "good-token"


def versioned(one: dict[str, Any]) -> dict[str, Any]:
    """The Application as the API returns it."""
    return {**one, "metadata": {"resourceVersion": "7", **one["metadata"]}}


def env(argo_cd: ArgoCDServer, **more: str) -> Mapping[str, str]:
    """The environment variables that users of the `argocd` command set."""
    return {
        "ARGOCD_SERVER": argo_cd.address,
        "ARGOCD_AUTH_TOKEN": TOKEN,
        "ARGOCD_OPTS": "--plaintext",
        **more,
    }


def with_argocd(argo_cd: ArgoCDServer, *more: str | Path, **others: Any) -> Result:
    return run(*more, env=env(argo_cd), **others)


def refreshed(argo_cd: ArgoCDServer) -> list[str]:
    return sorted(
        one.path.rpartition("/")[2] for one in argo_cd.asked("GET") if "refresh" in one.query
    )


def test_a_run_updates_and_refreshes_applications_from_argo_cd(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = repository(tmp_path, "web", "api", "other")
    for one in (
        full_application("web", repo),
        full_application("api", repo),
        full_application("other", repo, image_list="x=acme/other"),
    ):
        argo_cd.add(versioned(one))
    result = with_argocd(argo_cd)  # the default: ARGOCD_SERVER is set
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert rules(result) == {"argocd/api": "admitted", "argocd/web": "admitted"}
    assert "newTag: 1.1.0" in show(repo, "main", target("web"))
    assert result.json["counts"]["applications"] == 3
    assert refreshed(argo_cd) == ["api", "web"]
    assert "/other" not in {one.path[-6:] for one in argo_cd.seen}
    assert TOKEN not in result.stdout + result.stderr


@pytest.mark.parametrize("readable", [True, False])
def test_unsigned_commits_are_refused_if_the_project_requires_signatures(
    tmp_path: Path, argo_cd: ArgoCDServer, readable: bool
) -> None:
    repo = repository(tmp_path, "web")
    argo_cd.add(versioned(full_application("web", repo, project="shop")))
    if readable:
        argo_cd.others["projects", "argocd", "shop"] = {
            "spec": {"signatureKeys": [{"keyID": "D56C4FCA57A46444"}]}
        }
    result = with_argocd(argo_cd)
    assert (result.code, rules(result)) == (
        (4, {"argocd/web": "repository"}) if readable else (0, {"argocd/web": "admitted"})
    )
    assert ("signed by D56C4FCA57A46444" in result.stderr) == readable
    assert [one.path for one in argo_cd.seen if "/projects/" in one.path] == [
        "/api/v1/projects/shop"
    ]
    assert argo_cd.wrong == []


def test_reports_mistakes_in_applications_that_do_not_track_the_image(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = repository(tmp_path, "web")
    for one in (
        full_application("web", repo),
        full_application("other", repo, image_list="x=acme/other", allow_tag="any"),
    ):
        argo_cd.add(versioned(one))
    result = with_argocd(argo_cd)
    assert [one["application"] for one in result.json["errors"]] == [None]
    assert (
        "one other Application has annotations that have no effect: argocd/other (allow-tag)"
        in result.stderr
    )
    assert "/other" not in {one.path[-6:] for one in argo_cd.seen}
    assert "did you mean acme/other?" in with_argocd(argo_cd, image="ghcr.io/acme/other:1").stderr
    unknown = with_argocd(argo_cd, "--application", "wbe")
    assert unknown.code == 3
    assert "did you mean web?" in unknown.stderr


def test_warns_if_the_token_cannot_see_any_application(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    argo_cd.add(versioned(full_application("web", repository(tmp_path, "web"))))
    argo_cd.hidden.add(("argocd", "web"))
    result = with_argocd(argo_cd)
    assert (result.code, result.json["status"]) == (0, "unchanged")
    told = [one for one in result.json["errors"] if "lists no Application" in one["message"]]
    assert ["applications, get, */*, allow" in one["hint"] for one in told] == [True]
    assert "there are none, or the token is not allowed to read them" in result.stderr
    named = with_argocd(argo_cd, "--application", "web")
    assert named.code == 3
    assert "there is no Application named 'web'" in named.stderr


def test_an_invalid_selector_is_rejected_before_any_request(
    argo_cd: ArgoCDServer,
) -> None:
    result = with_argocd(argo_cd, "--selector", "team in a")
    assert result.code == 2
    assert "--selector: cannot parse 'team in a'" in result.stderr
    assert argo_cd.seen == []


def test_a_second_run_refreshes_no_applications(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    argo_cd.add(versioned(full_application("web", repository(tmp_path, "web"))))
    assert with_argocd(argo_cd, "--applications", "argocd").json["status"] == "updated"
    assert with_argocd(argo_cd, "--applications", "argocd").json["status"] == "unchanged"
    assert refreshed(argo_cd) == ["web"]


def test_the_no_refresh_option_skips_the_refresh(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    argo_cd.add(versioned(full_application("web", repository(tmp_path, "web"))))
    assert with_argocd(argo_cd, "--no-refresh").code == 0
    assert refreshed(argo_cd) == []


WAYS = [
    ({"ARGOCD_OPTS": "--server {} --plaintext --auth-token good-token"}, ()),
    ({"ARGOCD_AUTH_TOKEN": TOKEN}, ("--argocd-server", "{}", "--argocd-plaintext")),
    ({"IMAGE_UPDATE_ARGOCD_AUTH_TOKEN": TOKEN, "IMAGE_UPDATE_ARGOCD_SERVER": "{}",
      "IMAGE_UPDATE_ARGOCD_PLAINTEXT": "true"}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("given", "options"), WAYS)
def test_the_server_address_may_come_from_options_or_variables(
    tmp_path: Path, argo_cd: ArgoCDServer, given: dict[str, str], options: tuple[str, ...]
) -> None:
    argo_cd.add(versioned(full_application("web", repository(tmp_path, "web"))))
    environ = {name: value.format(argo_cd.address) for name, value in given.items()}
    result = run(*(one.format(argo_cd.address) for one in options), env=environ)
    assert (result.code, rules(result)) == (0, {"argocd/web": "admitted"}), result.stderr


def test_uses_the_token_file_the_root_path_and_the_extra_header(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    with argocd_server("/argo") as argo_cd:
        argo_cd.add(versioned(full_application("web", repository(tmp_path, "web"))))
        ways = (
            "--argocd-server",
            argo_cd.address,
            "--argocd-plaintext",
            "--argocd-root-path",
            "argo",
        )
        result = run(
            *ways,
            "--argocd-auth-token-file",
            token,
            "--argocd-header",
            "X-Proxy: secret-of-the-proxy",
        )
        assert result.code == 0, result.stderr
        assert {one.headers["x-proxy"] for one in argo_cd.seen} == {"secret-of-the-proxy"}
    assert "secret-of-the-proxy" not in result.stderr


def test_without_a_source_the_error_lists_the_choices(tmp_path: Path) -> None:
    result = run(env={"HOME": str(tmp_path)})
    assert result.code == 2
    for choice in ("cluster", "argocd", "manifests", "stdin"):
        assert choice in result.stderr


def test_the_applications_option_wins_over_the_argo_cd_variables(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    path = tmp_path / "apps.json"
    path.write_text(json.dumps(full_application("web", repository(tmp_path, "web"))))
    result = with_argocd(argo_cd, "--applications", path)
    assert (result.code, rules(result)) == (0, {"argocd/web": "admitted"})
    assert argo_cd.seen == []


NARROW = [
    (("--application", "web"), ["argocd/web"]),
    (("--application", "team/f*"), ["team/far"]),
    (("--namespace", "team"), ["team/far"]),
    (("--project", "shop"), ["team/far"]),
    (("--selector", "team=a"), ["argocd/api"]),
]


@pytest.mark.parametrize(("options", "found"), NARROW)
def test_options_narrow_the_selection_of_applications(
    tmp_path: Path, argo_cd: ArgoCDServer, options: tuple[str, ...], found: list[str]
) -> None:
    repo = repository(tmp_path, "web", "api", "far")
    labelled = full_application("api", repo)
    labelled["metadata"]["labels"] = {"team": "a"}
    for one in (
        full_application("web", repo),
        labelled,
        full_application("far", repo, namespace="team", project="shop"),
    ):
        argo_cd.add(versioned(one))
    result = with_argocd(argo_cd, *options)
    assert (result.code, sorted(rules(result))) == (0, found), result.stderr
    assert result.json["counts"]["applications"] == 1
    read = [
        one
        for one in argo_cd.asked("GET")
        if "/applications" in one.path and "refresh" not in one.query
    ]
    assert len(read) == 2  # one request for the list, and one for the Application


@pytest.mark.measured
def test_lint_reports_mistakes_in_applications_from_argo_cd(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(
        versioned(
            full_application("web", "https://git.example.com/x.git", update_strategy="nonsense")
        )
    )
    result = image_update("lint", "--applications", "argocd", "--output", "json", env=env(argo_cd))
    assert (result.code, result.json["findings"][0]["severity"]) == (3, "error")
    assert result.json["findings"][0]["file"] is None


def test_a_rollback_restores_the_previous_version(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    repo = repository(tmp_path, "web")
    argo_cd.add(versioned(full_application("web", repo)))
    assert with_argocd(argo_cd).code == 0
    back = with_argocd(argo_cd, "web", "--to", "previous", "--reason", "x", command="rollback")
    assert (back.code, "newTag: 1.0.0" in show(repo, "main", target("web"))) == (0, True), (
        back.stderr
    )


# write-back-method: argocd


def test_the_live_application_is_patched(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(versioned(live_app("web")))
    result = with_argocd(argo_cd)
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
    assert argo_cd.plays["argocd", "web"][0]["spec"]["source"]["kustomize"]["images"] == [
        f"{WEB}:1.1.0"
    ]
    assert result.json["decisions"][0]["target"] == "live"
    assert refreshed(argo_cd) == ["web"]
    assert with_argocd(argo_cd).json["status"] == "unchanged"


def test_the_live_application_is_patched_through_kubernetes_if_possible(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    with running() as api:
        api.add(APPLICATIONS, live_app("web"))
        argo_cd.add(api.of(APPLICATIONS, "web"))
        result = run(env={**env(argo_cd), "KUBECONFIG": str(kubeconfig(tmp_path, api))})
        assert (result.code, result.json["status"]) == (0, "updated"), result.stderr
        assert api.of(APPLICATIONS, "web")["spec"]["source"]["kustomize"]["images"] == [
            f"{WEB}:1.1.0"
        ]
    assert argo_cd.asked("PATCH") == []


def test_two_images_of_one_application_are_patched_one_after_the_other(
    argo_cd: ArgoCDServer,
) -> None:
    one = live_app("web", image_list="a=reg:5000/a,b=reg:5000/b")
    one["spec"]["source"]["kustomize"] = {"images": ["reg:5000/b:1.0.0", "reg:5000/a:1.0.0"]}
    argo_cd.add(versioned(one))
    result = with_argocd(argo_cd, image="reg:5000/a:2.0.0,reg:5000/b:3.0.0")
    assert result.code == 0, result.stderr
    images = argo_cd.plays["argocd", "web"][0]["spec"]["source"]["kustomize"]["images"]
    assert images == ["reg:5000/b:3.0.0", "reg:5000/a:2.0.0"]
    assert len(argo_cd.asked("PATCH")) == 2
    assert refreshed(argo_cd) == ["web"]


def test_decides_again_after_a_patch_conflict(argo_cd: ArgoCDServer) -> None:
    one = live_app("web")
    one["spec"]["source"]["kustomize"] = {"images": [f"{WEB}:1.0.0"]}
    argo_cd.add(versioned(one))

    class Changed(dict[tuple[str, str], list[dict[str, Any]]]):
        """Applications, one of which is changed by somebody else right before the first patch."""

        def __getitem__(self, key: tuple[str, str]) -> list[dict[str, Any]]:
            found = super().__getitem__(key)
            if argo_cd.asked("PATCH") and found[0]["metadata"]["resourceVersion"] == "7":
                found[0]["metadata"]["resourceVersion"] = "8"
                found[0]["spec"]["source"]["kustomize"]["images"] = [f"{WEB}:1.2.0"]
            return found

    argo_cd.plays = Changed(argo_cd.plays)
    result = with_argocd(argo_cd)
    assert (result.code, rules(result)) == (0, {"argocd/web": "not-newer"}), result.stderr
    assert argo_cd.plays["argocd", "web"][0]["spec"]["source"]["kustomize"]["images"] == [
        f"{WEB}:1.2.0"
    ]


def test_a_plan_patches_nothing(argo_cd: ArgoCDServer) -> None:
    argo_cd.add(versioned(live_app("web")))
    result = with_argocd(argo_cd, command="plan")
    assert (result.code, rules(result)) == (0, {"argocd/web": "admitted"})
    assert (argo_cd.asked("PATCH"), refreshed(argo_cd)) == ([], [])


def test_a_missing_update_permission_is_an_error_for_that_application(
    tmp_path: Path, argo_cd: ArgoCDServer
) -> None:
    repo = repository(tmp_path, "git")
    argo_cd.add(versioned(live_app("web")))
    argo_cd.add(versioned(full_application("git", repo)))
    argo_cd.frozen.add(("argocd", "web"))
    result = with_argocd(argo_cd)
    assert (result.code, rules(result)) == (4, {"argocd/web": "source", "argocd/git": "admitted"})
    assert "ci lacks the permission (applications, update, default/web)" in result.stderr
    assert git(repo, "rev-list", "--count", "main") == "2"


def test_patching_a_live_application_from_a_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "apps.json"
    path.write_text(json.dumps(live_app("web")))
    result = run("--applications", path)
    assert (result.code, rules(result)) == (3, {"argocd/web": "source"})
    assert "these Applications come from files" in result.stderr


# Faults

FAULTS = [
    (Fault(401, '{"code":16,"message":"invalid session"}'), 4),
    (Fault(403, '{"code":7,"message":"permission denied"}'), 4),
    (Fault(200, "<html>Log in</html>", {"Content-Type": "text/html"}), 4),
]


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_a_server_that_denies_access_is_an_access_error(
    tmp_path: Path, argo_cd: ArgoCDServer, fault: Fault, code: int
) -> None:
    argo_cd.add(versioned(full_application("web", repository(tmp_path, "web"))))
    argo_cd.faults = [fault] * 10
    result = with_argocd(argo_cd)
    assert (result.code, result.json["status"]) == (code, "failed")
    assert TOKEN not in result.stdout + result.stderr


def test_a_short_server_outage_is_retried(tmp_path: Path, argo_cd: ArgoCDServer) -> None:
    argo_cd.add(versioned(full_application("web", repository(tmp_path, "web"))))
    argo_cd.faults = [Fault(503), Fault(429, "", {"Retry-After": "0"})]
    assert with_argocd(argo_cd).code == 0


def test_an_unreachable_server_is_a_temporary_failure(argo_cd: ArgoCDServer) -> None:
    result = run(env={**env(argo_cd), "ARGOCD_SERVER": "127.0.0.1:1"})
    assert result.code == 75
