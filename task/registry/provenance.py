"""Reads where an image was built from an in-toto statement, and compares that with what is asked for. Pure.

Sources: the SLSA provenance predicates v0.2 and v1, the build types of GitHub's workflows, and what
slsa-github-generator, actions/attest-build-provenance, GitLab's runner and Tekton Chains write into them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from task.errors import Malformed
from task.model import Demand
from task.plain_data import mapping, mappings, text
from task.text import fits_glob, shortened

# A repository in a URI, as `git+https://github.com/acme/web@refs/heads/main`: no login, no `.git`, and the ref.
_REPOSITORY = re.compile(
    r"(?:git\+)?(https?|ssh|git)://(?:[^/@]*@)?([^/@]+(?:/[^@]*?)?)(?:\.git)?/?(?:@(.+))?", re.DOTALL
)
_TEKTON = re.compile(r"(?:https://)?tekton\.dev/")


@dataclass(frozen=True)
class Origin:
    """Where an image was built; what is unknown is empty."""

    kind: Literal["certificate", "slsa-v0.2", "slsa-v1"]
    repositories: tuple[str, ...] = ()  # those of its source; each must be the one that is asked for
    ref: str = ""
    workflow: str = ""
    builders: tuple[str, ...] = ()  # names of the one builder; one must be the one that is asked for


def objection(origin: Origin, demand: Demand) -> str:
    """Return why an origin is not the one that is asked for, or ""."""
    several: Callable[[Iterable[object]], bool] = all
    for what, found, wanted, enough in (
        ("source repository", origin.repositories, demand.source_repository, several),
        ("ref", (origin.ref,), demand.ref, several),
        ("workflow", (origin.workflow,), demand.workflow, several),
        ("builder", origin.builders, demand.builder, any),
    ):
        texts = [one for one in found if one]
        if wanted and not (texts and enough(fits_glob(wanted, one) for one in texts)):
            named = " and ".join(repr(shortened(one)) for one in texts) if texts else "not named"
            return f"its {what} is {named}, and {wanted!r} is asked for"
    return ""


def origin_of(statement: Mapping[str, Any]) -> Origin:
    """Return where a statement says that its subjects were built. Raises `Malformed` for any other statement."""
    read = PREDICATES.get(text(statement.get("predicateType")))
    if read is None:
        raise Malformed(f"it is no SLSA provenance, but {shortened(text(statement.get('predicateType')), 80)!r}")
    return read(mapping(statement.get("predicate")))


def _v0_2(predicate: Mapping[str, Any]) -> Origin:
    source = mapping(mapping(predicate.get("invocation")).get("configSource"))
    builder = text(mapping(predicate.get("builder")).get("id"))
    repository, ref = _repository(source.get("uri"))
    repositories: Sequence[str] = (repository,)
    if _TEKTON.match(text(predicate.get("buildType"))):  # the config source is that of the pipeline
        repositories, ref = _of_git(mappings(predicate.get("materials"))), ""
    return Origin("slsa-v0.2", _each(repositories), ref, _path(source.get("entryPoint")), _each([builder]))


def _v1(predicate: Mapping[str, Any]) -> Origin:
    definition = mapping(predicate.get("buildDefinition"))
    builder = text(mapping(mapping(predicate.get("runDetails")).get("builder")).get("id"))
    given = mapping(definition.get("externalParameters"))
    workflow, dependencies = mapping(given.get("workflow")), mappings(definition.get("resolvedDependencies"))
    path, ref = _path(workflow.get("path")), text(workflow.get("ref"))
    if workflow:
        repositories: Sequence[str] = (_repository(workflow.get("repository"))[0],)
    elif _TEKTON.match(text(definition.get("buildType"))):
        run = mapping(given.get("runSpec"))
        path = text(mapping(run.get("pipelineRef")).get("name")) or text(mapping(run.get("taskRef")).get("name"))
        repositories = _of_git(one for one in dependencies if one.get("name") == "inputs/result")
    elif isinstance(given.get("source"), str):  # GitLab
        repositories, path = (_repository(given["source"])[0],), _path(given.get("entryPoint"))
    else:
        repositories = _of_git(dependencies)
        refs = {_repository(one.get("uri"))[1] for one in dependencies} - {""}
        ref = refs.pop() if len(refs) == 1 else ""
    return Origin("slsa-v1", _each(repositories), ref, path, _each([builder]))


PREDICATES: Mapping[str, Callable[[Mapping[str, Any]], Origin]] = {
    "https://slsa.dev/provenance/v0.2": _v0_2,
    "https://slsa.dev/provenance/v1": _v1,
}


def of_certificate(issuer: str, claims: Mapping[str, str]) -> Origin:
    """Return what the claims of a certificate say, by the last number of each extension of Fulcio."""
    repository, signer, runner = claims.get("12", ""), claims.get("9", ""), claims.get("11", "")
    config = claims.get("18", "").partition("@")[0]
    workflow = config.removeprefix(f"{repository}/").lstrip("/") if config.startswith(f"{repository}/") else ""
    github = issuer.startswith("https://token.actions.githubusercontent.com")
    runners = [f"https://github.com/actions/runner/{runner}"] if runner and github else []
    return Origin("certificate", _each([repository]), claims.get("14", ""), workflow, _each([signer, *runners]))


def _repository(uri: object) -> tuple[str, str]:
    """Return the repository and the ref in a URI; both are "" for anything else."""
    found = _REPOSITORY.fullmatch(text(uri))
    if found is None or ".." in found[2].split("/"):
        return "", ""
    return f"{found[1]}://{found[2]}", found[3] or ""


def _of_git(dependencies: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the Git repositories among dependencies."""
    uris = (text(one.get("uri")) for one in dependencies)
    return [_repository(uri)[0] or uri for uri in uris if uri.startswith("git+") or uri.endswith(".git")]


def _path(value: object) -> str:
    return text(value).removeprefix("./")


def _each(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for one in texts if one))
