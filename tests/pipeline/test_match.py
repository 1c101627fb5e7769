"""Which Applications a run writes together: one group per repository and set of credentials."""

import pytest
from support.fake_world import fake_world
from support.runs import WEB, application

from task.annotations.application import PREFIX, Narrow, parse_application
from task.annotations.subscription import Defaults, Scope, subscribe
from task.deciding.job import Job, Terms, Wording
from task.image import parse_image
from task.model import Person, Subscription
from task.pipeline.match import Matched, asks_for_images, by_login, by_repository

URL = "https://git.example/gitops.git"
IMAGE = parse_image(f"{WEB}:1.1.0")
JOB = Job(
    "run",
    (IMAGE,),
    Scope(PREFIX, Narrow(), Defaults()),
    Terms(),
    Wording(Person("a", "a@example.com")),
)


def matched(*rows: tuple[str, str, str, str]) -> Matched:
    """Return one Application for each row: name, namespace, project, and write-back method."""
    subscribed = []
    for name, namespace, project, method in rows:
        item = application(name, URL, write_back_method=method)
        item["metadata"]["namespace"] = namespace
        item["spec"]["project"] = project
        subscribed.append(subscribe(parse_application(item, PREFIX)))
    return asks_for_images(subscribed, [IMAGE])


@pytest.mark.parametrize(
    ("only", "found"),
    [
        ("", 1),
        ("https://git.example/gitops.git", 1),
        ("https://git.example/gitops", 1),
        ("https://me@git.example/gitops", 1),
        ("https://git.example/other", 0),
    ],
)
def test_credentials_in_a_url_are_not_part_of_the_repository(only: str, found: int) -> None:
    app = parse_application(application("a", "https://ci:s3cret@git.example/gitops.git"), PREFIX)
    job = Job(
        "run",
        (IMAGE,),
        Scope(PREFIX, Narrow(), Defaults()),
        Terms(),
        Wording(Person("a", "a@example.com")),
        only=(only,) if only else (),
    )
    assert len(by_repository(asks_for_images([subscribe(app)], [IMAGE]), job)) == found


@pytest.mark.parametrize(
    ("second", "groups"),
    [
        pytest.param(("b", "argocd", "default", "git"), ["ab"], id="same owner"),
        pytest.param(("b", "argocd", "other", "git"), ["a", "b"], id="another project"),
        pytest.param(
            ("b", "argocd", "default", "git:secret:argocd/x"), ["a", "b"], id="its own secret"
        ),
        pytest.param(
            ("b", "team", "default", "git"), ["ab"], id="another namespace without a secret"
        ),
    ],
)
def test_applications_with_different_credentials_are_not_written_together(
    second: tuple[str, str, str, str], groups: list[str]
) -> None:
    def login(sub: Subscription) -> str:
        return f"{sub.application.project} {sub.credentials}"

    found = by_repository(matched(("a", "argocd", "default", "git"), second), JOB)
    parts = by_login(found, fake_world(login=login))
    assert ["".join(ask.subscription.application.name for ask in part) for part in parts] == groups


def test_a_secret_belongs_to_its_applications_namespace() -> None:
    """In another namespace, the same annotation refers to a different secret, which may be
    unreadable.
    """
    secret = "git:secret:argocd/x"
    found = by_repository(
        matched(("a", "argocd", "default", secret), ("b", "team", "default", secret)), JOB
    )
    parts = by_login(found, fake_world(login=lambda sub: sub.application.namespace))
    assert [[ask.subscription.application.name for ask in part] for part in parts] == [["a"], ["b"]]


def test_applications_in_two_projects_with_the_same_credentials_are_written_together() -> None:
    found = by_repository(
        matched(("a", "argocd", "one", "git"), ("b", "argocd", "two", "git")), JOB
    )
    (part,) = by_login(found, fake_world(login=lambda _sub: "the platform's"))
    assert len(part) == 2


@pytest.mark.parametrize(
    ("target", "neighbour"),
    [
        ("helmvalues:/apps/api/values.yaml", "argocd/api"),
        ("helmvalues:/apps/other/values.yaml", "argocd/root"),
        ("helmvalues:/apps/web/valeus.yaml", ""),  # in its own folder, below an app of apps
    ],
)
def test_a_values_file_belongs_to_the_nearest_application(target: str, neighbour: str) -> None:
    subscribed = []
    for name, path in (("root", "apps"), ("web", "apps/web"), ("api", "apps/api")):
        item = application(name, URL, write_back_method="git", write_back_target=target)
        item["spec"]["source"]["path"] = path
        subscribed.append(subscribe(parse_application(item, PREFIX)))
    asks = asks_for_images(subscribed, [IMAGE]).asks
    assert [
        ask.subscription.neighbour for ask in asks if ask.subscription.application.name == "web"
    ] == [neighbour]
