"""Mistakes that would go unnoticed: annotations without effect, untracked images, and unknown names."""

import pytest
from support.reports import parsed_application

from task.annotations.subscription import subscribe
from task.image import parse_image
from task.model import Application, Image
from task.pipeline.match import asks_for_images
from task.pipeline.overlooked import Seen, unknown_names, unread_keys, untracked, untracked_problems

WEB = parse_image("ghcr.io/acme/web:1.1.0")


def annotated(name: str, namespace: str = "argocd", /, **annotations: str) -> Application:
    given = {"image_list": "web=ghcr.io/acme/web", **annotations}
    keys = {
        key.replace("__", ".").replace("_", "-"): value for key, value in given.items() if value
    }
    return parsed_application(keys, name, namespace)


def seen(*apps: Application, skipped: tuple[Application, ...] = ()) -> Seen:
    """Return Applications as read from manifests, or from a cluster (which returns some only as
    metadata).
    """
    subscribed = [subscribe(one) for one in apps if one.annotations.get("image-list")]
    return Seen(subscribed, apps, skipped)


OTHER = {"image_list": "api=ghcr.io/acme/api"}


@pytest.mark.parametrize(
    ("apps", "told"),
    [
        ([annotated("a", colour="blue")], [("argocd/a", "unknown annotation 'colour'")]),
        ([annotated("a", old__allow_tags="any")], [("argocd/a", "no image-list entry has the alias 'old'")]),
        ([annotated("a", git_credentials="x")], [("argocd/a", "another version of Image Updater, a fork, or a guide")]),
        ([annotated("a", web__git_branch="dev")], [("argocd/a", "git-branch has no per-image form")]),
        ([annotated("a", image_lst="web=acme/web")], [("argocd/a", "unknown annotation 'image-lst'")]),
        # an error that is reported by the decision
        ([annotated("a", web__allow_tag="any")], []),
        # an error for another image in an Application that uses this event's image
        ([annotated("a", image_list="web=ghcr.io/acme/web, api=acme/api", api__allow_tag="any")],
         [("argocd/a", "unknown annotation 'api.allow-tag'")]),
        # without an image-list, or with a misspelled image-list
        ([annotated("a", image_list="", image_lst="web=ghcr.io/acme/web")], [("argocd/a", "unknown annotation 'image-lst'")]),
        ([annotated("a", image_list="", web__allow_tags="any")], [("argocd/a", "has the alias 'web'")]),
        ([annotated("a", image_list="", write_back_method="git")], []),
        # Applications that the event does not concern, on one line
        ([annotated("a", **OTHER, colour="blue")], [("", "one other Application has annotations")]),
        ([annotated("a", **OTHER, allow_tag="any")], [("", "argocd/a (allow-tag)")]),
        ([annotated(f"a{n}", **OTHER, colour="blue") for n in range(5)], [("", "argocd/a3 (colour), argocd/a4 (colour)")]),
        ([annotated(f"a{n}", **OTHER, colour="blue") for n in range(9)],
         [("", "9 other Applications have annotations that have no effect: argocd/a0 (colour), ")]),
        ([annotated(f"a{n}", **OTHER) for n in range(9)], []),
    ],
)  # fmt: skip
def test_annotations_without_effect_are_reported(
    apps: list[Application], told: list[tuple[str, str]]
) -> None:
    problems = unread_keys(seen(*apps), [WEB])
    assert [one.application for one in problems] == [name for name, _ in told]
    for one, (_, words) in zip(problems, told, strict=True):
        assert words in one.message
        assert one.severity == "warning"
        assert one.hint


def test_only_five_other_applications_are_named_and_the_rest_is_counted() -> None:
    read = [annotated(f"a{number}", **OTHER, colour="blue") for number in range(4)]
    passed = tuple(annotated(f"b{number}", **OTHER, colour="blue") for number in range(300))
    (problem,) = unread_keys(seen(*read, skipped=passed), [WEB])
    assert problem.message.endswith("argocd/a3 (colour), argocd/b0 (colour) and 299 more")
    assert "image-update lint" in problem.hint


def test_a_scan_reports_mistakes_in_all_applications() -> None:
    problems = unread_keys(
        seen(
            annotated("a", **OTHER, colour="blue"),
            annotated("b", colour="blue", web__allow_tag="any"),
        ),
        (),
    )
    assert [(one.application, one.key) for one in problems] == [
        ("argocd/a", "colour"),
        ("argocd/b", "colour"),
    ]


def warned(*apps: Application) -> list[tuple[str, str, str]]:
    problems = asks_for_images([subscribe(one) for one in apps], [WEB]).problems
    assert {one.severity for one in problems} <= {"warning"}
    return [(one.application, one.key, one.message) for one in problems]


OLD = {**OTHER, "api__update_strategy": "latest", "api__tag_match": "any"}
BROKEN = {**OTHER, "api__allow_tags": "regexp:(", "api__ignore_tags": "["}


def test_deprecated_names_in_other_applications_are_reported_on_one_line() -> None:
    mine = annotated("web", web__update_strategy="latest")
    (own, others) = warned(mine, *(annotated(f"a{number}", **OLD) for number in range(200)))
    assert own[:2] == ("argocd/web", "web.update-strategy")
    assert others[0] == ""
    assert others[2].startswith(
        "200 other Applications have annotations that work but that lint warns about: argocd/a0 ("
    )
    assert others[2].endswith("argocd/a101 (api.update-strategy) and 195 more")


def test_mistakes_in_five_other_applications_are_shown_and_the_rest_is_counted() -> None:
    found = warned(*(annotated(f"a{number}", **BROKEN) for number in range(8)))
    assert [(name, key) for name, key, _ in found[:-1]] == [
        (f"argocd/a{number}", key)
        for number in range(5)
        for key in ("api.allow-tags", "api.ignore-tags")
    ]
    assert found[-1][2] == (
        "3 other Applications have invalid annotations, so their images are not updated: "
        "argocd/a5 (api.allow-tags), argocd/a6 (api.allow-tags), argocd/a7 (api.allow-tags)"
    )


def image(text: str) -> Image:
    return parse_image(f"{text}:1.0.0")


TRACKED = annotated(
    "a",
    image_list="web=ghcr.io/acme/web:~1, api=acme/api, ghcr.io/acme/cron, db=registry:5000/team/db",
)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("ghcr.io/acme/wbe", "did you mean ghcr.io/acme/web?"),
        ("ghcr.io/amce/web", "did you mean ghcr.io/acme/web?"),
        ("ghcr.io/acme/we", "did you mean ghcr.io/acme/web?"),
        ("quay.io/acme/web", "did you mean ghcr.io/acme/web?"),
        ("acme/web", "did you mean ghcr.io/acme/web?"),
        ("ghcr.io/acme/shop/cron", "did you mean ghcr.io/acme/cron?"),
        ("localhost:5000/team/db", "did you mean registry:5000/team/db?"),
        ("docker.io/acme/apis", "did you mean acme/api?"),
        ("ghcr.io/acme/webserver", "4 other images are tracked"),
        ("nginx", "4 other images are tracked"),
    ],
)
@pytest.mark.parametrize("read", [True, False], ids=["read", "passed over"])
def test_an_untracked_image_gets_a_suggestion(given: str, words: str, read: bool) -> None:
    found = seen(TRACKED) if read else seen(skipped=(TRACKED,))
    left = untracked(found, [image(given)])
    assert left == (image(given),)
    (problem,) = untracked_problems(found, left, all_were_read=True, required=False)
    assert problem.message == f"no Application tracks {given}"
    assert problem.hint.startswith(words)
    assert (problem.rule, problem.severity) == ("untracked", "warning")


def test_all_similar_images_are_suggested() -> None:
    found = seen(annotated("a", image_list="a=ghcr.io/x/web, b=ghcr.io/y/web"))
    (problem,) = untracked_problems(
        found, [image("quay.io/web")], all_were_read=True, required=False
    )
    assert "ghcr.io/x/web, ghcr.io/y/web" in problem.hint


def test_untracked_images_are_not_counted_if_not_all_applications_were_read() -> None:
    (problem,) = untracked_problems(
        seen(TRACKED), [image("nginx")], all_were_read=False, required=False
    )
    assert "other image" not in problem.hint
    (nothing,) = untracked_problems(seen(), [image("nginx")], all_were_read=True, required=False)
    assert "--applications" in nothing.hint


@pytest.mark.parametrize(
    ("annotations", "given", "tracked"),
    [
        ({}, "ghcr.io/acme/web", True),
        ({"image_list": "docker.io/library/nginx"}, "nginx", True),
        ({"web__allow_tags": "["}, "ghcr.io/acme/web", True),  # a broken entry is not untracked
        ({"web__allow_tag": "any"}, "ghcr.io/acme/web", True),
        (
            {"image_list": "ghcr.io/acme/web:>=1.0"},
            "ghcr.io/acme/web",
            True,
        ),  # an unreadable entry may match
        ({"image_list": "ghcr.io/acme/web:>=1.0"}, "ghcr.io/acme/api", False),
        ({}, "ghcr.io/acme/api", False),
    ],
)
def test_an_image_counts_as_tracked_even_if_its_entry_is_broken(
    annotations: dict[str, str], given: str, tracked: bool
) -> None:
    assert untracked(seen(annotated("a", **annotations)), [image(given)]) == (
        () if tracked else (image(given),)
    )


HERE = (annotated("web"), annotated("shop", "team"))


@pytest.mark.parametrize(
    ("name", "severity", "words"),
    [
        ("web", "", ""),
        ("w*", "", ""),
        ("team/shop", "", ""),
        ("wbe", "error", "did you mean web?"),
        ("shpo", "error", "did you mean shop?"),
        ("argocd/wep", "error", "did you mean argocd/web?"),
        ("argocd/shop", "error", "did you mean team/shop?"),
        ("nothing-like-it", "error", "use an Application that is in --applications"),
        ("far", "error", "check --namespace, --project, or --selector: an Application with that"),
        ("fra", "error", "did you mean far?"),
        ("x*", "warning", "use an Application that is in --applications"),
    ],
)
def test_an_alternative_is_suggested_for_an_unknown_application_name(
    name: str, severity: str, words: str
) -> None:
    problems = unknown_names((name,), HERE, (annotated("far"),))
    assert [one.severity for one in problems] == ([severity] if severity else [])
    assert all(words in one.hint and repr(name) in one.message for one in problems)
    assert [one.severity for one in unknown_names((name,), HERE, strict=True)] == (
        ["error"] if severity else []
    )
