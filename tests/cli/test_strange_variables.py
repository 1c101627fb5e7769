"""Variables whose names look like options of ours, but that nobody reads."""

import pytest

from task.cli.call import strange_variables
from task.settings import SECRETS


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("IMAGE_UPDATE_PULLREQUEST", "IMAGE_UPDATE_PULL_REQUEST"),
        ("IMAGE_UPDATE_REQUEST_PULL", "IMAGE_UPDATE_PULL_REQUEST"),
        ("IMAGE_UPDATE_GIT_TOKN", "IMAGE_UPDATE_GIT_TOKEN"),
        ("IMAGE_UPDATE_Wait", "IMAGE_UPDATE_WAIT"),
        ("IMAGE_UPDATE_COLOUR_OF_THE_SKY", ""),
        ("IMAGE_UPDATE_", ""),
    ],
)
def test_a_variable_that_nobody_reads(name: str, near: str) -> None:
    (problem,) = strange_variables({name: "s3cret", "PATH": "/bin"})
    assert problem.message == f"the variable {name} is not read"
    assert (problem.severity, f"did you mean {near}?" == problem.hint) == ("warning", bool(near))
    assert "s3cret" not in str(problem)


@pytest.mark.parametrize(
    "name",
    [
        "IMAGE_UPDATE_IMAGE", "IMAGE_UPDATE_HTML", "IMAGE_UPDATE_REQUIRE_MATCH", *SECRETS,
        "IMAGE_UPDATE_RESULT_STATUS", "IMAGE_UPDATE_RESULT_", "IMAGE_UPDATE_SERVICE_HOST", "IMAGE_UPDATE_SERVICE_PORT",
        "IMAGE_UPDATE_SERVICE_PORT_HTTP_WEB", "IMAGE_UPDATE_PORT", "IMAGE_UPDATE_PORT_80_TCP",
        "IMAGE_UPDATE_PORT_53_UDP_ADDR", "IMAGE_UPDATE_PORT_9_SCTP_PORT", "IMAGE_UPDATE_DOCS_SERVICE_HOST",
        "IMAGE_UPDATER_X",
    ],
)  # fmt: skip
def test_a_variable_that_somebody_reads_or_kubernetes_makes(name: str) -> None:
    assert strange_variables({name: "x"}) == ()


def test_an_empty_variable_counts_as_unset() -> None:
    assert strange_variables({"IMAGE_UPDATE_NONSENSE": " "}) == ()
