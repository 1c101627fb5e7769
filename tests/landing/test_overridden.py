"""Two Applications or aliases write to the same place, and one refuses a version that the other
writes.
"""

from typing import Any

import pytest
from support.memory import SCOPE, URL, WORDING, Branch, Story
from support.runs import KUSTOMIZATION, WEB, application, target

from task.deciding.job import Job, Terms
from task.image import parse_image
from task.model import Report
from task.output.report_json import as_json
from task.output.report_text import plain
from task.output.words import lines

HELM = "apps/a/values.yaml"
POD = f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: {WEB}:1.0.0\n"


def two(where: str, other: str = "", **second: str) -> list[dict[str, Any]]:
    """Return two Applications with the same files: `a` accepts only ~1.0, and `b` accepts
    everything.
    """
    found = []
    for name, more in (("a", {"image_list": f"web={WEB}:~1.0"}), ("b", second)):
        aim = where if name == "a" else other or where
        app = application(name, URL, write_back_target=aim, **more)
        app["spec"]["source"] |= {"path": "apps/a"}
        if "helmvalues" in aim:
            read = aim.partition(":")[2]
            app["spec"]["source"]["helm"] = {"valueFiles": [read]} if read else {}
        found.append(app)
    return found


def report_of(apps: list[dict[str, Any]], files: dict[str, str], tag: str = "1.1.0") -> Report:
    one = Story(apps[0], Branch(files))
    one.others = list(apps[1:])
    job = Job("run", (parse_image(f"{WEB}:{tag}"),), SCOPE, Terms(), WORDING)
    return one.run(job)


def words(report: Report) -> dict[str, str]:
    return {f"{one.application} {one.image}": one.word for one in lines(as_json(report))}


def warned(report: Report) -> list[str]:
    return [one.message for one in report.problems if "both run it" in one.message]


@pytest.mark.parametrize(
    ("where", "other", "files"),
    [
        ("kustomization", "", {target("a"): KUSTOMIZATION}),
        ("helmvalues", "", {HELM: "image: {tag: 1.0.0}\n"}),
        ("manifests", "", {"apps/a/pod.yaml": POD}),
        ("manifests:/apps", "manifests", {"apps/a/pod.yaml": POD, "apps/x.yaml": POD}),
        ("manifests:/apps/a/pod.yaml", "manifests:/", {"apps/a/pod.yaml": POD}),
    ],
)
def test_a_refusal_is_overridden_by_another_application_with_the_same_entry(
    where: str, other: str, files: dict[str, str]
) -> None:
    report = report_of(two(where, other), files)
    assert words(report) == {f"argocd/a web={WEB}": "overridden", f"argocd/b web={WEB}": "updated"}
    refused = next(one for one in as_json(report)["decisions"] if one["verdict"] == "refuse")
    assert (refused["rule"], refused["overridden_by"]) == ("constraint", "argocd/b (web)")
    (told,) = warned(report)
    assert told.startswith("argocd/a refuses 1.1.0, but argocd/b (web) writes it to the same entry")
    text = plain(as_json(report))
    assert "1 updated, 1 overridden" in text
    assert "skipped" not in text


@pytest.mark.parametrize(
    ("where", "other", "files"),
    [
        (
            "helmvalues:/x.yaml",
            "helmvalues:/y.yaml",
            {
                "x.yaml": "image: {tag: 1.0.0}\n",
                "y.yaml": "image: {tag: 1.0.0}\n",
                "apps/a/Chart.yaml": "",
            },
        ),
        ("manifests:/apps/a/pod.yaml", "manifests:/p", {"apps/a/pod.yaml": POD, "p/p.yaml": POD}),
    ],
)
def test_separate_entries_do_not_override_each_other(
    where: str, other: str, files: dict[str, str]
) -> None:
    report = report_of(two(where, other), files)
    assert set(words(report).values()) == {"skipped", "updated"}
    assert warned(report) == []


def test_a_refusal_is_not_overridden_by_a_different_version() -> None:
    apps = two("kustomization", image_list=f"web={WEB}:~1.1")
    one = Story(apps[0], Branch({target("a"): KUSTOMIZATION}))
    one.others = [apps[1]]
    images = (parse_image(f"{WEB}:1.1.0"), parse_image(f"{WEB}:9.0.0"))
    report = one.run(Job("run", images, SCOPE, Terms(), WORDING))
    assert words(report)[f"argocd/a web={WEB}"] == "overridden"  # its first refusal
    images = (parse_image(f"{WEB}:9.0.0"), parse_image(f"{WEB}:1.1.0"))
    one.branch.commit({target("a"): KUSTOMIZATION})
    report = one.run(Job("run", images, SCOPE, Terms(), WORDING))
    assert words(report)[f"argocd/a web={WEB}"] == "skipped"


def test_a_refusal_is_overridden_by_another_alias_with_the_same_entry() -> None:
    both = f"old={WEB}:~1.0, new={WEB}"
    app = application("a", URL, image_list=both)
    report = report_of([app], {target("a"): KUSTOMIZATION})
    assert words(report) == {
        f"argocd/a old={WEB}": "overridden",
        f"argocd/a new={WEB}": "updated",
    }
    assert len(warned(report)) == 1


def test_a_held_alias_is_overridden_by_another_alias_that_moves_it() -> None:
    app = application("a", URL, image_list=f"old={WEB}, new={WEB}")
    one = Story(app, Branch({target("a"): KUSTOMIZATION}))
    one.rollback("1.0.0", "old")
    report = one.run(Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(), WORDING))
    assert words(report)[f"argocd/a old={WEB}"] == "overridden"


def test_an_update_that_was_not_pushed_overrides_nothing() -> None:
    apps = two("kustomization", pin_digest="true")
    report = report_of(apps, {target("a"): KUSTOMIZATION})
    assert words(report) == {f"argocd/a web={WEB}": "skipped", f"argocd/b web={WEB}": "failed"}
    assert warned(report) == []
