"""Facts from registries in whole runs: which requests are made, when, how often, and with which
login, and what follows from the responses.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes.oci_images import Content, image, index, push
from fakes.registry_api import RegistryApi, Seen, registry_api
from support import Result, bare_repo, git, image_update, show
from support.real_registry import PASSWORD, USER, open_registry, password_registry, tls_registry
from support.runs import application, manifest

ASK = {"IMAGE_UPDATE_REGISTRY_CHECK": "auto"}
TARGET = "apps/a/kustomization.yaml"
STATE = ".image-update/apps/a/argocd_a.state"
BOTH = index([image("linux/amd64"), image("linux/arm64/v8")], attested=True)
DAY = "2026-11-{:02}T06:00:00Z"
SECRET = "s3cret-pass-w0rd"


@pytest.fixture
def server(oci_registry: RegistryApi) -> RegistryApi:
    oci_registry.put("acme/web", "1.1.0", BOTH)
    return oci_registry


class Scene:
    """One Application with an image in a registry."""

    def __init__(self, folder: Path, registry: str, now: str = "1.0.0", **annotations: str) -> None:
        self.named = f"{registry}/acme/web"
        text = f"resources: []\nimages:\n- name: {self.named}\n  newTag: {now}\n"
        self.repo = bare_repo(folder, {TARGET: text})
        given = {"image_list": f"web={self.named}", **annotations}
        given["image_list"] = given["image_list"].replace("IMAGE", self.named)
        self.apps = manifest(folder, application("a", self.repo, **given))

    def run(
        self, *more: str | Path, version: str = ":1.1.0", env: Mapping[str, str] = {}
    ) -> Result:
        given = (
            "--applications",
            self.apps,
            "--allow-protocol",
            "file",
            "--output",
            "json",
            "--log-level",
            "debug",
        )
        return image_update(
            "run", "--image", f"{self.named}{version}", *given, *more, env={**ASK, **env}
        )

    @property
    def text(self) -> str:
        return show(self.repo, "main", TARGET)


def decision(result: Result) -> tuple[str, str]:
    one = result.json["decisions"][0]
    return one["verdict"], one["rule"]


DIGEST = {"image_list": "web=IMAGE:1.1.0", "update_strategy": "digest"}
NEWEST = {"update_strategy": "newest-build"}


@pytest.mark.parametrize(
    ("annotations", "more", "version", "asked"),
    [
        ({}, (), ":1.1.0", 0),
        ({"update_strategy": "alphabetical"}, (), ":1.1.0", 0),
        (DIGEST, (), f":1.1.0@{BOTH.digest}", 0),
        (DIGEST, (), ":1.1.0", 1),
        ({}, ("--pin-digest",), ":1.1.0", 1),
        ({}, ("--pin-digest",), f":1.1.0@{BOTH.digest}", 0),
        ({}, ("--registry-check", "always"), ":1.1.0", 1),
        (DIGEST, ("--registry-check", "always"), ":1.1.0", 1),
        (
            NEWEST,
            ("--created", DAY.format(2)),
            ":1.1.0",
            1,
        ),  # the creation date of the version in Git is unknown
    ],
)
def test_each_combination_of_settings_makes_the_expected_number_of_requests(
    tmp_path: Path,
    server: RegistryApi,
    annotations: dict[str, str],
    more: tuple[str, ...],
    version: str,
    asked: int,
) -> None:
    scene = Scene(tmp_path, server.name, **annotations)
    result = scene.run(*more, version=version)
    assert (result.code, decision(result)) == (0, ("update", "admitted")), result.stderr
    assert len(server.seen) == asked, server.asked
    assert ("digest" in scene.text) == bool("digest" in str(annotations) or "--pin-digest" in more)
    if "digest" in scene.text:
        assert BOTH.digest in scene.text


def test_newest_build_makes_no_requests_if_builds_have_a_sequence(
    tmp_path: Path, server: RegistryApi
) -> None:
    scene = Scene(tmp_path, server.name, **NEWEST)
    assert decision(scene.run("--sequence", "1", version=":b-1")) == ("update", "admitted")
    assert decision(scene.run("--sequence", "2", version=":b-2")) == ("update", "admitted")
    assert decision(scene.run("--sequence", "1", version=":b-1")) == ("refuse", "superseded")
    assert server.seen == []


def test_newest_build_compares_the_dates_in_the_registry(
    tmp_path: Path, server: RegistryApi
) -> None:
    scene = Scene(tmp_path, server.name, "b-2", **NEWEST)
    for number in (1, 2, 3):
        server.put("acme/web", f"b-{number}", image(created=DAY.format(number), seed=str(number)))
    older = scene.run(version=":b-1")
    assert decision(older) == ("refuse", "superseded")
    assert DAY.format(2) in older.json["decisions"][0]["because"]
    assert decision(scene.run(version=":b-3")) == ("update", "admitted")
    assert DAY.format(3) in show(scene.repo, "main", STATE)
    del server.seen[:]
    assert decision(scene.run(version=":b-2")) == ("refuse", "superseded")
    assert [one for one in server.asked if "b-3" in one] == []  # the date is remembered
    server.tags["acme/web"].pop("b-3")
    assert decision(scene.run(version=":b-1")) == ("refuse", "superseded")


def test_the_pin_digest_annotation_writes_the_digest(tmp_path: Path, server: RegistryApi) -> None:
    scene = Scene(tmp_path, server.name, **{"web.pin_digest": "true"})
    assert decision(scene.run()) == ("update", "admitted")
    assert f"digest: {BOTH.digest}" in scene.text


@pytest.mark.parametrize(
    ("annotations", "more", "version", "expected"),
    [
        ({"web.platforms": "linux/arm64"}, (), ":1.1.0", ("update", "admitted")),
        ({"web.platforms": "linux/arm64/v8"}, (), ":1.1.0", ("update", "admitted")),
        ({"web.platforms": "windows/amd64"}, (), ":1.1.0", ("refuse", "platforms")),
        ({}, ("--registry-check", "always"), ":1.2.0", ("refuse", "not-in-registry")),
        (
            {},
            ("--registry-check", "always"),
            f":1.1.0@sha256:{'0' * 64}",
            ("refuse", "not-in-registry"),
        ),
        ({"web.platforms": "linux/amd64"}, (), ":1.2.0", ("refuse", "not-in-registry")),
        (
            {"image_list": "web=IMAGE:1.2.0", "update_strategy": "digest"},
            (),
            ":1.2.0",
            ("refuse", "not-in-registry"),
        ),
        ({}, ("--pin-digest",), ":1.2.0", ("refuse", "not-in-registry")),
        (
            {"web.platforms": "windows/amd64"},
            ("--registry-check", "never"),
            ":1.1.0",
            ("update", "admitted"),
        ),
    ],
)
def test_the_response_of_the_registry_determines_the_decision(
    tmp_path: Path,
    server: RegistryApi,
    annotations: dict[str, str],
    more: tuple[str, ...],
    version: str,
    expected: tuple[str, str],
) -> None:
    scene = Scene(tmp_path, server.name, **annotations)
    result = scene.run(*more, version=version)
    assert (result.code, decision(result)) == (0, expected), result.stderr
    assert ("newTag: 1.0.0" in scene.text) == (expected[0] == "refuse")
    if "never" in more:
        assert server.seen == []


@pytest.mark.parametrize(
    ("check", "annotations", "code", "expected"),
    [
        ("auto", NEWEST, 0, ("update", "admitted")),
        ("auto", {"web.platforms": "linux/amd64"}, 0, ("update", "admitted")),
        ("auto", DIGEST, 75, ("error", "registry")),
        ("always", {}, 75, ("error", "registry")),
        ("never", NEWEST, 0, ("update", "admitted")),
        ("never", DIGEST, 3, ("error", "registry")),
    ],
)
def test_an_unreachable_registry_is_an_error_only_if_its_response_is_needed(
    tmp_path: Path, check: str, annotations: dict[str, str], code: int, expected: tuple[str, str]
) -> None:
    scene = Scene(tmp_path, "127.0.0.1:1", **annotations)
    result = scene.run("--registry-check", check)
    assert (result.code, decision(result)) == (code, expected)
    warned = [one for one in result.json["errors"] if one["severity"] == "warning"]
    assert bool(warned) == (check == "auto" and code == 0)
    assert all("127.0.0.1:1" in one["message"] for one in warned)


TEMPLATE = (
    '{{ range .AppChanges }}{{ .Image }} from {{ index .Labels "org.example.source" }}\n{{ end }}'
)


@pytest.mark.parametrize(
    ("template", "asked", "message"),
    [(TEMPLATE, True, "acme/web from there"), ("{{ .AppName }} moves\n", False, "a moves")],
)
def test_labels_are_requested_only_if_the_commit_message_shows_them(
    tmp_path: Path, server: RegistryApi, template: str, asked: bool, message: str
) -> None:
    server.put("acme/web", "1.1.0", image(labels={"org.example.source": "there"}))
    (tmp_path / "template").write_text(template)
    scene = Scene(tmp_path, server.name)
    assert scene.run("--commit-message-template", tmp_path / "template").code == 0
    assert git(scene.repo, "log", "-1", "--format=%s", "main") == message
    assert bool(server.seen) == asked


@pytest.mark.measured
def test_missing_labels_do_not_stop_the_update(tmp_path: Path, server: RegistryApi) -> None:
    server.faults["/1.1.0"] = lambda _: (500, {}, b"")
    (tmp_path / "template").write_text(
        "{{ range .AppChanges }}{{ .Image }} {{ .Labels.source }}{{ end }}\n"
    )
    scene = Scene(tmp_path, server.name)
    result = scene.run("--commit-message-template", tmp_path / "template")
    assert (result.code, decision(result)) == (0, ("update", "admitted"))
    assert "returned 500" in result.stderr


# Logins. Whichever login is used, no part of it is ever shown.


def shown(scene: Scene, result: Result) -> str:
    return result.stdout + result.stderr + git(scene.repo, "log", "-p", "--format=%B", "main")


def config(folder: Path, host: str, login: str) -> str:
    home = folder / "docker"
    home.mkdir()
    auth = base64.b64encode(login.encode()).decode()
    (home / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return str(home)


@pytest.mark.parametrize("challenge", ["basic", "bearer"])
@pytest.mark.parametrize("by", ["config", "option", "env", "ext"])
def test_each_way_to_log_in_to_the_registry_works_without_leaking_the_password(
    tmp_path: Path, server: RegistryApi, challenge: str, by: str
) -> None:
    server.users["ci"] = SECRET
    server.challenge = 'Basic realm="registry"'
    if challenge == "bearer":
        server.ask_for_tokens(ci=SECRET)
    env, more, annotations = {}, list[str](), dict[str, str](DIGEST)
    if by == "config":
        env["DOCKER_CONFIG"] = config(tmp_path, server.name, f"ci:{SECRET}")
    elif by == "option":
        env["IMAGE_UPDATE_REGISTRY_PASSWORD"] = SECRET
        more += ["--registry-username", "ci", "--registry-credentials-for", server.name]
    elif by == "env":
        env["REG_LOGIN"] = f"ci:{SECRET}"
        annotations["web.pull_secret"] = "env:REG_LOGIN"
        more += ["--allow-env", "REG_LOGIN"]
    else:
        script = tmp_path / "login"
        script.write_text(f"#!/bin/sh\necho 'ci:{SECRET}'\n")
        script.chmod(0o755)
        entry = f"{{name: x, api_url: '{server.url}', prefix: '{server.name}', credentials: 'ext:{script}'}}"
        (tmp_path / "registries.conf").write_text(f"registries:\n- {entry}\n")
        more += ["--registries-conf", str(tmp_path / "registries.conf"), "--allow-exec"]
    scene = Scene(tmp_path, server.name, **annotations)
    result = scene.run(*more, env=env)
    assert (result.code, decision(result)) == (0, ("update", "admitted")), result.stderr
    output = shown(scene, result)
    assert SECRET not in output
    assert base64.b64encode(f"ci:{SECRET}".encode()).decode() not in output
    assert not any(token in output for token in server.tokens)


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        ("env:HOME_LOGIN", "allow"),
        ("ext:/bin/login", "ext"),
        ("pullsecret:argocd/login", "no cluster is available"),
        ("secret:argocd/login#field", "no cluster is available"),  # the Application's namespace
        ("secret:other/login#field", "namespace"),
    ],
)
def test_a_pull_secret_annotation_cannot_use_sources_that_are_not_allowed(
    tmp_path: Path, server: RegistryApi, secret: str, words: str
) -> None:
    scene = Scene(tmp_path, server.name, **DIGEST, **{"web.pull_secret": secret})
    result = scene.run(env={"HOME_LOGIN": f"ci:{SECRET}"})
    assert (result.code, decision(result)[0]) == (3, "error"), result.stderr
    assert words in result.json["decisions"][0]["because"] + str(result.json["errors"])
    assert server.seen == []


def test_a_login_is_sent_only_to_the_registry_that_it_names(
    tmp_path: Path, server: RegistryApi
) -> None:
    scene = Scene(tmp_path, server.name, **DIGEST)
    env = {"IMAGE_UPDATE_REGISTRY_PASSWORD": SECRET, "IMAGE_UPDATE_REGISTRY_USERNAME": "ci"}
    alone = scene.run(env=env)
    assert (alone.code, server.seen) == (2, [])
    assert "--registry-credentials-for" in alone.stderr
    server.challenge = 'Basic realm="registry"'
    refused = scene.run("--registry-credentials-for", "ghcr.io", env=env)
    assert (refused.code, decision(refused)) == (4, ("error", "registry"))
    assert {one.login for one in server.seen} == {""}
    assert SECRET not in shown(scene, refused)


def test_a_redirect_does_not_carry_the_registry_login(tmp_path: Path, server: RegistryApi) -> None:
    server.users["ci"] = SECRET
    server.challenge = 'Basic realm="registry"'
    with registry_api("localhost") as other:
        other.put("acme/web", "1.1.0", BOTH)

        def away(seen: Seen) -> Any:
            where = f"{other.url}/v2/acme/web/manifests/1.1.0?signature={SECRET}"
            return (307, {"Location": where}, b"") if seen.login else None

        server.faults["/manifests/1.1.0"] = away
        scene = Scene(tmp_path, server.name, **DIGEST)
        result = scene.run(env={"DOCKER_CONFIG": config(tmp_path, server.name, f"ci:{SECRET}")})
        assert all(one.login == "" for one in other.seen)
    assert SECRET not in shown(scene, result)


def test_registries_conf_maps_an_image_to_its_registry(tmp_path: Path, server: RegistryApi) -> None:
    (tmp_path / "registries.conf").write_text(
        f"registries:\n- {{name: x, api_url: '{server.url}', prefix: reg.example}}\n"
    )
    scene = Scene(tmp_path, "reg.example", **DIGEST)
    result = scene.run("--registries-conf", tmp_path / "registries.conf")
    assert (result.code, server.asked) == (0, ["HEAD /v2/acme/web/manifests/1.1.0"]), result.stderr
    assert BOTH.digest in scene.text


# Tests with a real registry.


@pytest.mark.servers
@pytest.mark.xdist_group("registry")
def test_updates_and_scans_work_with_a_real_registry(tmp_path: Path) -> None:
    with open_registry(tmp_path) as real:
        for number in (1, 2):
            content: Content = image(created=DAY.format(number), seed=str(number))
            push(real.url, "acme/web", f"1.{number}.0", content)
        push(real.url, "acme/web", "1.3.0", index([image("linux/arm64", created=DAY.format(3))]))
        scene = Scene(tmp_path, real.name, "1.2.0", **NEWEST)
        assert decision(scene.run(version=":1.1.0")) == ("refuse", "superseded")
        pinned = scene.run("--pin-digest", version=":1.3.0")
        assert decision(pinned) == ("update", "admitted")
        assert "digest: sha256:" in scene.text
        scanned = image_update(
            "scan",
            "--applications",
            scene.apps,
            "--allow-protocol",
            "file",
            "--output",
            "json",
            env=ASK,
        )
        assert scanned.code == 0, scanned.stderr
        assert decision(scanned) == ("unchanged", "same")


@pytest.mark.servers
@pytest.mark.xdist_group("registry")
def test_a_password_protected_real_registry_works_only_with_the_login(tmp_path: Path) -> None:
    with password_registry(tmp_path) as real:
        push(real.url, "acme/web", "1.1.0", BOTH, auth=(USER, PASSWORD))
        scene = Scene(tmp_path, real.name, **DIGEST)
        closed = scene.run()
        assert (closed.code, decision(closed)) == (4, ("error", "registry"))
        opened = scene.run(env={"DOCKER_CONFIG": config(tmp_path, real.name, f"{USER}:{PASSWORD}")})
        assert (opened.code, decision(opened)) == (0, ("update", "admitted")), opened.stderr
        assert PASSWORD not in shown(scene, opened)


@pytest.mark.servers
@pytest.mark.xdist_group("registry")
def test_a_real_registry_over_tls_works_only_with_its_ca(tmp_path: Path) -> None:
    with tls_registry(tmp_path) as real:
        push(real.url, "acme/web", "1.1.0", BOTH, verify=str(real.ca))
        scene = Scene(tmp_path, real.name, **DIGEST)
        unknown = scene.run()
        assert (unknown.code, decision(unknown)) == (4, ("error", "registry"))
        assert "--ca-file" in str(unknown.json["errors"])
        assert scene.run("--ca-file", str(real.ca)).code == 0
