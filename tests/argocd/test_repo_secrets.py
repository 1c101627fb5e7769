"""Argo CD's repository secrets: which secret matches a repository, and what it must contain."""

import pytest

from task.argocd.repo_secrets import (
    RepoSecret,
    argo_cds_kind,
    choose,
    may_log_in,
    named_credentials,
    repo_secret,
    secret_place,
)
from task.errors import AnnotationError, CredentialsError

APP = {"githubAppID": "1", "githubAppInstallationID": "22", "githubAppPrivateKey": "s3cret"}


def secret(kind: str, url: str, **data: str) -> RepoSecret:
    found = repo_secret(kind, f"argocd/{url}", {"url": url, **data})
    assert found is not None
    return found


def own(url: str, **data: str) -> RepoSecret:
    return secret("repository", url, **({"password": "s3cret"} | data))


def template(url: str, **data: str) -> RepoSecret:
    return secret("repo-creds", url, **({"password": "s3cret"} | data))


def chosen(secrets: list[RepoSecret], url: str, project: str = "") -> str:
    found = choose(secrets, url, project)
    return found.secret.removeprefix("argocd/") if found else ""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://github.com/acme/gitops", "https://github.com/acme/gitops.git", True),
        ("https://GitHub.com/Acme/gitops", "https://github.com/acme/gitops", True),
        (" https://github.com/acme/gitops ", "https://github.com/acme/gitops", True),
        ("git@github.com:acme/gitops.git", "ssh://git@github.com/acme/gitops", True),
        ("git@github.com:acme/gitops", "https://github.com/acme/gitops", False),
        ("https://github.com/acme/gitops", "https://github.com/acme/gitops-2", False),
        ("https://git.example.com:8443/a/b", "https://git.example.com/a/b", False),
        ("", "", False),
    ],
)
def test_url_variants_of_one_repository_are_considered_equal(
    one: str, other: str, same: bool
) -> None:
    assert bool(chosen([own(one)], other)) is same


@pytest.mark.parametrize(
    ("prefix", "url", "fits"),
    [
        ("https://github.com/argoproj", "https://github.com/argoproj/argo-cd", True),
        ("https://github.com/argoproj/", "https://github.com/argoproj-labs/applicationset", False),
        ("https://github.com/argoproj/", "https://github.com/argoproj@evil.com/malicious", False),
        ("https://github.com/argoproj/", "https://github.com/argoproj", False),
        ("https://github.com/team-", "https://github.com/team-payments/x", True),
        (
            "https://x-access-token@github.com/my-org/",
            "https://x-access-token@github.com/my-org/app",
            True,
        ),
        ("https://x-access-token@github.com/my-org/", "https://github.com/my-org/app", False),
        ("https://my-domain.com", "https://my-domain.com/org/repo", True),
        ("https://my-domain.com", "https://my-domain.com.evil.org/org/repo", False),
        ("https://my-domain.com", "https://my-domain.com@evil.org/org/repo", False),
        ("https://my-domain.com", "https://my-domain.com:8443/org/repo", False),
        ("https://my-dom", "https://my-domain.com/org/repo", False),
        ("git@github.com:argoproj", "git@github.com:argoproj/argo-cd.git", True),
        ("git@github.com:argoproj", "ssh://git@github.com/argoproj/argo-cd", True),
        ("git@github.com:argoproj", "https://github.com/argoproj/argo-cd", False),
        ("git@github.com:argoproj/", "git@github.com:argoproj-labs/foo", False),
        ("https://git.example.com:8443/org", "https://git.example.com:8443/org/repo", True),
        ("https://[::1]:8443/repo", "https://[::1]:8443/repo/app", True),
        ("https://{github,gitlab}.com/myorg", "https://bitbucket.org/other/app", False),
        ("ssh://git@github.com:argoproj", "ssh://git@github.com:evil/other", False),
        ("https://", "https://github.com/org/repo", True),
        ("https://", "http://github.com/org/repo", False),
        ("", "https://github.com/org/repo", False),
    ],
)
def test_a_credential_template_applies_to_urls_below_its_url(
    prefix: str, url: str, fits: bool
) -> None:
    assert bool(chosen([template(prefix)], url)) is fits


def test_the_longest_template_wins() -> None:
    prefixes = [
        "https://github.com/argoproj",
        "https://github.com/argoproj/argo-cd",
        "https://github.com/",
    ]
    assert (
        chosen([template(one) for one in prefixes], "https://github.com/argoproj/argo-cd.git")
        == prefixes[1]
    )
    assert (
        chosen([template(one) for one in prefixes], "https://github.com/argoproj/argo-rollouts")
        == prefixes[0]
    )


@pytest.mark.parametrize(("project", "expected"), [("a", "of-a"), ("b", "of-all"), ("", "of-all")])
def test_a_secret_of_the_same_project_takes_precedence(project: str, expected: str) -> None:
    url = "https://github.com/acme/gitops"
    secrets = [
        own(url, project="a", username="of-a"),
        own(url, username="of-all"),
        own(url, project="c", username="c"),
    ]
    found = choose(secrets, url, project)
    assert found is not None
    assert found.username == expected
    assert choose(secrets[:1], url, "b") is None


def test_a_repository_without_a_login_uses_the_template_login() -> None:
    url = "https://github.com/acme/gitops"
    plain = own(url, password="", insecure="true", proxy="http://proxy")
    found = choose([plain, template("https://github.com/acme", username="u")], url)
    assert found is not None
    assert (found.username, found.password.reveal(), found.insecure) == ("u", "s3cret", True)
    assert found.proxy.reveal() == "http://proxy"
    alone = choose([plain], url)
    assert alone is not None
    assert (alone.anything, alone.insecure) == (False, True)


def test_helm_chart_repositories_are_ignored() -> None:
    assert (
        repo_secret("repository", "x", {"url": "https://charts.example.com", "type": "helm"})
        is None
    )


def test_all_fields_of_a_repository_secret_are_read() -> None:
    data = APP | {"username": "u", "password": "s3cret", "bearerToken": "s3cret", "sshPrivateKey": "s3cret",
                  "tlsClientCertData": "PEM", "tlsClientCertKey": "s3cret", "insecureIgnoreHostKey": "TRUE",
                  "githubAppEnterpriseBaseUrl": "https://ghe.example.com/api/v3/", "proxy": "http://u:s3cret@p",
                  "noProxy": "x"}  # fmt: skip
    found = secret("repository", "https://x/y", **data).credentials
    assert found.app is not None
    assert (found.app.id, found.app.installation, found.app.api) == (
        "1",
        "22",
        "https://ghe.example.com/api/v3",
    )
    assert (found.username, found.certificate, found.insecure, found.no_proxy) == (
        "u",
        "PEM",
        True,
        "x",
    )
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"githubAppID": "1"}, "has no field githubAppInstallationID and githubAppPrivateKey"),
        (APP | {"githubAppInstallationID": "s3cret!"}, "githubAppInstallationID is not a number"),
        (APP | {"githubAppEnterpriseBaseUrl": "http://x"}, "not an https URL"),
        ({"tlsClientCertKey": "s3cret"}, "tlsClientCertData or tlsClientCertKey, but not both"),
        ({"insecure": "s3cret"}, "insecure is neither true nor false"),
    ],
)
def test_invalid_secrets_are_reported_without_showing_their_values(
    data: dict[str, str], words: str
) -> None:
    with pytest.raises(CredentialsError, match=words) as caught:
        repo_secret("repository", "argocd/x", data)
    assert "s3cret" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    ("url", "data", "words"),
    [
        ("git@github.com:a/b", {"sshPrivateKey": "k"}, ""),
        ("ssh://git@github.com/a/b", {"sshPrivateKey": "k"}, ""),
        ("https://github.com/a/b", {"username": "u", "password": "p"}, ""),
        ("https://github.com/a/b", APP, ""),
        ("https://github.com/a/b", {"bearerToken": "t"}, ""),
        ("git@github.com:a/b", {"username": "u", "password": "p"}, "no field sshPrivateKey"),
        ("https://github.com/a/b", {"sshPrivateKey": "k"}, "does not have a username and password"),
        ("https://github.com/a/b", {"username": "u"}, "does not have a username and password"),
        (
            "http://github.com/a/b",
            {"username": "u", "password": "p"},
            "works only with https and SSH URLs",
        ),
    ],
)
def test_a_named_secret_must_match_the_repository_url(
    url: str, data: dict[str, str], words: str
) -> None:
    if not words:
        assert named_credentials("team/git", url, data).anything
        return
    with pytest.raises(CredentialsError, match=words):
        named_credentials("team/git", url, data)


LABEL = "argocd.argoproj.io/secret-type"


@pytest.mark.parametrize(
    ("name", "labels", "kind"),
    [
        ("git", {}, ""),
        ("git", {"app": "x"}, ""),
        ("git", {LABEL: "repository"}, "repository"),
        ("prod", {LABEL: "cluster"}, "cluster"),
        ("prod", {LABEL: ""}, "unknown"),
        ("argocd-secret", {"app.kubernetes.io/part-of": "argocd"}, "argocd-secret"),
        ("argocd-notifications-secret", {}, "argocd-notifications-secret"),
        ("argocd-initial-admin-secret", {}, "argocd-initial-admin-secret"),
        ("argocd-redis", {}, "argocd-redis"),
        ("argocd-image-updater-secret", {}, ""),
    ],
)
def test_secrets_that_belong_to_argo_cd_are_recognized(
    name: str, labels: dict[str, str], kind: str
) -> None:
    assert argo_cds_kind({"metadata": {"name": name, "labels": labels}}) == kind


ACME = "https://git.example.com/acme"
NOT_ITS = "credentials for another repository"


@pytest.mark.parametrize(
    ("kind", "data", "url", "words"),
    [
        ("repository", {"url": f"{ACME}/gitops"}, f"{ACME}/gitops", ""),
        ("repository", {"url": f"{ACME}/gitops"}, f"{ACME}/gitops.git", ""),
        ("repository", {"url": f"{ACME}/gitops.git"}, f"{ACME}/gitops", ""),
        ("repository", {"url": f"{ACME}/gitops", "project": "shop"}, f"{ACME}/gitops", ""),
        ("repository", {"url": f"{ACME}/gitops", "type": "git"}, f"{ACME}/gitops", ""),
        ("repository-write", {"url": f"{ACME}/gitops"}, f"{ACME}/gitops.git", ""),
        ("repository", {"url": f"{ACME}/gitops"}, "https://evil.example/x", NOT_ITS),
        ("repository", {"url": f"{ACME}/gitops"}, f"{ACME}/gitops-2", NOT_ITS),
        ("repository", {"url": f"{ACME}/gitops"}, f"{ACME}/gitops/x", NOT_ITS),
        ("repository", {"url": ""}, f"{ACME}/gitops", NOT_ITS),
        ("repository", {}, "", NOT_ITS),
        (
            "repository",
            {"url": f"{ACME}/gitops", "project": "bank"},
            f"{ACME}/gitops",
            "a project other than 'shop'",
        ),
        (
            "repository",
            {"url": f"{ACME}/gitops", "type": "helm"},
            f"{ACME}/gitops",
            "does not contain Git credentials",
        ),
        ("repo-creds", {"url": ACME}, f"{ACME}/gitops.git", ""),
        ("repo-creds", {"url": f"{ACME}/"}, f"{ACME}/gitops", ""),
        ("repo-creds", {"url": "https://git.example.com"}, f"{ACME}/gitops", ""),
        ("repo-creds", {"url": "git@github.com:acme"}, "git@github.com:acme/gitops.git", ""),
        ("repo-creds", {"url": "git@github.com:acme"}, "ssh://git@github.com/acme/gitops", ""),
        ("repo-write-creds", {"url": ACME}, f"{ACME}/gitops", ""),
        ("repo-creds", {"url": ACME}, "https://git.example.com/acme-evil/x", NOT_ITS),
        ("repo-creds", {"url": "https://git.example.com/ac"}, f"{ACME}/gitops", NOT_ITS),
        (
            "repo-creds",
            {"url": "https://git.example.com"},
            "https://git.example.com.evil.org/x",
            NOT_ITS,
        ),
        (
            "repo-creds",
            {"url": "https://git.example.com"},
            "https://git.example.com@evil.org/x",
            NOT_ITS,
        ),
        (
            "repo-creds",
            {"url": "https://git.example.com"},
            "https://git.example.com:8443/x",
            NOT_ITS,
        ),
        ("repo-creds", {"url": ACME}, f"{ACME}/../evil/x", NOT_ITS),
        ("repo-creds", {"url": ACME}, f"{ACME}/%2E./evil/x", NOT_ITS),
        ("repo-creds", {"url": "https://"}, "https://evil.example/x", NOT_ITS),
        ("repo-creds", {"url": ""}, "https://evil.example/x", NOT_ITS),
        (
            "repo-creds",
            {"url": ACME, "project": "bank"},
            f"{ACME}/gitops",
            "a project other than 'shop'",
        ),
        (
            "cluster",
            {"url": f"{ACME}/gitops"},
            f"{ACME}/gitops",
            "does not contain Git credentials",
        ),
        ("scm-creds", {"url": ACME}, f"{ACME}/gitops", "does not contain Git credentials"),
        ("argocd-secret", {"url": ACME}, f"{ACME}/gitops", "does not contain Git credentials"),
        ("unknown", {"url": ACME}, f"{ACME}/gitops", "does not contain Git credentials"),
    ],
)
def test_annotations_may_name_only_matching_repository_secrets(
    kind: str, data: dict[str, str], url: str, words: str
) -> None:
    if not words:
        may_log_in("argocd/x", kind, data, url, "shop")
        return
    with pytest.raises(AnnotationError, match=words) as caught:
        may_log_in("argocd/x", kind, data, url, "shop")
    assert "bank" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("secret:team/git", ("team", "git")),
        ("secret:git", ("own", "git")),
        ("secret:a.b/c-d", ("a.b", "c-d")),
    ],
)
def test_secret_references_are_parsed(text: str, expected: tuple[str, str]) -> None:
    assert secret_place(text, "own") == expected


@pytest.mark.parametrize(
    "text",
    ["secret:", "secret:/x", "secret:a/", "secret:a/b/c", "secret:../x", "secret:A b", "secret"],
)
def test_invalid_secret_references_are_rejected(text: str) -> None:
    with pytest.raises(AnnotationError, match="does not refer to a secret"):
        secret_place(text, "own")
