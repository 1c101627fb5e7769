"""Typical command-line mistakes, and the one-line hint for each."""

import shlex

import pytest

from task import DOCS
from task.cli.app import main
from task.git.errors import failure

# Environment variables and command line, problem, remedy.
MISTAKES = """
run
    no image is set: --image is missing or empty
    set the newly built image with --image REF or --images-from FILE; if it comes from a pipeline variable, check that the variable is set
IMAGE_UPDATE_IMAGE= run
    no image is set: --image is missing or empty
    set the newly built image with --image REF or --images-from FILE; if it comes from a pipeline variable, check that the variable is set
run --image 1.5.0
    --image: '1.5.0' is a tag without an image
    use the full reference, such as ghcr.io/acme/web:1.5.0
run --image ghcr.io/acme/web
    --image: 'ghcr.io/acme/web' has neither a tag nor a digest
    use ghcr.io/acme/web:<tag>, as the build pushed it
run --image 'ghcr.io/acme/web:1.5 rc1'
    --image: 'rc1' has neither a tag nor a digest
    use rc1:<tag>, as the build pushed it; a space separates two images
run --image https://ghcr.io/acme/web:1
    --image: 'https://ghcr.io/acme/web:1': an image reference cannot begin with 'https://'
    use ghcr.io/acme/web:1
run --image ghcr.io/acme/web:1.5.0 --image-digest abc
    --image-digest: 'abc' is not a digest
    use sha256: followed by 64 hex digits, or sha512: followed by 128
run ghcr.io/acme/web:1.5.0
    run does not accept the argument 'ghcr.io/acme/web:1.5.0'
    pass the image as --image ghcr.io/acme/web:1.5.0
run --image '$(tasks.build.results.IMAGE_URL)'
    --image: the pipeline did not replace $(tasks.build.results.IMAGE_URL)
    check the names in the placeholder, and make sure that the step that sets the value runs before this one
IMAGE_UPDATE_IMAGE='{{inputs.parameters.image}}' run
    IMAGE_UPDATE_IMAGE: the pipeline did not replace {{inputs.parameters.image}}
    check the names in the placeholder, and make sure that the step that sets the value runs before this one
run --image ghcr.io/acme/web:1.5.0
    cannot tell where to read Applications from: --applications is missing or empty
    set --applications (is your pipeline's variable set?): cluster, argocd, a file or folder of manifests, - (stdin), or REPO//PATH?ref=REF
run --image ghcr.io/acme/web:1.5.0 --applications 'https://bot:pw@git.example.com/acme/deploy?ref=main'
    --applications: 'https://git.example.com/acme/deploy?ref=main' is a Git repository without a folder or file
    append // and the path to the manifests: https://git.example.com/acme/deploy//apps?ref=main
run --image ghcr.io/acme/web:1.5.0 --applications /no/such/folder
    --applications: '/no/such/folder' does not exist
    pass a file or folder of manifests that this step can see, or - for stdin
run --image ghcr.io/acme/web:1.5.0 --applications /tmp --selector 'a b'
    --selector: cannot parse 'a b'
    use a=b, a!=b, a in (b,c), a, or !a, separated by commas
plan --dry-run
    plan has no --dry-run: it never writes to Git
    remove it
lint --dry-run
    lint has no --dry-run: it never writes to Git
    remove it
run --git-token s3cret
    --git-token does not exist: others could read the secret on the command line
    set IMAGE_UPDATE_GIT_TOKEN, or pass --git-password-file FILE
scan --image ghcr.io/acme/web:1.5.0
    scan has no --image: it looks up the newest tag of every tracked image in the registries
    remove it, or use run to write the image that was just built
scan --require-match
    scan has no --require-match
    it is an option of run, promote and plan; image-update scan --help-all lists the options for scan
plan --reason x
    plan has no --reason
    it is an option of rollback and hold; image-update plan --help-all lists the options for plan
run --imag x
    unknown option --imag
    did you mean --image? image-update run --help-all shows all options
run --atomic=true
    --atomic does not take a value
    use --atomic or --no-atomic
deploy
    unknown command 'deploy'
    the commands are run, scan, promote, rollback, hold, release, plan, status, lint, check, wait, report, demo
run --image ghcr.io/acme/web:1.5.0 --deadline soon
    --deadline: 'soon' is not a number of seconds
    use a number such as 120
IMAGE_UPDATE_DEADLINE=soon run --image ghcr.io/acme/web:1.5.0
    IMAGE_UPDATE_DEADLINE: 'soon' is not a number of seconds
    use a number such as 120
IMAGE_UPDATE_ATOMIC=maybe run --image ghcr.io/acme/web:1.5.0
    IMAGE_UPDATE_ATOMIC: 'maybe' is not true or false
    use true or false
IMAGE_UPDATE_STRATEGY=newest run --image ghcr.io/acme/web:1.5.0
    IMAGE_UPDATE_STRATEGY: 'newest' is not a valid value
    use one of semver, newest-build, alphabetical, digest
hold web
    --reason is missing
    give a reason for the hold (--reason, or the variable IMAGE_UPDATE_REASON)
rollback web
    --to is missing or empty
    set the version to roll back to: a tag, previous, or 3-back (--to, or the variable IMAGE_UPDATE_TO), or the image that failed (--failed)
hold --applications /tmp --reason x
    APP... is missing
    list at least one Application, as NAME or NAMESPACE/NAME (APP..., or the variable IMAGE_UPDATE_APP)
hold web --applications /tmp --reason x --until yesterday
    --until: 'yesterday' is not a time or duration
    use a time such as 2026-12-24 or 2026-12-24T08:00:00Z, or a duration such as 90m, 12h, 3d, or 2w
wait web --applications argocd --revision main
    --revision: 'main' is not a commit ID
    use the full ID of the pushed commit (40 hex digits)
run --image ghcr.io/acme/web:1.5.0 --applications /tmp --git-username bot
    a Git username is set, but no password or token
    set IMAGE_UPDATE_GIT_TOKEN, or pass --git-password-file
IMAGE_UPDATE_GIT_TOKEN=s3cret run --image ghcr.io/acme/web:1.5.0 --applications /tmp
    a password or token is set, but not the server it is for
    specify the server: --git-credentials-url https://git.example.com/
run --image ghcr.io/acme/web:1.5.0 --applications /tmp --forge svn
    --forge: 'svn' is not a known kind of Git host
    use --forge NAME or --forge NAME=https://HOST; NAME is gitea, gitlab, github, bitbucket, bitbucket-server or azure
run --image ghcr.io/acme/web:1.5.0 --applications /tmp --forge-token-file /no/such/file
    --forge-token-file: cannot read '/no/such/file': No such file or directory
    specify a readable file
run --image ghcr.io/acme/web:1.5.0 --applications /tmp --report /no/such/report.json
    --report: cannot write '/no/such/report.json': there is no folder '/no/such'
    use a path that this user can write to
run --image ghcr.io/acme/web:1.5.0 --applications /tmp --verify-identity me
    --verify-identity requires --verify-issuer
    use --verify-identity and --verify-issuer together: the signer, and the OIDC issuer that confirms it
IMAGE_UPDATE_COMMIT_THROUGH=github IMAGE_UPDATE_SIGN_OFF=true run --signing-key k
    --signing-key, IMAGE_UPDATE_SIGN_OFF and IMAGE_UPDATE_COMMIT_THROUGH github cannot be combined
    remove --commit-through, or the other options: GitHub signs the commit, and the token's owner is its author
IMAGE_UPDATE_APPLICATIONS=cluster lint /no/such/folder
    '/no/such/folder' does not exist
    pass a file or folder of manifests that this step can see, or - for stdin
rollback web --to 0-back --applications /tmp
    --to: '0-back' is not a version to roll back to
    use a tag, tag@sha256:…, previous, or 3-back
status --html web
    --html: 'web' could be a file or an Application
    for a file, use --html=web; for an Application, use web --html
status --applications /tmp --html team-a/web api
    --html: 'team-a/web' could be a file or an Application
    for a file, use --html=team-a/web; for an Application, use team-a/web --html
"""
LINES = [line.strip() for line in MISTAKES.strip().splitlines()]


@pytest.mark.parametrize(
    ("line", "wrong", "fix"), [LINES[at : at + 3] for at in range(0, len(LINES), 3)]
)
def test_each_typical_mistake_gets_the_right_hint(
    line: str,
    wrong: str,
    fix: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = shlex.split(line)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.err == f"error: {wrong}\n  fix: {fix}\n"  # the hint is printed only once
    assert "s3cret" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("stderr", "logins", "hint"),
    [
        ("fatal: unable to access 'https://nowhere.invalid/a/': Could not resolve host: nowhere.invalid", (),
         "check the hostname in the URL; if it is correct, run it again"),
        ("fatal: could not read Username for 'https://git.b.example'", ("https://git.a.example",),
         ("if this server is allowed to receive them, also pass --git-credentials-url https://git.b.example; if not, use other "
         f"credentials: {DOCS}/credentials.md")),
        ("fatal: unable to access 'https://h/a/': Could not resolve proxy: nope.invalid", (),
         "check HTTPS_PROXY, or git's http.proxy; if this server does not need a proxy, add it to NO_PROXY"),
    ],
)  # fmt: skip
def test_git_errors_that_name_a_server_get_a_hint(
    stderr: str, logins: tuple[str, ...], hint: str
) -> None:
    error = failure(stderr, "https://git.b.example/acme/deploy@main", logins)
    assert error.hint == hint
    assert str(error).startswith(
        "https://git.b.example/acme/deploy@main: "
    )  # also names the repository
