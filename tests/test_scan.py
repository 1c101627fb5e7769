"""`scan`: without an event, it looks up the newest tag that each entry admits in the registries,
and then proceeds like `run`.
"""

import base64
import json
import os
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.kubernetes_api import APPLICATIONS, SECRETS, running
from fakes.oci_images import image, index
from fakes.registry_api import RegistryApi, Reply, Seen
from support import DATA, Result, bare_repo, command, commit, git, image_update, show
from support.clusters import full_application, kubeconfig, live_app, rules
from support.runs import application, manifest, run

from task.annotations.application import PREFIX, parse_application
from task.annotations.subscription import subscribe
from task.commands.scan import chosen
from task.deciding.decide import decide, settled_without_git
from task.deciding.job import Terms, Wording
from task.deciding.weigh import Facts
from task.image import parse_image
from task.landing.changeset import prepare_commits
from task.model import Answer, File, Person, Question, Snapshot
from task.pipeline.match import asks_for_all

ASK = {"IMAGE_UPDATE_REGISTRY_CHECK": "auto"}
DAY = "2026-11-{:02}T06:00:00Z"


class Scene:
    """Applications in one repository, each with an image in the registry."""

    def __init__(self, folder: Path, oci_registry: RegistryApi) -> None:
        self.folder, self.server = folder, oci_registry
        self.repo = bare_repo(folder, {"README": ""})
        self.apps: list[dict[str, Any]] = []

    def add(
        self, name: str, now: str = "0.1.0", repository: str = "acme/web", **annotations: str
    ) -> None:
        named = f"{self.server.name}/{repository}"
        text = f"resources: []\nimages:\n- name: {named}\n  newTag: {now}\n"
        commit(self.repo, {f"apps/{name}/kustomization.yaml": text})
        given = {"image_list": f"web={named}", **annotations}
        given["image_list"] = given["image_list"].replace("IMAGE", named)
        self.apps.append(application(name, self.repo, **given))

    def scan(self, *more: str | Path, env: Mapping[str, str] = {}) -> Result:
        apps = manifest(self.folder, *self.apps)
        del self.server.seen[:]
        given = ("--applications", apps, "--allow-protocol", "file", "--output", "json", *more)
        return image_update("scan", *given, env={**ASK, **env})

    def value(self, name: str) -> str:
        return str(
            yaml.safe_load(show(self.repo, "main", f"apps/{name}/kustomization.yaml"))["images"][0][
                "newTag"
            ]
        )


def verdicts(result: Result) -> dict[str, tuple[str, str]]:
    return {one["application"]: (one["verdict"], one["rule"]) for one in result.json["decisions"]}


def test_two_thousand_tags_need_one_list_request_and_no_manifest(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    one = image()
    for number in range(2000):
        oci_registry.put("acme/web", f"1.{number // 100}.{number % 100}", one)
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", image_list="web=IMAGE:~1.7")
    scene.add("b")
    scene.add("c", update_strategy="alphabetical", **{"web.allow_tags": "regexp:^1[.]3[.]"})
    dry = scene.scan("--dry-run")
    assert (dry.code, dry.json["commits"][0]["commit"], scene.value("a")) == (0, None, "0.1.0")
    assert "+  newTag: 1.7.99" in dry.json["commits"][0]["diff"]
    done = scene.scan()
    assert oci_registry.asked == ["GET /v2/acme/web/tags/list"]
    assert [scene.value(name) for name in "abc"] == ["1.7.99", "1.19.99", "1.3.99"]
    assert (done.json["command"], done.json["status"]) == ("scan", "updated")
    assert [one["tag"] for one in done.json["images"]] == ["1.7.99", "1.19.99", "1.3.99"]
    assert done.json["decisions"] == dry.json["decisions"]
    assert done.json["commits"][0]["tree"] == dry.json["commits"][0]["tree"]
    again = scene.scan()
    assert (again.code, again.json["status"], again.json["commits"]) == (0, "unchanged", [])


def test_newest_build_requests_each_date_only_once(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    for number in (3, 1, 2):
        oci_registry.put(
            "acme/web", f"main-{9 - number}", image(created=DAY.format(number), seed=str(number))
        )
    oci_registry.put("acme/web", "release-1", image(created=DAY.format(9)))
    scene, cache = Scene(tmp_path, oci_registry), tmp_path / "cache"
    scene.add("a", "main-0", update_strategy="newest-build", **{"web.allow_tags": "regexp:^main-"})
    kept = ("--registry-cache-dir", cache)
    scene.scan(*kept)
    assert scene.value("a") == "main-6"
    assert len([one for one in oci_registry.asked if "/blobs/" in one]) == 3
    assert not any("release-1" in one for one in oci_registry.asked)
    assert verdicts(scene.scan(*kept)) == {"argocd/a": ("unchanged", "same")}
    assert {one.partition(" ")[0] for one in oci_registry.asked if "/manifests/" in one} == {
        "HEAD"
    }  # tags can move
    assert [one for one in oci_registry.asked if "/blobs/" in one] == []
    oci_registry.put("acme/web", "main-1", image(created=DAY.format(4), seed="4"))
    scene.scan(*kept)
    assert scene.value("a") == "main-1"
    assert [one for one in oci_registry.asked if one.startswith("GET")][1:] == [
        "GET /v2/acme/web/manifests/main-1",
        next(one for one in oci_registry.asked if "/blobs/" in one),
    ]


def test_newest_build_breaks_ties_by_name_and_treats_undated_tags_as_oldest(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    for tag, created in (("b", DAY.format(1)), ("c", DAY.format(1)), ("d", None)):
        oci_registry.put("acme/web", tag, image(created=created, seed=tag))
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "old", update_strategy="newest-build", **{"web.ignore_tags": "old"})
    scene.scan()
    assert scene.value("a") == "c"


def test_a_newer_build_that_the_rules_no_longer_admit_is_replaced(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    oci_registry.put("acme/web", "main-1", image(created=DAY.format(9), seed="1"))
    oci_registry.put("acme/web", "release-1", image(created=DAY.format(1), seed="2"))
    scene = Scene(tmp_path, oci_registry)
    scene.add(
        "a", "main-1", update_strategy="newest-build", **{"web.allow_tags": "regexp:^release-"}
    )
    scene.scan()
    assert scene.value("a") == "release-1"
    assert oci_registry.asked == ["GET /v2/acme/web/tags/list"]


def test_the_digest_of_a_tag_needs_one_head_request_and_no_list(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    digest = oci_registry.put("acme/web", "live", image())
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "live", image_list="web=IMAGE:live", update_strategy="digest")
    scene.scan()
    assert oci_registry.asked == ["HEAD /v2/acme/web/manifests/live"]
    assert digest in show(scene.repo, "main", "apps/a/kustomization.yaml")
    assert verdicts(scene.scan()) == {"argocd/a": ("unchanged", "same")}


@pytest.mark.measured
def test_the_newest_version_that_supports_the_platform_is_chosen(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    both = index([image("linux/amd64"), image("linux/arm64")])
    for number in range(1, 6):
        oci_registry.put(
            "acme/web",
            f"1.{number}.0",
            both if number <= 3 else image("linux/amd64", seed=str(number)),
        )
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "1.0.0", **{"web.platforms": "linux/arm64"})
    scene.add("b", "1.0.0", **{"web.platforms": "windows/amd64"})
    result = scene.scan()
    assert scene.value("a") == "1.3.0"
    assert verdicts(result)["argocd/b"] == ("refuse", "platforms")
    assert scene.value("b") == "1.0.0"


def test_a_failing_registry_affects_only_its_own_entries(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    oci_registry.put("acme/web", "1.0.0", image())
    oci_registry.put("acme/down", "1.0.0", image())
    oci_registry.faults["/acme/down/tags/list"] = lambda _: (503, {}, b"")
    oci_registry.put("acme/closed", "1.0.0", image())
    oci_registry.faults["/acme/closed/tags/list"] = lambda _: (403, {}, b"")
    scene = Scene(tmp_path, oci_registry)
    scene.add("a")
    scene.add("b", repository="acme/down")
    scene.add("c", repository="acme/closed")
    scene.add("d", repository="acme/none")
    result = scene.scan()
    assert result.code == 75
    assert scene.value("a") == "1.0.0"
    assert {verdicts(result)[f"argocd/{name}"] for name in "bcd"} == {("error", "registry")}
    scene.apps = [one for one in scene.apps if one["metadata"]["name"] != "b"]
    assert scene.scan().code == 4
    scene.apps = [one for one in scene.apps if one["metadata"]["name"] != "c"]
    assert scene.scan().code == 3


def test_a_missing_date_is_an_error_and_no_other_tag_is_chosen(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    oci_registry.put("acme/web", "a", image(created=DAY.format(1), seed="a"))
    oci_registry.put("acme/web", "b", image(created=DAY.format(2), seed="b"))
    oci_registry.faults["/manifests/b"] = lambda _: (500, {}, b"")
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "old", update_strategy="newest-build")
    result = scene.scan()
    assert (result.code, verdicts(result)) == (75, {"argocd/a": ("error", "registry")})
    assert scene.value("a") == "old"


@pytest.mark.parametrize(
    ("tags", "annotations", "rule", "words"),
    [
        (["main", "latest"], {}, "not-a-version", "none of the 2 tags"),
        (["1.0.0"], {"image_list": "web=IMAGE:~2"}, "constraint", "the only tag is not admitted"),
        (["1.0.0", "1.0.1"], {"web.ignore_tags": "1.*"}, "ignore-tags", "none of the 2 tags"),
        (
            [f"sha256-{'a' * 64}.sig"],
            {"update_strategy": "alphabetical"},
            "not-in-registry",
            "signatures",
        ),
    ],
)
def test_a_scan_explains_why_no_tag_is_admitted(
    tmp_path: Path,
    oci_registry: RegistryApi,
    tags: list[str],
    annotations: dict[str, str],
    rule: str,
    words: str,
) -> None:
    for tag in tags:
        oci_registry.put("acme/web", tag, image())
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", **annotations)
    result = scene.scan()
    assert (result.code, verdicts(result)) == (0, {"argocd/a": ("refuse", rule)})
    assert words in result.json["decisions"][0]["because"]


def test_the_version_in_git_is_not_downgraded(tmp_path: Path, oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/web", "1.0.0", image())
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "1.2.0")
    assert verdicts(scene.scan()) == {"argocd/a": ("refuse", "not-newer")}
    assert verdicts(scene.scan("--allow-downgrade")) == {"argocd/a": ("update", "admitted")}


def test_a_hold_defers_the_found_version_and_release_applies_it(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    oci_registry.put("acme/web", "1.0.0", image())
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "1.0.0")
    apps = manifest(tmp_path, *scene.apps)
    common = ("--applications", apps, "--allow-protocol", "file")
    assert image_update("hold", "a", "--reason", "freeze", *common).code == 0
    assert verdicts(scene.scan()) == {"argocd/a": ("unchanged", "same")}
    oci_registry.put("acme/web", "1.1.0", image())
    assert verdicts(scene.scan()) == {"argocd/a": ("defer", "held")}
    tip = git(scene.repo, "rev-parse", "main")
    assert verdicts(scene.scan()) == {"argocd/a": ("defer", "held")}
    assert git(scene.repo, "rev-parse", "main") == tip
    assert image_update("release", "a", *common).code == 0
    assert scene.value("a") == "1.1.0"


def test_a_rolled_back_version_does_not_return(tmp_path: Path, oci_registry: RegistryApi) -> None:
    for number in (1, 2):
        oci_registry.put(
            "acme/web", f"main-{number}", image(created=DAY.format(number), seed=str(number))
        )
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "main-1", update_strategy="newest-build")
    scene.scan()
    assert scene.value("a") == "main-2"
    common = ("--applications", manifest(tmp_path, *scene.apps), "--allow-protocol", "file")
    assert image_update("rollback", "a", "--to", "main-1", "--no-hold", *common).code == 0
    assert verdicts(scene.scan()) == {"argocd/a": ("refuse", "superseded")}
    oci_registry.put("acme/web", "main-3", image(created=DAY.format(3), seed="3"))
    scene.scan()
    assert scene.value("a") == "main-3"


def test_a_broken_entry_is_an_error_and_the_other_entries_are_updated(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    oci_registry.put("acme/web", "1.0.0", image())
    scene = Scene(tmp_path, oci_registry)
    scene.add("a")
    scene.add("b", image_list="web=IMAGE:not~a^range")
    result = scene.scan()
    assert (result.code, verdicts(result)["argocd/b"]) == (3, ("error", "annotation"))
    assert scene.value("a") == "1.0.0"


@pytest.mark.measured
def test_details_of_the_scanning_job_are_not_recorded_as_details_of_the_build(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    oci_registry.put("acme/web", "main-2", image(created=DAY.format(2)))
    oci_registry.put("acme/web", "main-1", image(created=DAY.format(1), seed="1"))
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "main-1", update_strategy="newest-build")
    ci = {
        "GITHUB_ACTIONS": "true", "GITHUB_RUN_NUMBER": "7", "GITHUB_SHA": "a" * 40, "GITHUB_REPOSITORY": "acme/config",
        "GITHUB_SERVER_URL": "https://github.com", "GITHUB_WORKFLOW": "scan", "GITHUB_RUN_ID": "9",
    }  # fmt: skip
    assert scene.scan(env=ci).code == 0
    state = show(scene.repo, "main", ".image-update/apps/a/argocd_a.state")
    assert DAY.format(2) in state
    assert "sequence" not in state
    message = git(scene.repo, "log", "-1", "--format=%B", "main")
    assert "Source-Commit" not in message
    assert "https://github.com/acme/config/actions/runs/9" in message


def test_the_registry_is_not_queried_for_excluded_repositories(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    oci_registry.put("acme/web", "1.0.0", image())
    scene = Scene(tmp_path, oci_registry)
    scene.add("a")
    result = scene.scan("--only-repository", "https://git.example/other.git")
    assert (result.code, result.json["decisions"], oci_registry.seen) == (0, [], [])


@pytest.mark.measured
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--image", "a:1"], "scan has no --image: it looks up the newest tag"),
        (
            ["--sequence", "1"],
            "scan has no --sequence\n  fix: it is an option of run, plan and status",
        ),
        (["--registry-check", "never"], "scan cannot work without the registries"),
    ],
)
def test_scan_rejects_options_for_events(
    tmp_path: Path, oci_registry: RegistryApi, more: list[str], words: str
) -> None:
    result = Scene(tmp_path, oci_registry).scan(*more)
    assert result.code == 2
    assert words in result.stderr


def test_a_registry_gets_at_most_eight_requests_at_once(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    for number in range(40):
        oci_registry.put("acme/web", f"b{number}", image(created=DAY.format(1), seed=str(number)))
    oci_registry.delay = 0.03
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "old", update_strategy="newest-build")
    assert scene.scan().code == 0
    assert 1 < oci_registry.most_at_once <= 8


LOGIN = "s3cret-of-the-cluster"


@pytest.mark.measured
def test_applications_in_a_cluster_are_scanned_with_their_own_logins(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    oci_registry.put("acme/web", "1.2.0", image())
    digest = oci_registry.put("acme/live", "edge", image(seed="live"))
    oci_registry.users["ci"] = LOGIN
    oci_registry.challenge = 'Basic realm="registry"'
    secret = base64.b64encode(
        json.dumps({"auths": {oci_registry.name: {"username": "ci", "password": LOGIN}}}).encode()
    )
    scene = Scene(tmp_path, oci_registry)
    scene.add("a", "1.0.0")
    with running() as api:
        pull = {
            "data": {".dockerconfigjson": secret.decode()},
            "metadata": {"name": "pull", "namespace": "argocd"},
        }
        api.add(SECRETS, pull)
        named = {
            "image_list": f"web={oci_registry.name}/acme/web",
            "web__pull_secret": "pullsecret:argocd/pull",
        }
        api.add(
            APPLICATIONS,
            full_application("a", scene.repo, **named),
            full_application("b", scene.repo, **{**named, "web__pull_secret": ""}),
        )
        live = {
            "image_list": f"web={oci_registry.name}/acme/live:edge",
            "update_strategy": "digest",
        }
        api.add(APPLICATIONS, live_app("c", **live, web__pull_secret="pullsecret:argocd/pull"))
        config = kubeconfig(tmp_path, api)
        result = run("--applications", "cluster", "--kubeconfig", config, command="scan", env=ASK)
        patched = api.of(APPLICATIONS, "c")["spec"]["source"]["kustomize"]["images"]
    assert rules(result) == {
        "argocd/a": "admitted",
        "argocd/b": "registry",
        "argocd/c": "admitted",
    }, result.stderr
    assert result.code == 4
    assert scene.value("a") == "1.2.0"
    assert patched == [f"{oci_registry.name}/acme/live:edge@{digest}"]
    assert LOGIN not in result.stdout + result.stderr


# The following cases contain the tags that Argo CD Image Updater itself picks.


def rows(suite: str) -> list[Any]:
    return list(json.loads((DATA / "cases" / f"{suite}.json").read_text())["cases"])


def date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def test_a_scan_picks_the_same_tags_as_image_updater(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    """All cases are part of one scan, each with its own repository and Application."""
    cases = [
        case
        for case in rows("strategies")
        if case["input"]["op"] == "pick" and case["input"]["tags"]
    ]
    scene, expected = Scene(tmp_path, oci_registry), dict[str, str]()
    for number, case in enumerate(cases):
        given = case["input"]
        for tag in given["tags"]:
            created = date(tag["date"]) if "date" in tag else None
            oci_registry.put(
                f"case/{number}",
                tag["name"],
                image(created=created, seed=f"{number} {tag['name']}"),
            )
        strategy, constraint = given["strategy"], given["constraint"]
        if strategy == "digest":
            continue  # the constraint is the tag
        listed = f"web=IMAGE:{constraint}" if constraint else "web=IMAGE"
        scene.add(
            f"n{number}", "now", f"case/{number}", image_list=listed, update_strategy=strategy
        )
        expected[f"n{number}"] = case.get("expect_v1", case["expect"])["tag"] or "now"
    assert expected
    result = scene.scan()
    assert result.code == 0, result.stderr
    assert {name: scene.value(name) for name in expected} == expected


FLOWS = [case for case in rows("update-flow") if "registry_tags" in case["input"]]
OURS = {
    "tags-v-prefix-live": "v1.0.0 runs and 1.0.0 is the same version with the lesser text: not newer",
    "git-write-branch-digest": "a digest's colon is no branch name: an annotation error",
    "flow-hostport-existing-file": "images on one registry with a port do not overwrite one another",
    "flow-two-images-only-one-live": "what runs does not say what is updated: both images are",
    "flow-not-live-1584": "what runs does not say what is updated: both images are",
    "k-multi-registry": "what the spec holds of other repositories is carried along",
    "flow-type-none": "the type is found in Git: here nothing tells it",
}


def registry(given: Mapping[str, Any], questions: Collection[Question]) -> dict[Question, Answer]:
    """Return the registry's responses in a case."""
    known: dict[str, dict[str, str]] = {}
    for name, tags in given["registry_tags"].items():
        of_name = known.setdefault(parse_image(name).identity, {})
        of_name |= {
            tag if isinstance(tag, str) else tag["name"]: ""
            if isinstance(tag, str)
            else tag["digest"]
            for tag in tags
        }
    found = {}
    for question in questions:
        tags = known.get(question.image.identity, {})
        digest = tags.get(question.image.tag, "") if "digest" in question.facts else ""
        listed = tuple(tags) if "tags" in question.facts else ()
        found[question] = Answer(
            "tags" in question.facts or question.image.tag in tags, digest, tags=listed
        )
    return found


@pytest.mark.parametrize(
    "case", [case for case in FLOWS if case["id"] not in OURS], ids=lambda case: case["id"]
)
def test_an_update_writes_the_same_files_as_image_updater(case: dict[str, Any]) -> None:
    given, expected = case["input"], case.get("expect_v1", case["expect"])
    annotations = {PREFIX + key: value for key, value in given["annotations"].items()}
    metadata = {
        "name": given["app_name"],
        "namespace": given["app_namespace"],
        "annotations": annotations,
    }
    status = {
        "sourceType": given.get("source_type", ""),
        "summary": {"images": given["live_images"]},
    }
    app = parse_application(
        {"metadata": metadata, "spec": {"source": given["source"]}, "status": status}
    )
    found, _ = chosen(
        asks_for_all([subscribe(app)]), Terms(), lambda questions: registry(given, questions)
    )
    files = {path: File(text) for path, text in given["files"].items()} | {
        given["source"]["path"]: File("", "040000")
    }
    snapshot = Snapshot(given["source"]["repoURL"], "main", "tip", files)
    asks = [ask for ask in found.asks if settled_without_git(ask, Terms()) is None]
    about = {
        Question(
            ask.candidates[0],
            (),
            ask.subscription.policy.platforms,
            ask.subscription.policy.pull_secret,
            app.namespace,
        ): ask
        for ask in asks
    }
    answers = registry(given, [replace(question, facts=("digest",)) for question in about])
    facts = Facts(
        answers={replace(question, facts=()): answer for question, answer in answers.items()}
    )
    prepared = prepare_commits(
        snapshot, decide(snapshot, asks, Terms(), facts), Terms(), Wording(Person("a", "b"))
    )
    changed = {
        path: yaml.safe_load(file.text)
        for one in prepared.commits
        for path, file in one.changeset.files.items()
    }
    wanted = {path: file["parsed"] for path, file in expected.get("files_changed", {}).items()}
    assert changed == wanted, (found, prepared.without_commit)


def test_an_endless_tag_list_affects_only_its_own_application(
    tmp_path: Path, oci_registry: RegistryApi
) -> None:
    scene = Scene(tmp_path, oci_registry)
    scene.add("evil", repository="evil/web", allow_tags=f"regexp:^{'v' * 4000}")
    scene.add("good")
    oci_registry.put("acme/web", "1.1.0", image())
    oci_registry.tags["evil/web"] = {}

    def page(_: Seen) -> Reply:
        at = len(oci_registry.seen)
        names = ",".join(f'"{at:030d}-{number:06d}"' for number in range(40_000)).encode()
        return (
            200,
            {"Link": f'</v2/evil/web/tags/list?last={at}>; rel="next"'},
            b'{"tags":[%s]}' % names,
        )

    oci_registry.faults["/evil/web/tags/list"] = page
    apps = manifest(tmp_path, *scene.apps)
    done = subprocess.run(
        ["sh", "-c", 'ulimit -d 500000 && exec "$@"', "sh", command(), "scan", "--applications", apps,
         "--allow-protocol", "file", "--output", "json"],
        env={**os.environ, **ASK},
        capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    found = {one["application"]: one for one in json.loads(done.stdout)["decisions"]}
    assert found["argocd/good"]["verdict"] == "update"
    assert (found["argocd/evil"]["verdict"], found["argocd/evil"]["rule"]) == ("error", "registry")
    assert "lists more than 1,000,000 tags" in found["argocd/evil"]["because"]
    assert "Traceback" not in done.stderr
    assert done.returncode == 3
