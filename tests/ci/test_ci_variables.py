"""What CI systems say about a run."""

import pytest

from task.ci.variables import Origin, origin_of

GITHUB = {
    "GITHUB_SHA": "a1",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "acme/web",
    "GITHUB_RUN_ID": "7",
}


@pytest.mark.parametrize(
    ("environ", "commit", "repository", "run"),
    [
        (GITHUB, "a1", "https://github.com/acme/web", "https://github.com/acme/web/actions/runs/7"),
        ({**GITHUB, "CI": "true", "BUILD_URL": "https://elsewhere"}, "a1", "https://github.com/acme/web",
         "https://github.com/acme/web/actions/runs/7"),
        ({"CI_COMMIT_SHA": "b2", "CI_PROJECT_URL": "https://gl/x", "CI_PIPELINE_URL": "https://gl/x/-/pipelines/1"},
         "b2", "https://gl/x", "https://gl/x/-/pipelines/1"),
        ({"CI_COMMIT_SHA": "b3", "CI_REPO_URL": "https://wp/x", "CI_PIPELINE_URL": "https://wp/1"},
         "b3", "https://wp/x", "https://wp/1"),
        ({"GIT_COMMIT": "c3", "GIT_URL": "https://g/x.git", "BUILD_URL": "https://j/1/"},
         "c3", "https://g/x.git", "https://j/1/"),
        ({"BITBUCKET_COMMIT": "d4", "BITBUCKET_GIT_HTTP_ORIGIN": "https://bitbucket.org/a/b",
          "BITBUCKET_BUILD_NUMBER": "9"},
         "d4", "https://bitbucket.org/a/b", "https://bitbucket.org/a/b/pipelines/results/9"),
        ({"BUILD_SOURCEVERSION": "e5", "BUILD_REPOSITORY_URI": "https://dev.azure.com/o/p/_git/r",
          "SYSTEM_COLLECTIONURI": "https://dev.azure.com/o/", "SYSTEM_TEAMPROJECT": "p", "BUILD_BUILDID": "3"},
         "e5", "https://dev.azure.com/o/p/_git/r", "https://dev.azure.com/o/p/_build/results?buildId=3"),
        ({"CIRCLE_SHA1": "f6", "CIRCLE_REPOSITORY_URL": "git@github.com:a/b.git", "CIRCLE_BUILD_URL": "https://c/1"},
         "f6", "git@github.com:a/b.git", "https://c/1"),
        ({"BUILDKITE_COMMIT": "07", "BUILDKITE_REPO": "git@h:a/b", "BUILDKITE_BUILD_URL": "https://bk/1"},
         "07", "git@h:a/b", "https://bk/1"),
        ({"DRONE_COMMIT_SHA": "18", "DRONE_REPO_LINK": "https://d/a/b", "DRONE_BUILD_LINK": "https://d/a/b/1"},
         "18", "https://d/a/b", "https://d/a/b/1"),
        ({}, "", "", ""),
        ({"GITHUB_SHA": " ", "PATH": "/bin", "CI": "true"}, "", "", ""),
        ({"GITHUB_SHA": "a1"}, "a1", "", ""),
    ],
)  # fmt: skip
def test_origin(environ: dict[str, str], commit: str, repository: str, run: str) -> None:
    assert origin_of(environ)[:3] == (commit, repository, run)


def test_a_brace_in_a_value_is_no_template() -> None:
    assert origin_of({"GIT_COMMIT": "{HOME}", "HOME": "/root"}) == Origin("{HOME}")
