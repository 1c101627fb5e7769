"""The environment variables that each CI system sets in its jobs, with one row per CI system.

The names come from the CI systems' documentation. Strings with braces are templates that are filled
with variables. `ci/` uses the rows for builds, their sources, and pull requests; `forges/` uses
them for the job's token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Origin(NamedTuple):
    """Where an image comes from, and which run deploys it. Unknown fields are ""."""

    commit: str = ""
    repository: str = ""
    run: str = ""
    author: str = ""  # in the form "Name <address>"
    date: str = ""  # RFC 3339
    message: str = ""


class Counter(NamedTuple):
    """A run's number, and the counters that the number may belong to."""

    number: str
    names: tuple[str, ...]  # the first name whose variables are all set is used


_PIPELINE = "run it in a pipeline that is triggered by a pull request"


class RequestVariables(NamedTuple):
    """The variables that describe the pull request that a job runs for."""

    numbers: tuple[str, ...]  # the first variable that is set is used
    repositories: tuple[str, ...]
    hint: str = _PIPELINE


class ComparedVariables(NamedTuple):
    """The variables that contain the branches and commits to compare, in one kind of pull request
    job of a CI system.

    Without `base`, the base is the tip of the branch.
    """

    head: str
    branch: str
    base: str = ""
    merge: str = ""
    # the variable, and its value, that identify this situation
    when: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class CiSystem:
    """A CI system and its environment variables."""

    name: str
    marker: str  # the variable that distinguishes this system from others
    page: str  # the documentation page for its variables
    origin: Origin
    actor: str  # the variable that contains the name of the person who started the pipeline
    counter: Counter | None = None  # None if the jobs do not know their run's number
    # None for GitHub Actions, where GITHUB_REF or the event file identifies the pull request
    request: RequestVariables | None = None
    # the first situation whose variables are all set applies
    situations: tuple[ComparedVariables, ...] = ()
    # the variables that contain the job's token for requests, and the server that accepts the token
    token: tuple[str, str] | None = None
    urls_with_token: tuple[str, ...] = ()  # variables that contain a URL with the job's token in it


# If several rows match, the first one is used.
SYSTEMS = (
    CiSystem(
        name="GitHub, Gitea and Forgejo Actions",
        marker="GITHUB_REPOSITORY",  # Gitea's and Forgejo's runners also set GitHub's variables
        page="https://docs.github.com/actions/reference/workflows-and-actions/variables",
        origin=Origin(
            "{GITHUB_SHA}",
            "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}",
            "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}",
        ),
        actor="GITHUB_ACTOR",
        counter=Counter(  # counted per workflow; a rerun keeps its number
            "{GITHUB_RUN_NUMBER}",
            (
                "github:{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/{WORKFLOW_FILE}",
                "github:{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/{GITHUB_WORKFLOW}",
            ),
        ),
        token=("GITHUB_TOKEN", "GITHUB_SERVER_URL"),
    ),
    CiSystem(
        name="GitLab",
        marker="GITLAB_CI",
        page="https://docs.gitlab.com/ci/variables/predefined_variables/",
        origin=Origin(
            "{CI_COMMIT_SHA}",
            "{CI_PROJECT_URL}",
            "{CI_PIPELINE_URL}",
            "{CI_COMMIT_AUTHOR}",
            "{CI_COMMIT_TIMESTAMP}",
            "{CI_COMMIT_MESSAGE}",
        ),
        actor="GITLAB_USER_LOGIN",
        counter=Counter("{CI_PIPELINE_IID}", ("gitlab:{CI_PROJECT_URL}",)),
        request=RequestVariables(
            ("CI_MERGE_REQUEST_IID",),
            ("{CI_MERGE_REQUEST_PROJECT_URL}", "{CI_PROJECT_URL}"),
            "run it in a merge request pipeline: rules: [{if: $CI_PIPELINE_SOURCE =="
            " 'merge_request_event'}]",
        ),
        situations=(
            # In a merge train, the base is the branch with the requests ahead of this one.
            ComparedVariables(
                "{CI_COMMIT_SHA}",
                "{CI_MERGE_REQUEST_TARGET_BRANCH_NAME}",
                base="{CI_MERGE_REQUEST_TARGET_BRANCH_SHA}",
                when=("CI_MERGE_REQUEST_EVENT_TYPE", "merge_train"),
            ),
            ComparedVariables(
                "{CI_COMMIT_SHA}",
                "{CI_MERGE_REQUEST_TARGET_BRANCH_NAME}",
                when=("CI_MERGE_REQUEST_EVENT_TYPE", "merge_train"),
            ),
            ComparedVariables(
                "{CI_MERGE_REQUEST_SOURCE_BRANCH_SHA}",
                "{CI_MERGE_REQUEST_TARGET_BRANCH_NAME}",
                merge="{CI_COMMIT_SHA}",
            ),
            ComparedVariables("{CI_COMMIT_SHA}", "{CI_MERGE_REQUEST_TARGET_BRANCH_NAME}"),
        ),
        # the job token cannot write merge requests
        urls_with_token=("CI_REPOSITORY_URL", "CI_BUILD_REPO"),
    ),
    CiSystem(
        name="Bitbucket Pipelines",
        marker="BITBUCKET_BUILD_NUMBER",
        page="https://support.atlassian.com/bitbucket-cloud/docs/variables-and-secrets/",
        origin=Origin(
            "{BITBUCKET_COMMIT}",
            "{BITBUCKET_GIT_HTTP_ORIGIN}",
            "{BITBUCKET_GIT_HTTP_ORIGIN}/pipelines/results/{BITBUCKET_BUILD_NUMBER}",
        ),
        actor="BITBUCKET_STEP_TRIGGERER_UUID",
        counter=Counter(
            "{BITBUCKET_BUILD_NUMBER}",
            ("bitbucket:{BITBUCKET_GIT_HTTP_ORIGIN}", "bitbucket:{BITBUCKET_REPO_FULL_NAME}"),
        ),
        request=RequestVariables(
            ("BITBUCKET_PR_ID",),
            ("{BITBUCKET_GIT_HTTP_ORIGIN}",),
            "move it under pull-requests: in bitbucket-pipelines.yml",
        ),
        situations=(ComparedVariables("{BITBUCKET_COMMIT}", "{BITBUCKET_PR_DESTINATION_BRANCH}"),),
    ),
    CiSystem(
        name="Azure Pipelines",
        marker="TF_BUILD",
        page="https://learn.microsoft.com/azure/devops/pipelines/build/variables",
        origin=Origin(
            "{BUILD_SOURCEVERSION}",
            "{BUILD_REPOSITORY_URI}",
            "{SYSTEM_COLLECTIONURI}{SYSTEM_TEAMPROJECT}/_build/results?buildId={BUILD_BUILDID}",
        ),
        actor="BUILD_REQUESTEDFOR",
        # one counter for the whole organization
        counter=Counter("{BUILD_BUILDID}", ("azure:{SYSTEM_COLLECTIONURI}",)),
        # for GitHub repositories, the number is set, but the ID means something else
        request=RequestVariables(
            ("SYSTEM_PULLREQUEST_PULLREQUESTNUMBER", "SYSTEM_PULLREQUEST_PULLREQUESTID"),
            ("{BUILD_REPOSITORY_URI}",),
        ),
        situations=(
            ComparedVariables(
                "{SYSTEM_PULLREQUEST_SOURCECOMMITID}",
                "{SYSTEM_PULLREQUEST_TARGETBRANCH}",
                merge="{BUILD_SOURCEVERSION}",
            ),
        ),
        token=("SYSTEM_ACCESSTOKEN", "SYSTEM_COLLECTIONURI"),
    ),
    CiSystem(  # jobs only have a job count, which includes reruns
        name="CircleCI",
        marker="CIRCLECI",
        page="https://circleci.com/docs/reference/variables/",
        origin=Origin("{CIRCLE_SHA1}", "{CIRCLE_REPOSITORY_URL}", "{CIRCLE_BUILD_URL}"),
        actor="CIRCLE_USERNAME",
        request=RequestVariables(("CIRCLE_PULL_REQUEST",), ("{CIRCLE_REPOSITORY_URL}",)),
    ),
    CiSystem(
        name="Jenkins",
        marker="JENKINS_URL",
        page="https://www.jenkins.io/doc/book/pipeline/multibranch/#additional-environment-variables",
        origin=Origin("{GIT_COMMIT}", "{GIT_URL}", "{BUILD_URL}"),
        actor="BUILD_USER_ID",  # set by the Build User Vars plugin
        counter=Counter(
            "{BUILD_NUMBER}",
            ("jenkins:{JOB_URL}", "jenkins:{JENKINS_URL}/{JOB_NAME}", "jenkins:{JOB_NAME}"),
        ),
        request=RequestVariables(("CHANGE_ID",), ("{GIT_URL}",)),
        situations=(ComparedVariables("{GIT_COMMIT}", "{CHANGE_TARGET}"),),
    ),
    CiSystem(
        name="Buildkite",
        marker="BUILDKITE",
        page="https://buildkite.com/docs/pipelines/configure/environment-variables",
        origin=Origin(
            "{BUILDKITE_COMMIT}",
            "{BUILDKITE_REPO}",
            "{BUILDKITE_BUILD_URL}",
            message="{BUILDKITE_MESSAGE}",
        ),
        actor="BUILDKITE_BUILD_CREATOR",
        counter=Counter(
            "{BUILDKITE_BUILD_NUMBER}",
            ("buildkite:{BUILDKITE_ORGANIZATION_SLUG}/{BUILDKITE_PIPELINE_SLUG}",),
        ),
        request=RequestVariables(("BUILDKITE_PULL_REQUEST",), ("{BUILDKITE_REPO}",)),
        situations=(
            ComparedVariables(
                "{BUILDKITE_COMMIT}",
                "{BUILDKITE_MERGE_QUEUE_BASE_BRANCH}",
                base="{BUILDKITE_MERGE_QUEUE_BASE_COMMIT}",
            ),
            ComparedVariables("{BUILDKITE_COMMIT}", "{BUILDKITE_PULL_REQUEST_BASE_BRANCH}"),
        ),
    ),
    CiSystem(
        name="Drone",
        marker="DRONE",
        page="https://docs.drone.io/pipeline/environment/reference/",
        origin=Origin(
            "{DRONE_COMMIT_SHA}",
            "{DRONE_REPO_LINK}",
            "{DRONE_BUILD_LINK}",
            message="{DRONE_COMMIT_MESSAGE}",
        ),
        actor="DRONE_BUILD_TRIGGER",
        counter=Counter("{DRONE_BUILD_NUMBER}", ("drone:{DRONE_REPO_LINK}", "drone:{DRONE_REPO}")),
        request=RequestVariables(("DRONE_PULL_REQUEST",), ("{DRONE_REPO_LINK}",)),
        situations=(
            ComparedVariables(  # for a push, the target is the pushed branch itself
                "{DRONE_COMMIT_SHA}",
                "{DRONE_TARGET_BRANCH}",
                when=("DRONE_BUILD_EVENT", "pull_request"),
            ),
        ),
    ),
    CiSystem(  # some of its variables have the same names as GitLab's
        name="Woodpecker",
        marker="CI_REPO_URL",
        page="https://woodpecker-ci.org/docs/usage/environment",
        origin=Origin(
            "{CI_COMMIT_SHA}",
            "{CI_REPO_URL}",
            "{CI_PIPELINE_URL}",
            message="{CI_COMMIT_MESSAGE}",
        ),
        actor="CI_PIPELINE_AUTHOR",
        counter=Counter("{CI_PIPELINE_NUMBER}", ("woodpecker:{CI_REPO_URL}",)),
        request=RequestVariables(("CI_COMMIT_PULL_REQUEST",), ("{CI_REPO_URL}",)),
        situations=(
            ComparedVariables(
                "{CI_COMMIT_SHA}",
                "{CI_COMMIT_TARGET_BRANCH}",
                when=("CI_PIPELINE_EVENT", "pull_request"),
            ),
        ),
    ),
)
