"""`lint --from-image-updater`: each Application before and after the migration, and Image Updater's
ConfigMap as options.
"""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fakes.kubernetes_api import APPLICATIONS, running
from support import Content, Result, bare_repo, commit, image_update, show
from support.clusters import full_application, kubeconfig, live_app
from support.runs import WEB, application, manifest, repository, target

from task.annotations.image_updater import NO_LOOP, ConfigOption, options_of
from task.schemas import load

GIT = {"write_back_method": "git"}


def config(**keys: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-image-updater-config"}, "data": keys
    }  # fmt: skip


def updater(*references: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "argocd-image-updater.argoproj.io/v1alpha1",
        "kind": "ImageUpdater",
        "metadata": {"name": "all", "namespace": "argocd"},
        "spec": {"applicationRefs": list(references), **spec},
    }


def compared(apps: Path, *more: str) -> Result:
    return image_update(
        "lint", str(apps), "--from-image-updater", "--allow-protocol", "file", *more
    )


def rows(apps: Path) -> dict[str, dict[str, Any]]:
    result = compared(apps, "--output", "json")
    jsonschema.validate(result.json, load("lint.v1"))
    return {
        one["application"].removeprefix("argocd/"): one
        for one in result.json["from_image_updater"]["applications"]
    }


@pytest.mark.measured
@pytest.mark.parametrize(
    ("annotations", "now", "here", "changes"),
    [
        (GIT, "git", "git", False),
        ({}, "live", "git", True),
        ({"write_back_method": "argocd"}, "live", "live", False),
        ({"write_back_method": "git:secret:argocd/login"}, "git", "git", False),
        ({**GIT, "update_strategy": "latest"}, "git", "git", False),
        (
            {**GIT, "image_list": WEB, "web.update_strategy": "newest-build"},
            "git",
            "git",
            True,
        ),  # AIU requires an alias
        ({**GIT, "web.alow_tags": "regexp:^1"}, "git", "nothing", True),
        ({**GIT, "write_back_target": "manifests"}, "nothing", "nothing", False),
        ({**GIT, "git_branch": "gone"}, "git", "nothing", True),
        ({**GIT, "image_list": "web"}, "git", "git", False),
    ],
)
def test_the_write_back_method_is_shown_before_and_after_the_migration(
    tmp_path: Path, annotations: dict[str, str], now: str, here: str, changes: bool
) -> None:
    apps = manifest(tmp_path, application("a", repository(tmp_path, "a"), **annotations))
    (row,) = rows(apps).values()
    assert (row["now"]["how"], row["here"]["how"], row["changes"]) == (now, here, changes), row


def test_the_report_shows_the_selection_and_version_source_of_each_application(
    tmp_path: Path,
) -> None:
    repo = repository(tmp_path, "named", "own", "left")
    images = [
        {
            "alias": "web",
            "imageName": f"{WEB}:^1",
            "commonUpdateSettings": {"updateStrategy": "digest"},
        }
    ]
    references = (
        {"namePattern": "named", "images": images},
        {"namePattern": "own", "useAnnotations": True},
    )
    by_resource = updater(
        *references,
        writeBackConfig={"method": "git", "gitConfig": {"writeBackTarget": "kustomization"}},
    )
    found = rows(
        manifest(
            tmp_path,
            *(application(one, repo, **GIT) for one in ("named", "own", "left")),
            by_resource,
        )
    )
    assert [one["selected_by"] for one in found.values()] == [
        "ImageUpdater argocd/all, applicationRefs[0]",
        "ImageUpdater argocd/all, applicationRefs[1], which defers to its annotations",
        "no ImageUpdater",
    ]
    assert [one["now"]["how"] for one in found.values()] == ["git", "git", "nothing"]
    (image,) = found["named"]["images"]
    assert (image["strategy"], image["strategy_now"], image["constraint"]) == (
        "digest",
        "digest",
        "^1",
    )
    assert (image["version"], image["version_from"]) == ("1.0.0", target("named"))


def test_a_version_found_only_in_the_spec_is_read_from_the_spec(tmp_path: Path) -> None:
    app = application("a", repository(tmp_path, "a"), **GIT, write_back_target="")
    app["spec"]["source"]["kustomize"] = {"images": [f"{WEB}:1.4.0"]}
    apps = manifest(tmp_path, app)
    (image,) = rows(apps)["a"]["images"]
    assert (image["version"], image["version_from"]) == ("1.4.0", "spec")
    assert "1.4.0, from the Application's spec" in compared(apps).stdout


@pytest.mark.parametrize("kind", ["values", "kustomization", "base"])
def test_a_version_found_only_in_the_sources_is_read_from_the_sources(
    tmp_path: Path, kind: str
) -> None:
    entry = f"images: [{{name: {WEB}, newTag: 1.4.0}}]\n"
    files: dict[str, dict[str, Content]] = {
        "values": {
            "apps/a/Chart.yaml": "name: a\nversion: 0.1.0\n",
            "apps/a/values.yaml": f"image: {{name: {WEB}, tag: 1.4.0}}\n",
        },
        "kustomization": {"apps/a/kustomization.yaml": entry},
        "base": {
            "apps/a/kustomization.yaml": "resources: [../base]\n",
            "apps/base/kustomization.yaml": entry,
        },
    }
    apps = manifest(
        tmp_path, application("a", bare_repo(tmp_path, files[kind]), **GIT, write_back_target="")
    )
    (image,) = rows(apps)["a"]["images"]
    assert (image["version"], image["version_from"]) == ("1.4.0", "sources")
    assert "1.4.0, from the Application's sources" in compared(apps).stdout


def test_a_missing_branch_does_not_hide_the_other_applications(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b")
    found = rows(
        manifest(
            tmp_path,
            application("a", repo, **GIT),
            application("b", repo, **GIT, git_branch="v1.0"),
        )
    )
    assert found["a"]["images"][0]["version"] == "1.0.0"
    assert "the branch does not exist" in found["b"]["here"]["because"]


@pytest.mark.measured
@pytest.mark.parametrize(
    ("secret", "login"),
    [
        (
            "pullsecret:argocd/regcred",
            "registry: pullsecret argocd/regcred, which needs credential options",
        ),
        ("env:CREDS", "registry: the variable CREDS, and --allow-env CREDS"),
        (
            "ext:/scripts/ecr.sh",
            "registry: the script /scripts/ecr.sh in the step's image, and --allow-exec",
        ),
    ],
)
@pytest.mark.parametrize("strategy", ["semver", "newest-build"])
def test_the_report_lists_the_logins_for_git_and_the_registry(
    tmp_path: Path, secret: str, login: str, strategy: str
) -> None:
    repo = repository(tmp_path, "a")
    app = application(
        "a",
        repo,
        update_strategy=strategy,
        pull_secret=secret,
        write_back_method="git:secret:argocd/git",
    )
    git, registry = rows(manifest(tmp_path, app))["a"]["logins"]
    assert git.startswith("Git: secret:argocd/git")
    assert registry.startswith(login)
    assert ("only for scan" in registry) == (strategy == "semver")


@pytest.mark.measured
def test_the_comparison_is_printed_as_text(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b", "c")
    silent = [application(one, repo) for one in ("b", "c")]
    apps = manifest(
        tmp_path,
        application("a", repo, **GIT),
        *silent,
        config(**{"git.user": "The bot", "interval": "2m"}),
    )
    result = compared(apps)
    assert result.code == 0
    where = f"to main of {repo}"
    silence = "no write-back-method is set: Image Updater patches the live Application, but Image Update commits to Git"
    assert result.stdout.splitlines() == [
        "argocd/a",
        f"    as before       commits apps/a {where}",
        f"    image           web={WEB}  semver; 1.0.0, from {target('a')}",
        *(
            line
            for name in ("b", "c")
            for line in (
                f"argocd/{name}",
                "    Image Updater   patches the live Application",
                f"    Image Update    commits apps/{name} {where}",
                f"    image           web={WEB}  semver; 1.0.0, from {target(name)}",
            )
        ),
        "Credentials that the step needs:",
        f"    Git: {repo} (3 Applications)",
        "3 Applications: 1 as before, 2 from live to Git",
        f"Image Updater's ConfigMap ({apps}:1) as options:",
        "    git.user                     --git-author-name 'The bot'",
        f"    interval                     {NO_LOOP}",
        f"{apps}:1: info: {silence} (argocd/b, argocd/c)",
        "    fix: set it to git or argocd, so that both tools do the same",
        "3 Applications read: 0 errors, 0 warnings, 1 remark",
    ]
    assert show(repo, "main", target("b")).count("newTag: 1.0.0") == 1  # nothing is written
    assert "argocd-image-updater-config" in compared(manifest(tmp_path, *silent)).stdout


def test_the_numbers_in_the_last_line_of_the_comparison_add_up(tmp_path: Path) -> None:
    repo = repository(tmp_path, "a", "b", "c")
    # Image Updater ignores this strategy, because the entry has no alias
    by_date = {**GIT, "image_list": WEB, "web.update_strategy": "newest-build"}
    apps = manifest(
        tmp_path,
        application("a", repo, **GIT),
        application("b", repo),
        application("c", repo, **by_date),
    )
    assert (
        "3 Applications: 1 as before, 1 from live to Git, 1 with a different file or strategy"
        in compared(apps).stdout.splitlines()
    )


def test_without_the_from_image_updater_option_lint_only_mentions_the_config_map(
    tmp_path: Path,
) -> None:
    apps = manifest(
        tmp_path, application("a", "https://git.example/x.git", **GIT), config(interval="2m")
    )
    result = image_update("lint", str(apps), "--output", "json")
    assert [one["severity"] for one in result.json["findings"]] == ["info"]
    assert "--from-image-updater" in result.json["findings"][0]["hint"]
    assert "from_image_updater" not in result.json


@pytest.mark.parametrize(
    ("key", "value", "option", "note"),
    [
        ("log.level", "trace", "--log-level debug", ""),
        ("log.level", "warn", "--log-level warning", ""),
        ("git.user", "o'neill", "--git-author-name 'o'\"'\"'neill'", ""),
        (
            "git.user",
            "bot\x1b[2J",
            "--git-author-name 'bot\x1b[2J'",
            "",
        ),  # made visible in the printed text
        ("git.email", "bot@example.com", "--git-author-email bot@example.com", ""),
        ("kube.events", "true", "--kubernetes-events", ""),
        ("kube.events", "false", "", "not needed: it is false"),
        ("applications_api", "kubernetes", "--applications cluster", ""),
        (
            "webhook.enable",
            "true",
            "",
            "not needed: the pipeline runs Image Update, so nothing listens for webhooks",
        ),
        ("colour", "blue", "", "Image Updater does not read this key either"),
    ],
)
def test_keys_of_the_config_map_become_options(
    key: str, value: str, option: str, note: str
) -> None:
    assert options_of(config(**{key: value})) == (ConfigOption(key, option, note),)


@pytest.mark.parametrize(
    "item", [{}, {"data": None}, {"data": []}, {"data": {"interval": {"x": 1}}}]
)
def test_a_malformed_config_map_is_not_an_error(item: dict[str, Any]) -> None:
    assert [one.option for one in options_of(item)] in ([], [""])


def test_versions_in_a_cluster_come_from_git_or_the_status_of_live_applications(
    tmp_path: Path,
) -> None:
    repo = repository(tmp_path, "git")
    with running() as api:
        api.add(APPLICATIONS, live_app("live"))
        api.add(
            APPLICATIONS, full_application("git", repo, pull_secret="pullsecret:argocd/regcred")
        )
        result = image_update(
            "lint", "cluster", "--from-image-updater", "--allow-protocol", "file", "--output", "json",
            "--kubeconfig", str(kubeconfig(tmp_path, api)),
        )  # fmt: skip
    found = {one["application"]: one for one in result.json["from_image_updater"]["applications"]}
    assert found["argocd/live"]["now"]["how"] == found["argocd/live"]["here"]["how"] == "live"
    versions = {
        key: [(one["version"], one["version_from"]) for one in row["images"]]
        for key, row in found.items()
    }
    assert versions == {
        "argocd/git": [("1.0.0", target("git"))],
        "argocd/live": [("1.0.0", "status")],
    }
    assert (
        "pullsecret argocd/regcred, which is read from the cluster"
        in found["argocd/git"]["logins"][1]
    )


LEFT = {
    "Helm": {
        "helm": {
            "parameters": [
                {"name": "image.name", "value": WEB, "forceString": True},
                {"name": "image.tag", "value": "1.0.0", "forceString": True},
            ]
        }
    },
    "Kustomize": {"kustomize": {"images": [f"{WEB}:1.0.0"]}},
}
FILES: dict[str, dict[str, Content]] = {
    "Helm": {"Chart.yaml": "name: a\nversion: 0.1.0\n", "values.yaml": f"image: {{name: {WEB}, tag: 0.9.0}}\n"},
    "Kustomize": {"kustomization.yaml": f"images: [{{name: {WEB}, newTag: 0.9.0}}]\n"},
}  # fmt: skip
OWN_FILES = {"Helm": "helmvalues", "Kustomize": "kustomization"}


def test_the_guide_migrates_forty_applications_with_leftover_parameters(
    tmp_path: Path,
) -> None:
    kinds = {f"{kind.lower()}-{place}-{number}": (kind, place) for kind in LEFT for place in ("override", "file") for number in range(10)}  # fmt: skip
    files = {
        f"apps/{name}/{file}": text
        for name, (kind, _) in kinds.items()
        for file, text in FILES[kind].items()
    }
    repo = bare_repo(tmp_path, files)
    with running() as api:
        for name, (kind, place) in kinds.items():
            made = full_application(
                name, repo, write_back_target=OWN_FILES[kind] if place == "file" else ""
            )
            made["spec"]["source"] |= LEFT[kind]
            made["status"]["sourceType"] = kind
            api.add(APPLICATIONS, made)
        cluster = ("--allow-protocol", "file", "--kubeconfig", str(kubeconfig(tmp_path, api)))
        run = ("--image", f"{WEB}:1.1.0", "--applications", "cluster", "--output", "json", *cluster)

        # Step 1: the report names the Applications whose specs hide their files, and the fields
        # that hide them.
        checked = image_update(
            "lint", "cluster", "--from-image-updater", "--output", "json", *cluster
        )
        found = checked.json["from_image_updater"]["applications"]
        hidden = {one["application"]: one["here"]["because"] for one in found}
        for name, (kind, place) in kinds.items():
            because = hidden[f"argocd/{name}"] or ""
            field = "helm.parameters" if kind == "Helm" else "kustomize.images"
            assert (f"spec.source.{field}" in because) == (place == "file"), because
        assert {one["images"][0]["version"] for one in found} == {"1.0.0"}

        # Hidden files are not written, and the other Applications are updated.
        planned = image_update("plan", *run)
        assert planned.code == 3
        verdicts = {one["application"]: one["verdict"] for one in planned.json["decisions"]}
        assert verdicts == {
            f"argocd/{name}": "update" if place == "override" else "error"
            for name, (_, place) in kinds.items()
        }

        # Step 3: write the running versions to Git, and then remove what AIU left behind.
        commit(
            repo,
            {
                path: str(text).replace("0.9.0", "1.0.0")
                for path, text in files.items()
                if "-file-" in path
            },
        )
        for name, (kind, place) in kinds.items():
            if place == "file":
                del api.of(APPLICATIONS, name)["spec"]["source"][kind.lower()]

        done = image_update("run", *run)
        assert done.code == 0, done.stderr
        assert {one["verdict"] for one in done.json["decisions"]} == {"update"}
        assert len(done.json["decisions"]) == 40
        assert {one["current"] for one in done.json["decisions"]} == {"1.0.0"}
        assert not [one for one in done.json["errors"] if one["severity"] == "error"]
    for name, (kind, place) in kinds.items():
        file = f".argocd-source-{name}.yaml"
        if place == "file":
            file = "values.yaml" if kind == "Helm" else "kustomization.yaml"
        assert "1.1.0" in show(repo, "main", f"apps/{name}/{file}")
