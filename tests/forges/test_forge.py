"""The forge that a repository's URL belongs to, and the address of its API."""

from dataclasses import replace

import pytest

from task.errors import Malformed
from task.forges.client import ForgeAddress
from task.forges.places import Known, compare_url, forge_option, known_to, place_of

GH = ("github", "github.com", "https://api.github.com")
GL = ("gitlab", "gitlab.com", "https://gitlab.com/api/v4")
BB = ("bitbucket", "bitbucket.org", "https://api.bitbucket.org/2.0")
AZ = ("azure", "dev.azure.com", "https://dev.azure.com/acme")
WEB, DEPLOY = ("acme", "deploy"), "https://github.com/acme/deploy"

# URL → (forge, host, API address), project, page
URLS = [
    ("https://github.com/acme/deploy", GH, WEB, DEPLOY),
    ("https://github.com/acme/deploy.git", GH, WEB, DEPLOY),
    ("https://github.com/acme/deploy.git/", GH, WEB, DEPLOY),
    ("HTTPS://GitHub.com/acme/deploy/", GH, WEB, DEPLOY),
    ("http://github.com/acme/deploy", GH, WEB, DEPLOY),
    ("https://user:secret@github.com/acme/deploy.git", GH, WEB, DEPLOY),
    ("https://github.com:443/acme/deploy.git", GH, WEB, DEPLOY),
    ("git@github.com:acme/deploy.git", GH, WEB, DEPLOY),
    ("github.com:acme/deploy", GH, WEB, DEPLOY),
    ("ssh://git@github.com/acme/deploy.git", GH, WEB, DEPLOY),
    ("git+ssh://git@github.com/acme/deploy.git", GH, WEB, DEPLOY),
    ("ssh://git@ssh.github.com:443/acme/deploy.git", GH, WEB, DEPLOY),
    ("  https://github.com/acme/deploy  ", GH, WEB, DEPLOY),
    (
        "https://github.com/acme/my.repo_1",
        GH,
        ("acme", "my.repo_1"),
        "https://github.com/acme/my.repo_1",
    ),
    (
        "https://acme.ghe.com/team/deploy",
        ("github", "acme.ghe.com", "https://api.acme.ghe.com"),
        ("team", "deploy"),
        "https://acme.ghe.com/team/deploy",
    ),
    (
        "git@github.example.com:acme/deploy.git",
        ("github", "github.example.com", "https://github.example.com/api/v3"),
        WEB,
        "https://github.example.com/acme/deploy",
    ),
    (
        "https://github.example.com:8443/acme/deploy.git",
        ("github", "github.example.com:8443", "https://github.example.com:8443/api/v3"),
        WEB,
        "https://github.example.com:8443/acme/deploy",
    ),
    ("https://gitlab.com/acme/deploy.git", GL, WEB, "https://gitlab.com/acme/deploy"),
    ("https://gitlab.com/a/b/c/d.git", GL, ("a", "b", "c", "d"), "https://gitlab.com/a/b/c/d"),
    ("git@gitlab.com:a/b/c.git", GL, ("a", "b", "c"), "https://gitlab.com/a/b/c"),
    ("ssh://git@altssh.gitlab.com:443/a/b.git", GL, ("a", "b"), "https://gitlab.com/a/b"),
    (
        "ssh://git@gitlab.example.com:2222/a/b/c.git",
        ("gitlab", "gitlab.example.com", "https://gitlab.example.com/api/v4"),
        ("a", "b", "c"),
        "https://gitlab.example.com/a/b/c",
    ),
    (
        "https://codeberg.org/acme/deploy",
        ("gitea", "codeberg.org", "https://codeberg.org/api/v1"),
        WEB,
        "https://codeberg.org/acme/deploy",
    ),
    (
        "http://gitea.local:3000/acme/deploy.git",
        ("gitea", "gitea.local:3000", "http://gitea.local:3000/api/v1"),
        WEB,
        "http://gitea.local:3000/acme/deploy",
    ),
    (
        "https://forgejo.example.com/git/acme/deploy",  # below a path: project names have two parts
        ("gitea", "forgejo.example.com", "https://forgejo.example.com/git/api/v1"),
        WEB,
        "https://forgejo.example.com/git/acme/deploy",
    ),
    ("https://bitbucket.org/acme/deploy.git", BB, WEB, "https://bitbucket.org/acme/deploy"),
    ("git@bitbucket.org:acme/deploy.git", BB, WEB, "https://bitbucket.org/acme/deploy"),
    ("https://ann@bitbucket.org/acme/deploy.git", BB, WEB, "https://bitbucket.org/acme/deploy"),
    (
        "https://git.example.com/scm/PROJ/deploy.git",
        ("bitbucket-server", "git.example.com", "https://git.example.com/rest/api/1.0"),
        ("PROJ", "deploy"),
        "https://git.example.com/projects/PROJ/repos/deploy",
    ),
    (
        "https://example.com:7990/bitbucket/scm/~ann/deploy.git",
        ("bitbucket-server", "example.com:7990", "https://example.com:7990/bitbucket/rest/api/1.0"),
        ("~ann", "deploy"),
        "https://example.com:7990/bitbucket/users/ann/repos/deploy",
    ),
    (
        "ssh://git@bitbucket.example.com:7999/proj/deploy.git",
        ("bitbucket-server", "bitbucket.example.com", "https://bitbucket.example.com/rest/api/1.0"),
        ("proj", "deploy"),
        "https://bitbucket.example.com/projects/proj/repos/deploy",
    ),
    (
        "https://dev.azure.com/acme/shop/_git/deploy",
        AZ,
        ("acme", "shop", "deploy"),
        f"{AZ[2]}/shop/_git/deploy",
    ),
    (
        "https://acme@dev.azure.com/acme/shop/_git/deploy",
        AZ,
        ("acme", "shop", "deploy"),
        f"{AZ[2]}/shop/_git/deploy",
    ),
    (
        "https://dev.azure.com/acme/My%20Shop/_git/de%20ploy",
        AZ,
        ("acme", "My Shop", "de ploy"),
        f"{AZ[2]}/My%20Shop/_git/de%20ploy",
    ),
    (
        "https://dev.azure.com/acme/_git/shop",
        AZ,
        ("acme", "shop", "shop"),
        f"{AZ[2]}/shop/_git/shop",
    ),
    (
        "git@ssh.dev.azure.com:v3/acme/shop/deploy",
        AZ,
        ("acme", "shop", "deploy"),
        f"{AZ[2]}/shop/_git/deploy",
    ),
    (
        "acme@vs-ssh.visualstudio.com:v3/acme/shop/deploy",
        AZ,
        ("acme", "shop", "deploy"),
        f"{AZ[2]}/shop/_git/deploy",
    ),
    (
        "https://acme.visualstudio.com/shop/_git/deploy",
        AZ,
        ("acme", "shop", "deploy"),
        f"{AZ[2]}/shop/_git/deploy",
    ),
    (
        "https://acme.visualstudio.com/DefaultCollection/shop/_git/deploy",
        AZ,
        ("acme", "shop", "deploy"),
        f"{AZ[2]}/shop/_git/deploy",
    ),
    (
        "https://tfs.example.com/tfs/Main/shop/_git/deploy",
        ("azure", "tfs.example.com", "https://tfs.example.com/tfs/Main"),
        ("Main", "shop", "deploy"),
        "https://tfs.example.com/tfs/Main/shop/_git/deploy",
    ),
]


@pytest.mark.parametrize(("url", "where", "project", "web"), URLS, ids=[row[0] for row in URLS])
def test_repository_urls_map_to_their_forge(
    url: str, where: tuple[str, str, str], project: tuple[str, ...], web: str
) -> None:
    place = place_of(url)
    assert place is not None
    assert (place.forge, place.host, place.api) == where
    assert (place.project, place.web) == (project, web)


OTHER = [
    # known servers, URL → API address, project
    (
        ("gitlab", "https://example.com/gitlab"),
        "https://example.com/gitlab/a/b.git",
        "https://example.com/gitlab/api/v4",
        "a/b",
    ),
    (
        ("gitlab", "https://example.com/gitlab"),
        "git@example.com:a/b.git",
        "https://example.com/gitlab/api/v4",
        "a/b",
    ),
    (
        ("gitlab", "https://Example.com"),
        "https://example.com/a/b",
        "https://Example.com/api/v4",
        "a/b",
    ),
    (
        ("github", "https://git.example.com"),
        "https://git.example.com/a/b",
        "https://git.example.com/api/v3",
        "a/b",
    ),
    (
        ("gitea", "http://127.0.0.1:3000"),
        "http://127.0.0.1:3000/a/b",
        "http://127.0.0.1:3000/api/v1",
        "a/b",
    ),
    (
        ("bitbucket-server", "https://git.example.com/bb"),
        "https://git.example.com/bb/scm/P/r",
        "https://git.example.com/bb/rest/api/1.0",
        "P/r",
    ),
    (
        ("bitbucket-server", "https://git.example.com"),
        "ssh://git@git.example.com:7999/P/r.git",
        "https://git.example.com/rest/api/1.0",
        "P/r",
    ),
    (
        ("github", "https://git.example.com"),
        "https://github.com/a/b",
        "https://api.github.com",
        "a/b",
    ),
]


@pytest.mark.parametrize(("known", "url", "api", "project"), OTHER)
def test_repository_urls_on_known_servers_map_to_their_api(
    known: tuple[str, str], url: str, api: str, project: str
) -> None:
    place = place_of(url, [Known(*known)])
    assert place is not None
    assert (place.api, "/".join(place.project)) == (api, project)


def test_a_host_that_ends_with_a_hyphen_is_not_a_public_forge() -> None:
    assert place_of("https://git-/a/b.git") is None


def test_a_forge_option_without_an_address_applies_to_every_unknown_host() -> None:
    place = place_of("https://git.example.com/a/b.git", [forge_option("forgejo")])
    assert place is not None
    assert (place.forge, place.api) == ("gitea", "https://git.example.com/api/v1")


def test_unknown_ssh_hosts_are_assigned_to_the_chosen_forge() -> None:
    chosen = forge_option("gitlab=https://gitlab.example.com")
    place = place_of("git@ssh.example.com:a/b/c.git", [chosen])
    assert place is not None
    assert (place.api, place.project) == ("https://gitlab.example.com/api/v4", ("a", "b", "c"))
    assert place_of("git@ssh.example.com:a/b/c.git", [replace(chosen, chosen=False)]) is None
    assert (
        place_of("https://other.example.com/a/b", [chosen]) is None
    )  # an https URL itself contains the address of the web pages


@pytest.mark.parametrize(
    "url",
    [
        "https://git.example.com/acme/deploy",
        "git@git.example.com:acme/deploy.git",
        "https://notgithub.com/a/b",
        "https://my-git.example.com/gitlab/b",
        "https://localhost/gitlab/b",
    ],
)
def test_the_forge_of_an_unknown_host_is_undetermined(url: str) -> None:
    found = place_of(url)
    assert found is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/git/deploy.git",
        "file:///srv/git/deploy.git",
        "../deploy",
        "ext::sh -c id",
        "https://github.com/",
        "https://github.com/acme",
        "https://github.com/acme/deploy/tree/main",
        "https://gitlab.com/acme",
        "https://github.com/../deploy",
        "https://github.com/acme/..",
        "https://github.com/acme/a%2Fb",
        "https://github.com/acme/a%2e%2e%2fb",
        "https://github.com/%2e%2e/deploy",
        "https://github.com/acme/deploy%00",
        "https://github.com/acme/deploy%0d%0aHost:x",
        "https://git hub.com/acme/deploy",
        "https://github.com\\@evil.example/acme/deploy",
        "https:///acme/deploy",
        "https://dev.azure.com/acme/shop/deploy",
        "https://dev.azure.com/_git/deploy",
        "git@ssh.dev.azure.com:v3/acme/shop",
        "https://bitbucket.org/acme",
    ],
)
def test_urls_that_name_no_repository_are_malformed(url: str) -> None:
    with pytest.raises(Malformed) as caught:
        place_of(url)
    assert caught.value.hint


def test_a_host_that_starts_like_github_is_another_host() -> None:
    place = place_of("https://github.com.evil.example/a/b")
    assert place is not None
    assert (
        place.api == "https://github.com.evil.example/api/v3"
    )  # and task/forges/tokens.py sends no token there


def test_credentials_in_the_url_are_never_shown() -> None:
    place = place_of("https://user:s3cret@gitlab.com/acme/deploy")
    assert "s3cret" not in repr(place)
    with pytest.raises(Malformed) as caught:
        place_of("https://user:s3cret@gitlab.com/acme")
    assert "s3cret" not in f"{caught.value.message} {caught.value.hint}"


def test_query_and_fragment_are_not_part_of_the_repository_name() -> None:
    place = place_of("https://github.com/acme/deploy?x=/../y#z")
    assert place is not None
    assert place.project == WEB


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("github", Known("github", "", chosen=True)),
        (" GitLab ", Known("gitlab", "", chosen=True)),
        (
            "forgejo=https://git.example.com/",
            Known("gitea", "https://git.example.com", chosen=True),
        ),
        (
            "bitbucket-data-center=http://bb:7990",
            Known("bitbucket-server", "http://bb:7990", chosen=True),
        ),
    ],
)
def test_forge_options_are_parsed(text: str, known: Known) -> None:
    assert forge_option(text) == known


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gogs",
        "github=git.example.com",
        "github=https://u:p@h",
        "gitlab=https://h?x",
        "=https://h",
    ],
)
def test_invalid_forge_options_are_malformed(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        forge_option(text)
    assert "u:p" not in caught.value.message
    assert "--forge" in caught.value.hint


PAGES = [
    ("https://github.com/a/b", "https://github.com/a/b/compare/main...image-update/x%23y"),
    ("https://gitlab.com/a/b", "https://gitlab.com/a/b/-/compare/main...image-update/x%23y"),
    ("https://codeberg.org/a/b", "https://codeberg.org/a/b/compare/main...image-update/x%23y"),
    (
        "https://bitbucket.org/a/b",
        "https://bitbucket.org/a/b/branches/compare/image-update/x%23y%0Dmain",
    ),
    (
        "https://h.example/scm/P/b",
        "https://h.example/projects/P/repos/b/compare/commits?targetBranch=refs/heads/main&sourceBranch=refs/heads/image-update/x%23y",
    ),
    (
        "https://dev.azure.com/a/p/_git/b",
        "https://dev.azure.com/a/p/_git/b/branchCompare?baseVersion=GBmain&targetVersion=GBimage-update/x%23y",
    ),
]


@pytest.mark.parametrize(("url", "compare"), PAGES)
def test_each_forge_has_a_compare_page(url: str, compare: str) -> None:
    place: ForgeAddress | None = place_of(url)
    assert place is not None
    assert compare_url(place, "main", "image-update/x#y") == compare


@pytest.mark.parametrize(
    ("environ", "known"),
    [
        ({}, ()),
        (
            {"GITHUB_SERVER_URL": "https://git.example.com/"},
            (Known("github", "https://git.example.com"),),
        ),
        (
            {"GITHUB_SERVER_URL": "https://git.example.com", "GITEA_ACTIONS": "true"},
            (Known("gitea", "https://git.example.com"),),
        ),
        (
            {"CI_SERVER_URL": "https://example.com/gitlab"},
            (Known("gitlab", "https://example.com/gitlab"),),
        ),
        (
            {"SYSTEM_COLLECTIONURI": "https://tfs.example.com/tfs/Main/"},
            (Known("azure", "https://tfs.example.com"),),
        ),
        ({"CI_SERVER_URL": "git.example.com"}, ()),
    ],
)
def test_the_ci_systems_server_is_a_known_forge(
    environ: dict[str, str], known: tuple[Known, ...]
) -> None:
    assert known_to(environ) == known
