"""A separate registry value next to an image name that contains another registry."""

import pytest
from support.memory import SCOPE, URL, WORDING, Branch, Story
from support.runs import WEB, application

from task.deciding.job import Job, Terms
from task.image import parse_image

FILE = "apps/a/values.yaml"


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("{registry: quay.io, repository: acme/web, tag: 1.0.0}", "image.registry is quay.io"),
        ("{registry: docker.io, repository: ghcr.io/acme/web, tag: 1.0.0}", "is docker.io"),
        ("{registry: ghcr.io, repository: acme/web, tag: 1.0.0}", ""),
        ("{registry: ghcr.io, repository: ghcr.io/acme/web, tag: 1.0.0}", ""),
        ("{registry: '', repository: acme/web, tag: 1.0.0}", ""),
        ("{registry: quay.io, repository: acme/other, tag: 1.0.0}", ""),  # a template may use it
        ("{registry: quay.io, tag: 1.0.0}", ""),
        ("{repository: ghcr.io/acme/web, tag: 1.0.0}", ""),
    ],
)
def test_a_registry_value_that_contradicts_the_image_causes_a_warning(
    image: str, told: str
) -> None:
    app = application("a", URL, write_back_target="helmvalues:/" + FILE)
    app["spec"]["source"]["helm"] = {}
    one = Story(app, Branch({FILE: f"image: {image}\n"}))
    report = one.run(Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(), WORDING))
    assert [found.verdict for found in report.decisions] == ["update"]
    words = [problem.message for problem in report.problems if "registry" in problem.message]
    assert [told in message and f"the image is {WEB}" in message for message in words] == (
        [True] if told else []
    )
    assert all(problem.severity == "warning" for problem in report.problems)
