"""Turns the options of one call, as Typer read them, into `Settings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from task.errors import UsageError
from task.model import Person
from task.output.outcome import BY_HAND
from task.secret import Secret
from task.settings import (
    AccessSettings,
    ArgoSettings,
    BuildSettings,
    GitSettings,
    HoldSettings,
    OutputSettings,
    PromoteSettings,
    RegistrySettings,
    RequestSettings,
    Settings,
    ShownSettings,
    VerifySettings,
)


def settings_of(command: str, given: Mapping[str, Any]) -> Settings:
    """Return the frozen record of one call. Raises `UsageError` if options do not fit together."""

    def taken(**options: str) -> dict[str, Any]:
        """Fill each field of a record from its option. A field keeps its default if the command has no such option."""
        return {field: given[option] for field, option in options.items() if option in given}

    verify = VerifySettings(
        **taken(keys="verify", identity="verify_identity", issuer="verify_issuer", timeout="verify_timeout")
    )
    if bool(verify.identity) != bool(verify.issuer):
        raise UsageError(
            f"{'--verify-identity' if verify.identity else '--verify-issuer'} is given alone",
            hint="give --verify-identity and --verify-issuer together: who signed, and which OIDC issuer says so",
        )
    if verify.keys and verify.identity:
        raise UsageError(
            "--verify and --verify-identity are both given", hint="choose one: a public key, or an identity"
        )
    if given.get("on_failure") == "rollback":
        if not given["wait"]:
            raise UsageError("--on-failure=rollback is given without --wait", hint="give --wait: it sees the failure")
        if given["pull_request"] and not given["auto_merge"]:
            raise UsageError(
                "--on-failure=rollback does not go with a pull request that a person merges",
                hint="give --auto-merge, or leave out --on-failure and run: image-update rollback",
            )

    git = taken(
        deadline="deadline",
        rewrites="rewrite_url",
        only="only_repository",
        template_file="commit_message_template",
        trailers="trailer",
        sign_off="sign_off",
        signing_format="signing_format",
        through="commit_through",
        pipeline_run="pipeline_run",
        stall="stall_timeout",
        cache_dir="git_cache_dir",
    )
    if "git_author_name" in given:
        git["author"] = Person(given["git_author_name"], given["git_author_email"])
    if given.get("signing_key"):
        git["signing_key"] = Secret(given["signing_key"])
    if git.get("through") == "github":
        _check_api(GitSettings(**git))
    held = taken(
        apps="app",
        reason="reason",
        until="until",
        by="by",
        to="to",
        unknown="unknown_tag",
        hold="hold",
        discard="discard",
    )
    if command in BY_HAND:
        aliases = given.get("image", ())
        held["images"] = tuple(word for text in aliases for word in text.replace(",", " ").split())
    promote = taken(
        sources="promote_from",
        targets="promote_to",
        source_selector="from_selector",
        target_selector="to_selector",
        healthy="healthy",
    )
    if "promote_from" in given:
        for flag, pattern, selector in (("from", "promote_from", "from_selector"), ("to", "promote_to", "to_selector")):
            if not (given[pattern] or given[selector]):
                hint = f"name Applications with --{flag}, or their labels with --{flag}-selector"
                raise UsageError(f"--{flag} is missing", hint=hint)
        promote["images"] = tuple(word for text in given["image"] for word in text.replace(",", " ").split())
    others = taken(
        images="image",
        image_digest="image_digest",
        tag="tag",
        images_from="images_from",
        applications="applications",
        clusters="clusters",
        render="render",
        follow="follow_apps",
        application="application",
        namespace="namespace",
        project="project",
        selector="selector",
        argocd_namespace="argocd_namespace",
        strategy="strategy",
        allow_downgrade="allow_downgrade",
        require_live="require_live",
        require_update="require_update",
        require_match="require_match",
        carry="carry_parameters",
        atomic="atomic",
        repository_config="repository_config",
        holds="holds",
        from_image_updater="from_image_updater",
        newest="newest",
        builds="builds",
        check="registry_check",
    )
    if "annotation_prefix" in given:
        others["annotation_prefix"] = given["annotation_prefix"].rstrip("/") + "/"
    return Settings(
        command=command,
        **others,
        output=OutputSettings(
            **taken(
                format="output",
                report="report",
                results_dir="results_dir",
                dotenv="dotenv",
                log_level="log_level",
                log_format="log_format",
                metrics_file="metrics_file",
                cloudevent_url="cloudevent_url",
            )
        ),
        git=GitSettings(
            **git,
            protocols=frozenset(given.get("allow_protocol", ())),
            access=AccessSettings(
                **taken(
                    username="git_username",
                    password_file="git_password_file",
                    credentials_urls="git_credentials_url",
                    ssh_key_file="ssh_key_file",
                    ssh_known_hosts_file="ssh_known_hosts_file",
                    ssh_host_keys="ssh_host_key",
                    ssh_directory="ssh_directory",
                    basic_auth_directory="basic_auth_directory",
                    ca_file="ca_file",
                    app_id="github_app_id",
                    app_installation="github_app_installation_id",
                    app_key_file="github_app_key_file",
                    configured="git_config",
                )
            ),
        ),
        pin_digest=given.get("pin_digest", False) or verify.wanted,
        build=BuildSettings(
            **taken(sequence="sequence", commit="source_commit", repository="source_repository", created="created")
        ),
        held=HoldSettings(**held),
        promote=PromoteSettings(**promote),
        dry=command in ("plan", "status") or given.get("dry_run", False),
        argo=ArgoSettings(
            **taken(
                kubeconfig="kubeconfig",
                context="kube_context",
                server="argocd_server",
                token_file="argocd_auth_token_file",
                plaintext="argocd_plaintext",
                insecure="argocd_insecure",
                ca_file="argocd_ca_file",
                root_path="argocd_root_path",
                headers="argocd_header",
                refresh="refresh",
                parents="refresh_parents",
                wait="wait",
                limit="wait_timeout",
                expect_image="expect_image",
                on_failure="on_failure",
                revision="revision",
                repository="repository",
                events="kubernetes_events",
            )
        ),
        registry=RegistrySettings(
            **taken(
                conf="registries_conf",
                username="registry_username",
                password_file="registry_password_file",
                scopes="registry_credentials_for",
                cache_dir="registry_cache_dir",
                env="allow_env",
                execute="allow_exec",
            )
        ),
        request=RequestSettings(
            **taken(
                wanted="pull_request",
                labels="pull_request_label",
                reviewers="pull_request_reviewer",
                assignees="pull_request_assignee",
                draft="pull_request_draft",
                auto_merge="auto_merge",
                forge="forge",
                token_file="forge_token_file",
                username="forge_username",
                comment="comment",
                deployments="deployments",
            )
        ),
        verify=verify,
        shown=ShownSettings(**taken(file="report_file", html="html")),
    )


def _check_api(git: GitSettings) -> None:
    """Raise `UsageError` for what a commit through GitHub's API cannot have: an author, or our signature."""
    default = GitSettings()
    options = (
        ("--signing-key", bool(git.signing_key)),
        ("--signing-format", bool(git.signing_format)),
        ("--sign-off", git.sign_off),
        ("--git-author-name", git.author.name != default.author.name),
        ("--git-author-email", git.author.email != default.author.email),
    )
    if given := [option for option, is_given in options if is_given]:
        raise UsageError(
            f"{', '.join(given)} and --commit-through github are {'all' if given[1:] else 'both'} given",
            hint=f"leave out --commit-through, or {'the others' if given[1:] else given[0]}: "
            "the author is whom the token belongs to, and GitHub signs the commit",
        )
