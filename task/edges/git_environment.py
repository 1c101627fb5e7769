"""The environment of every git process: the host's, without what would change what git does. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from task.edges.git_names import Address

# Of the host's GIT_* only what says how servers are reached; the rest would point git at other repositories or
# identities, or make it speak otherwise (GIT_DIR, GIT_INDEX_FILE, GIT_TRACE, GIT_AUTHOR_NAME, ...).
_KEPT = frozenset({
    "GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_EXEC_PATH",
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_HTTP_USER_AGENT", "GIT_HTTP_PROXY_AUTHMETHOD",
    "GIT_PROXY_COMMAND", "GIT_PROXY_SSL_CAINFO", "GIT_PROXY_SSL_CERT", "GIT_PROXY_SSL_KEY",
    "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY", "GIT_SSL_CERT_PASSWORD_PROTECTED",
    "GIT_SSL_NO_VERIFY", "GIT_SSL_VERSION", "GIT_SSL_CIPHER_LIST",
})  # fmt: skip
_DROPPED = frozenset({"LANGUAGE", "SSH_ASKPASS", "DISPLAY"})
_CONFIG_KEPT = ("credential.", "http.", "url.", "ssh.", "core.sshcommand", "core.askpass", "core.gitproxy")
_SETTINGS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",  # git >= 2.44: an object that is missing is an error, no fetch of its own
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_PAGER": "cat",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    "LC_ALL": "C",
}
_LOGIN_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n"'
    ' "$IMAGE_UPDATE_URL_USER" "$IMAGE_UPDATE_URL_PASSWORD"; }; f'
)


def clean_environment(environ: Mapping[str, str], protocols: frozenset[str]) -> dict[str, str]:
    """The host's environment, and ours on top. `protocols`: the only transports that git may use."""
    kept = {name: value for name, value in environ.items() if not name.startswith("GIT_") or name in _KEPT}
    clean = {name: value for name, value in kept.items() if name not in _DROPPED and not _harmful(name, value)}
    pairs = [(key, value) for key, value in _config_pairs(environ) if key.lower().startswith(_CONFIG_KEPT)]
    return {**clean, **_config_environment(pairs), **_SETTINGS, "GIT_ALLOW_PROTOCOL": ":".join(sorted(protocols))}


def _harmful(name: str, value: str) -> bool:
    """An empty variable counts as unset; to git an empty GIT_SSL_CAINFO is an error."""
    return name in _KEPT and not value.strip()


def _config_pairs(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    count = environ.get("GIT_CONFIG_COUNT", "")
    numbers = range(int(count) if count.isdigit() else 0)
    return [(environ.get(f"GIT_CONFIG_KEY_{n}", ""), environ.get(f"GIT_CONFIG_VALUE_{n}", "")) for n in numbers]


def _config_environment(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    if not pairs:
        return {}
    keys = {f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in enumerate(pairs)}
    values = {f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in enumerate(pairs)}
    return {"GIT_CONFIG_COUNT": str(len(pairs)), **keys, **values}


def login_environment(environ: Mapping[str, str], target: Address) -> dict[str, str]:
    """What gives the login of a URL to that server only; empty where there is none. Nothing secret in an argument."""
    if not target.user or target.protocol not in {"https", "http"}:
        return {}
    server = "/".join(target.url.split("/", 3)[:3])
    pairs = [(f"credential.{server}.username", target.user)]
    if target.password:
        pairs += [(f"credential.{server}.helper", ""), (f"credential.{server}.helper", _LOGIN_HELPER)]
    config = _config_environment(_config_pairs(environ) + pairs)
    return {**config, "IMAGE_UPDATE_URL_USER": target.user, "IMAGE_UPDATE_URL_PASSWORD": target.password}
