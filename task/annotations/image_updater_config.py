"""Turns the ConfigMap of Argo CD Image Updater (AIU) into options of Image Update. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any

from task.text import shortened

NAME = "argocd-image-updater-config"
LEVELS = {"trace": "debug", "warn": "warning"}
FORMATS = {"plain": "text"}
API = {"kubernetes": "cluster", "argocd": "argocd"}
NO_LOOP = "not needed: there is no loop. For images that others build, run scan on a schedule"
NO_SERVER = "not needed: nothing listens for webhooks, because the pipeline calls"


@dataclass(frozen=True)
class ConfigOption:
    """One key of the ConfigMap, and what takes its place."""

    key: str
    option: str  # "--log-level debug"; "" if nothing has to be given
    note: str = ""


def is_config(item: Mapping[str, Any]) -> bool:
    """Tell whether a ConfigMap is AIU's."""
    metadata = item.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get("name") == NAME


def options_of(item: Mapping[str, Any]) -> tuple[ConfigOption, ...]:
    """Return an option, or a note why there is none, for each key of AIU's ConfigMap."""
    data = item.get("data")
    found = []
    for key, value in data.items() if isinstance(data, Mapping) else ():
        text = value.strip() if isinstance(value, str) else ""
        made = KEYS.get(key) or next((make for start, make in BEGINNINGS.items() if key.startswith(start)), None)
        option, note = made(text) if made else ("", "Image Updater does not read this key either")
        found.append(ConfigOption(key, option, note))
    return tuple(found)


_Make = Callable[[str], tuple[str, str]]


def _value(option: str, words: Mapping[str, str] = {}) -> _Make:
    return lambda text: (f"{option} {quote(words.get(text.lower(), shortened(text)))}", "")


def _switch(option: str) -> _Make:
    return lambda text: (option, "") if text.lower() == "true" else ("", f"not needed: it is {text or 'empty'}")


def _file(option: str, name: str, note: str = "") -> _Make:
    return lambda _text: (f"{option} {name}", f"save the value as {name}{note}")


def _none(note: str) -> _Make:
    return lambda _text: ("", note)


def _registries(text: str) -> tuple[str, str]:
    scripts = " Scripts (ext:) need --allow-exec, and have to be in the image of the step." if "ext:" in text else ""
    variables = " Variables (env:) need --allow-env." if "env:" in text else ""
    return "--registries-conf registries.conf", f"save the value as registries.conf.{scripts}{variables}"


KEYS: Mapping[str, _Make] = {
    "registries.conf": _registries,
    "git.user": _value("--git-author-name"),
    "git.email": _value("--git-author-email"),
    "git.commit-message-template": _file("--commit-message-template", "commit.template"),
    "git.commit-sign-off": _switch("--sign-off"),
    "git.commit-signing-key": _value("--signing-key"),
    "git.commit-signing-method": _value("--signing-format"),
    "log.level": _value("--log-level", LEVELS),
    "log.format": _value("--log-format", FORMATS),
    "kube.events": _switch("--kubernetes-events"),
    "argocd.server_addr": _value("--argocd-server"),
    "argocd.insecure": _switch("--argocd-insecure"),
    "argocd.plaintext": _switch("--argocd-plaintext"),
    "argocd.grpc_web": _none("not needed: Argo CD is asked over HTTPS"),
    "applications_api": _value("--applications", API),
    "interval": _none(NO_LOOP),
    "max_concurrent_apps": _none(NO_LOOP),
    "max_concurrent_reconciles": _none(NO_LOOP),
}
BEGINNINGS: Mapping[str, _Make] = {"webhook.": _none(NO_SERVER)}
