"""Which repositories a run has to do with."""

import pytest
from runs import WEB, application

from task.annotations.application import PREFIX, parse_application
from task.annotations.narrow import Narrow
from task.annotations.subscription import Defaults, Scope, subscribe
from task.deciding.job import Job, Terms, Wording
from task.image import parse_image
from task.model import Person
from task.pipeline.batches import by_repository
from task.pipeline.match import asks_for_images


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
def test_a_login_in_a_url_is_no_part_of_the_repository(only: str, found: int) -> None:
    app = parse_application(application("a", "https://ci:s3cret@git.example/gitops.git"), PREFIX)
    image = parse_image(f"{WEB}:1.1.0")
    job = Job(
        "run",
        (image,),
        Scope(PREFIX, Narrow(), Defaults()),
        Terms(),
        Wording(Person("a", "a@example.com")),
        only=(only,) if only else (),
    )
    assert len(by_repository(asks_for_images([subscribe(app)], [image]), job)) == found
