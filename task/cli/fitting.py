"""Refuses options that do not fit together."""

from __future__ import annotations

from collections.abc import Collection

from task.errors import UsageError
from task.settings import CommitOptions, PromoteOptions, Settings, VerifyOptions


def check(settings: Settings, taken: Collection[type]) -> None:
    """Raise `UsageError` for the first mistake. `taken`: the records that the command takes."""
    _check_verify(settings.verify)
    if settings.alias.alias and settings.alias.image:
        raise UsageError("--alias and --image are both given", hint="leave out --image, the old name of --alias")
    if settings.undo.on_failure == "rollback":
        if not settings.rollout.wait:
            raise UsageError("--on-failure=rollback is given without --wait", hint="give --wait: it sees the failure")
        if settings.forge.pull_request and not settings.request.auto_merge:
            raise UsageError(
                "--on-failure=rollback does not go with a pull request that a person merges",
                hint="give --auto-merge, or leave out --on-failure and run: image-update rollback",
            )
    for option in settings.commit.push_option:
        if not option.isprintable():
            raise UsageError(f"--push-option: {option!r} has a control character", hint="remove it")
    if settings.commit.commit_through == "github":
        _check_api(settings.commit)
    if PromoteOptions in taken:
        given = settings.promote
        for flag, named in (
            ("--from", given.promote_from or given.from_selector),
            ("--to", given.promote_to or given.to_selector),
        ):
            if not named:
                hint = f"name Applications with {flag}, or their labels with {flag}-selector"
                raise UsageError(f"{flag} is missing", hint=hint)


def _check_verify(given: VerifyOptions) -> None:
    if bool(given.verify_identity) != bool(given.verify_issuer):
        raise UsageError(
            f"{'--verify-identity' if given.verify_identity else '--verify-issuer'} is given alone",
            hint="give --verify-identity and --verify-issuer together: who signed, and which OIDC issuer says so",
        )
    if given.verify and given.verify_identity:
        raise UsageError(
            "--verify and --verify-identity are both given", hint="choose one: a public key, or an identity"
        )


def _check_api(given: CommitOptions) -> None:
    """Raise `UsageError` for what a commit through GitHub's API cannot have: an author, or our signature."""
    options = (
        ("--signing-key", bool(given.signing_key)),
        ("--signing-format", bool(given.signing_format)),
        ("--sign-off", given.sign_off),
        ("--push-option", bool(given.push_option)),
        ("--git-author-name", bool(given.git_author_name)),
        ("--git-author-email", bool(given.git_author_email)),
    )
    if named := [option for option, is_given in options if is_given]:
        raise UsageError(
            f"{', '.join(named)} and --commit-through github are {'all' if named[1:] else 'both'} given",
            hint=f"leave out --commit-through, or {'the others' if named[1:] else named[0]}: "
            "the author is whom the token belongs to, and GitHub signs the commit",
        )
