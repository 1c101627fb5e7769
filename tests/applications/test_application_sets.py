"""ApplicationSets among manifests: what is read from Git to render them, and what is reported."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import bare_repo, commit
from support.reports import decision, report, trouble_of

from task.annotations.application import Narrow
from task.annotations.subscription import Defaults, Scope
from task.applications.application_sets import RenderedSets, clusters_of
from task.applications.git import MOST_REPOSITORIES, Repositories
from task.applications.manifest_files import local_manifests
from task.applications.manifest_text import found_in, is_set
from task.applications.rendering import Rendering
from task.applicationsets.fill import Budget
from task.applicationsets.generators import NamedCluster
from task.applicationsets.rendered_set import template_of
from task.errors import SourceError, UnreachableError, UsageError
from task.git.command import Git
from task.git.repository.bare import BareRepository
from task.image import parse_image
from task.model import Application, File, Found, Place, Snapshot
from task.output.report_json import as_json, report_of
from task.pipeline.discover import Discovered, discovered
from task.schemas import load

PREFIX = "argocd-image-updater.argoproj.io/"
SCOPE = Scope(PREFIX, Narrow(), Defaults())
WEB = parse_image("ghcr.io/acme/web:1")


class Store:
    """An in-memory repository that records calls."""

    def __init__(self, **files: str) -> None:
        self.files = files
        self.asked: list[str] = []

    def default_branch(self) -> str:
        self.asked.append("default branch")
        return "main"

    def snapshot(self, branch: str, places: Collection[Place]) -> Snapshot:
        self.asked.append(f"snapshot {branch} {[place.want for place in places]}")
        return Snapshot("repo", branch, "tip", {path: File("") for path in self.files})

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:
        self.asked.append(f"again {sorted(place.path for place in places)}")
        found = {
            place.path: File(self.files[place.path]) for place in places if place.path in self.files
        }
        bad = {
            path: File("", problem="not UTF-8 text")
            for path, file in found.items()
            if file.text == "bad"
        }
        return Snapshot("repo", snapshot.branch, snapshot.tip, found | bad)

    def close(self) -> None:
        self.asked.append("close")


def application_set(
    generators: str, annotations: str = "web=ghcr.io/acme/web", name: str = "{{name}}"
) -> str:
    return f"""
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {{name: fleet, namespace: team}}
spec:
  generators: {generators}
  template:
    metadata:
      name: '{name}'
      annotations:
        {PREFIX}image-list: "{annotations}"
        {PREFIX}wob.allow-tags: any
        {PREFIX}web.ignore-tags: "{{{{x}}}}"
    spec: {{project: shop, source: {{repoURL: "https://h/{{{{name}}}}.git", path: x}}}}
"""


LIST = "[{list: {elements: [{name: web}, {name: api}]}}]"


def manifests(text: str, store: Store | None = None, **more: Any) -> list[Found]:
    sets = RenderedSets(Repositories(lambda _repo: store or Store()), **more)
    read = found_in(text.encode(), "sets.yaml")
    return [
        one
        for manifest in read
        for one in (sets.of(manifest) if is_set(manifest.item) else [manifest])
    ]


def found(text: str, **more: Any) -> Discovered:
    return discovered(manifests(text, **more), SCOPE, lambda _origin: None)


def test_a_generated_application_names_its_file_and_its_application_set() -> None:
    apps = found(application_set(LIST)).applications
    assert [(app.key, app.origin, app.generated_by, app.project) for app in apps] == [
        ("team/web", "sets.yaml:2", "team/fleet", "shop"),
        ("team/api", "sets.yaml:2", "team/fleet", "shop"),
    ]
    assert apps[0].annotations["image-list"] == "web=ghcr.io/acme/web"


@pytest.mark.parametrize("order", [1, -1])
def test_an_explicit_application_takes_precedence_over_a_generated_one(order: int) -> None:
    plain = f"""
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {{name: web, namespace: team, annotations: {{{PREFIX}image-list: mine=acme/web}}}}
spec: {{source: {{repoURL: "https://h/x.git", path: x}}}}
"""
    apps = found("---".join([plain, application_set(LIST)][::order])).applications
    assert {app.key: app.annotations["image-list"] for app in apps}["team/web"] == "mine=acme/web"


def test_values_keep_their_types_in_a_set_but_become_strings_in_an_application() -> None:
    listed = "apiVersion: v1\nkind: List\nitems:\n"
    one = "- {apiVersion: argoproj.io/v1alpha1, kind: %s, metadata: {name: x}, spec: {value: 1.10, yes: on}}\n"
    items = [
        one.item
        for one in found_in((listed + one % "Application" + one % "ApplicationSet").encode(), "x")
    ]
    assert items[0]["spec"] == {"value": "1.10", "yes": "on"}
    assert items[1]["spec"] == {"value": 1.1, "true": True}


def test_every_manifest_format_produces_the_same_applications(tmp_path: Path) -> None:
    (one,) = (found.item for found in found_in(application_set(LIST).encode(), "x"))
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [one]})
    typed = json.dumps(
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSetList", "items": [one]}
    )
    streamed = application_set(LIST) + "---\n%YAML 1.1\n---\n{}\n---\n" + application_set(LIST)
    (tmp_path / "a.yaml").write_text(application_set(LIST))
    assert [found.item for found in local_manifests(str(tmp_path), Rendering())] == [one]
    for text in (listed, typed):
        assert [app.key for app in found(text).applications] == ["team/web", "team/api"]
    assert [app.key for app in found(streamed).applications] == ["team/web", "team/api"]


def test_each_revision_of_a_repository_is_fetched_once() -> None:
    store = Store(**{"a/x.yaml": "name: a", "b/x.yaml": "name: b"})
    files = "[{git: {repoURL: https://h/r.git, files: [{path: '*/x.yaml'}]}}]"
    folders = "[{git: {repoURL: https://h/r.git, directories: [{path: '*'}]}}]"
    text = "---".join(
        [
            application_set(files),
            application_set(files),
            application_set(folders, name="{{path.basename}}-2"),
        ]
    )
    assert [app.name for app in found(text, store=store).applications] == ["a", "b", "a-2", "b-2"]
    assert store.asked == [
        "default branch",
        "snapshot main ['names']",
        "again ['a/x.yaml', 'b/x.yaml']",
    ]


def test_a_revision_that_is_not_a_branch_causes_an_error_with_a_hint(tmp_path: Path) -> None:
    repo = bare_repo(tmp_path, {"a/x.yaml": "name: a\n"})
    repositories = Repositories(
        lambda url: BareRepository(Git(dict(os.environ), protocols=frozenset({"file"})), url)
    )
    for revision in ("a" * 40, "v1.0"):
        with pytest.raises(SourceError) as raised:
            repositories.paths(str(repo), revision)
        assert raised.value.hint.startswith("set the generator's revision to a branch")
    assert repositories.paths(str(repo), "HEAD") == ["a/x.yaml"]
    repositories.close()


def test_a_binary_file_fails_the_application_set() -> None:
    (one,) = [
        one
        for one in manifests(
            application_set("[{git: {repoURL: r, revision: dev, files: [{path: x}]}}]"),
            Store(x="bad"),
        )
        if one.trouble
    ]
    assert (
        trouble_of(one).message
        == "sets.yaml:2: ApplicationSet team/fleet: cannot read 'x': not UTF-8 text"
    )
    assert trouble_of(one).severity == "error"


def test_the_number_of_repositories_is_bounded() -> None:
    repositories = Repositories(lambda _repo: Store())
    for number in range(MOST_REPOSITORIES):
        repositories.paths(str(number), "main")
    with pytest.raises(SourceError, match="more than 50 repositories"):
        repositories.paths("one more", "main")
    repositories.paths("1", "main")
    repositories.close()


BROKEN = "[{list: {elements: [{name: 1}]}}]"


@pytest.mark.parametrize(
    ("image_list", "images", "strict", "severity"),
    [
        ("web=ghcr.io/acme/web", (WEB,), True, "error"),
        ("web=ghcr.io/acme/{{x}}", (WEB,), True, "error"),
        ("api=ghcr.io/acme/api", (WEB,), True, "warning"),
        ("api=ghcr.io/acme/api", (), True, "error"),
        ("api=ghcr.io/acme/api", (), False, "warning"),
    ],
)
def test_a_broken_set_causes_an_error_if_it_could_contain_the_image(
    image_list: str, images: tuple[Any, ...], strict: bool, severity: str
) -> None:
    (problem,) = found(application_set(BROKEN, image_list), images=images, strict=strict).problems
    assert (problem.rule, problem.severity, problem.application) == ("source", severity, "")
    assert problem.message.startswith(
        "sets.yaml:2: ApplicationSet team/fleet: error parsing value as string: "
    )


def test_credentials_in_a_template_are_not_shown() -> None:
    (problem,) = found(application_set(LIST, name="https://me:secret@h/x")).problems
    assert "duplicate name: https://h/x" in problem.message


def test_a_broken_set_causes_an_error_if_its_patch_names_the_image() -> None:
    patch = f"  templatePatch: '{{{PREFIX}image-list: acme/web}}'\n  template:"
    text = application_set(BROKEN, "").replace("  template:", patch)
    assert found(text, images=(WEB,)).problems[0].severity == "error"


def test_an_unreachable_git_server_causes_a_temporary_error() -> None:
    class Down(Store):
        def default_branch(self) -> str:
            raise UnreachableError("cannot be reached", hint="run it again")

    (problem,) = found(
        application_set("[{git: {repoURL: r, directories: [{path: x}]}}]"), store=Down()
    ).problems
    assert (problem.exit, problem.severity, problem.hint) == (75, "error", "run it again")


def test_a_generator_that_needs_a_server_causes_a_warning() -> None:
    discovered = found(application_set("[{pullRequest: {}}, {list: {elements: [{name: web}]}}]"))
    (problem,) = discovered.problems
    assert (problem.application, problem.severity) == ("team/fleet", "warning")
    assert "--applications cluster" in problem.hint
    assert [app.name for app in discovered.applications] == ["web"]
    assert not discovered.templates


def test_the_template_of_an_unrenderable_set_is_kept_for_lint() -> None:
    discovered = found(application_set("[{plugin: {}}]", "{{alias}}=ghcr.io/acme/{{name}}:^1"))
    assert not discovered.applications
    (app,) = discovered.templates
    assert app.annotations == {"image-list": "x=ghcr.io/acme/x:^1", "wob.allow-tags": "any"}
    assert app.sources[0].repo == "https://h/x.git"


def test_a_template_with_control_blocks_cannot_be_linted() -> None:
    (item,) = (
        one.item
        for one in found_in(application_set("[]", "{{range .x}}a={{.}},{{end}}").encode(), "x")
    )
    assert template_of(item, PREFIX) is None


def test_sets_and_generated_applications_are_counted() -> None:
    discovered = found(application_set(LIST) + "---" + application_set("[{plugin: {}}]"))
    assert (len(set(discovered.generated_by)), len(discovered.generated_by)) == (1, 2)


def test_all_sets_of_a_run_share_one_budget() -> None:
    problems = found(
        application_set(LIST) + "---" + application_set(LIST), budget=Budget(made=3)
    ).problems
    assert [one.message.partition("fleet: ")[2] for one in problems] == [
        "the ApplicationSets generate more than 3 Applications"
    ]


def test_an_application_set_in_another_api_group_is_ignored() -> None:
    text = application_set(LIST).replace("argoproj.io/v1alpha1", "example.com/v1", 1)
    assert [one.item["kind"] for one in manifests(text)] == ["ApplicationSet"]


def test_clusters_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "clusters.yaml"
    eu, us = (
        "- {name: eu, server: https://eu, labels: {env: prod}}\n",
        "- {name: us, server: https://us, project: p}\n",
    )
    file.write_text(eu + us)
    assert clusters_of(str(file)) == (
        NamedCluster("eu", "https://eu", "", {"env": "prod"}, {}),
        NamedCluster("us", "https://us", "p", {}, {}),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b", "is not a list"),
        ("- {name: x}", "entry 1 has no name or no server"),
        ("- {name: x, server: z}\n- {name: 1, server: z}", "entry 2 has no name or no server"),
        ("- {name: x, server: z, label: {}}", "entry 1: unknown key 'label'"),
        ("- {name: x, server: z, labels: {a: 1}}", "entry 1: labels is not a mapping of strings"),
        ("- [", "not valid YAML"),
    ],
)
def test_an_invalid_clusters_file_causes_a_usage_error(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        clusters_of(str(file))


def test_a_missing_clusters_file_causes_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        clusters_of(str(tmp_path / "none"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BareRepository]:
    files = {
        "apps/web/x.yaml": "name: web\n",
        "apps/.hidden/x.yaml": "name: hidden\n",
        "README": "no manifest\n",
    }
    repo = bare_repo(tmp_path, files)
    with BareRepository(Git(dict(os.environ), protocols=frozenset({"file"})), str(repo)) as opened:
        yield opened


def test_file_contents_are_read_at_the_commit_at_which_the_files_were_listed(
    store: BareRepository, tmp_path: Path
) -> None:
    first = store.snapshot("main", [Place("", "names")])
    assert sorted(first.files) == ["README", "apps/.hidden/x.yaml", "apps/web/x.yaml"]
    assert not any(file.text for file in first.files.values())
    commit(tmp_path / "repo.git", {"apps/web/x.yaml": "name: changed\n"})
    again = store.read_more(first, [Place("apps/web/x.yaml"), Place("none")])
    assert (again.tip, {path: file.text for path, file in again.files.items()}) == (
        first.tip,
        {"apps/web/x.yaml": "name: web\n"},
    )


def test_a_closed_repository_can_be_reopened(store: BareRepository) -> None:
    first = store.snapshot("main", [Place("", "names")])
    store.close()
    assert store.read_more(first, [Place("README")]).files["README"].text == "no manifest\n"


def test_the_report_names_the_set_that_generated_an_application() -> None:
    one = decision()
    app = Application("argocd", "web", {}, (), generated_by="argocd/fleet")
    made = decision(subscription=replace(one.subscription, application=app))
    data = as_json(report(one, made))
    jsonschema.validate(data, load("report.v1"))
    assert [each["generated_by"] for each in data["decisions"]] == [None, "argocd/fleet"]


def test_both_older_and_newer_reports_can_be_read() -> None:
    """Old reports lack the field, as does the schema in old readers, which accepts new fields."""
    data = as_json(report(decision()))
    for each in data["decisions"]:
        del each["generated_by"]
    assert report_of(json.dumps(data))["decisions"]
    data["decisions"][0]["of_a_later_version"] = 1
    assert report_of(json.dumps(data))["decisions"]


def test_a_recursive_value_in_a_set_is_reported_as_a_problem() -> None:
    text = "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nspec: &a {x: *a}\n"
    (one,) = found_in(text.encode(), "x.yaml")
    assert "value contains itself" in trouble_of(one).message
