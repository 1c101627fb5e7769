"""An ApplicationSet's generators, and the parameter sets they produce.

Errors use Argo CD's own wording, so that people can look them up in its documentation.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from task.applicationsets import go_yaml
from task.applicationsets.arguments import go_value, shown
from task.applicationsets.fill import Filler, Params
from task.applicationsets.git_paths import chosen_files, chosen_folders, path_params
from task.applicationsets.sprig_text import normalize
from task.errors import Malformed
from task.plain_data import mapping
from task.templates.go_template.values import AnyMap, GoMap
from task.text import nearest, shortened

LOCAL_NAME = "in-cluster"
LOCAL_SERVER = "https://kubernetes.default.svc"
TYPE_LABEL = "argocd.argoproj.io/secret-type"
DEEPEST = 4  # levels of nested generators; Argo CD's schema allows two
# Generators that need data from outside the manifests, each with the source of that data.
ELSEWHERE = {
    "scmProvider": "the SCM's API lists the repositories",
    "pullRequest": "the SCM's API lists the open pull requests",
    "plugin": "an Argo CD plugin provides the parameters",
    "clusterDecisionResource": "a cluster resource lists the clusters",
}
WAY_OUT = "read its Applications with --applications cluster or --applications argocd"


class UnknowableError(Malformed):
    """A generator's parameters cannot be determined here. The ApplicationSet itself is valid."""


@dataclass(frozen=True)
class NamedCluster:
    """A cluster registered in Argo CD, as described by its secret."""

    name: str
    server: str
    project: str = ""
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class GitFiles(Protocol):
    """Reads repositories for `git` generators. Raises Git's errors."""

    def paths(self, repo: str, revision: str) -> Sequence[str]:
        """Return the paths of all files at the revision."""

    def texts(self, repo: str, revision: str, paths: Sequence[str]) -> Mapping[str, str]:
        """Return the contents of these files."""


@dataclass(frozen=True)
class Generators:
    """The data that an ApplicationSet's generators need. `clusters` is None if unknown.

    A generator produces rows. A row is one parameter set, from which one Application is generated.
    """

    filler: Filler
    git: GitFiles
    clusters: Sequence[NamedCluster] | None = None
    # A matrix's second generator repeats its repository queries for each row of the first
    # generator.
    _chosen_paths_cache: dict[Any, list[str]] = field(default_factory=dict)
    _parsed_texts: dict[str, Any] = field(default_factory=dict)

    def params(self, generator: Any, outer: Params | None = None, depth: int = 0) -> list[Params]:
        """Return a generator's rows (parameter sets) that match its selector.

        `outer` is a row of another generator. If it is given, this generator's strings are first
        rendered with it. `depth` is the number of generators that contain this one. Raises
        `Malformed` for a mistake, `UnknowableError` if a server is needed, and Git's errors.
        """
        if not isinstance(generator, dict):
            raise Malformed("a generator is not a mapping")
        if depth >= DEEPEST:
            raise Malformed(f"generators nested more than {DEEPEST} levels deep")
        selector = generator.get("selector")  # Argo CD does not render the labels in a selector
        if outer:
            generator = self._fill_generator(generator, outer)

        kinds = _kinds_of(generator)
        if not kinds:
            raise _unknown_kind_error(generator)
        kind = kinds[0]  # the callers make sure that there is only one
        if kind in ELSEWHERE:
            message = f"the ApplicationSet's {kind} generator needs a server: {ELSEWHERE[kind]}"
            raise UnknowableError(message, WAY_OUT)
        body = generator[kind]
        if not isinstance(body, dict):
            raise Malformed(f"the {kind} generator is not a mapping")

        make_rows = _MAKERS[kind]
        selected_rows = []
        for row in make_rows(self, body, depth):
            self.filler.budget.row()  # raises `Malformed` if there are too many
            if selector is None or selects(selector, flat(row)):
                selected_rows.append(row)
        return selected_rows

    def _fill_generator(self, generator: Mapping[str, Any], outer: Params) -> Mapping[str, Any]:
        """Return a generator with its strings rendered, using another generator's row (`outer`).

        Raises `Malformed` with Argo CD's wording.
        """
        rendered_fields: dict[str, Any] = {}
        for kind, body in generator.items():
            try:
                rendered_fields[kind] = self._fill_field(kind, body, outer)
            except Malformed as error:
                raise Malformed(
                    f"failed to replace parameters in generator: {error.message}",
                    error.hint,
                ) from None
        return rendered_fields

    def _fill_field(self, kind: str, body: Any, outer: Params) -> Any:
        """Return the field `kind` of a generator, such as `list` or `selector`, with its strings
        rendered.

        For the fields that Argo CD stores as JSON, errors mention JSON.
        """
        if kind in ("matrix", "merge"):
            return _as_json(self.filler, body, outer)
        if kind == "selector" or not isinstance(body, dict):
            return self.filler.deep(body, outer)
        if kind == "list":
            without_elements = {key: value for key, value in body.items() if key != "elements"}
            elements = _as_json(self.filler, body.get("elements"), outer)
            return self.filler.deep(without_elements, outer) | {"elements": elements}
        # `clusters`, `git`, and the kinds in ELSEWHERE may have `values`.
        without_values = {key: value for key, value in body.items() if key != "values"}
        values = {
            name: self._fill_value(name, value, outer)
            for name, value in _mapping_in(body, "values").items()
        }
        return self.filler.deep(without_values, outer) | {"values": values}

    def _fill_value(self, name: str, value: Any, outer: Params) -> str:
        """Return one of a generator's `values`, rendered with the other generator's row (`outer`).

        If the value uses a key that the row lacks, return the value unchanged. It is rendered
        later, with the generator's own row (Argo CD 3.4 and later).
        """
        try:
            return self.filler.text(str(value), outer, missing_key="error")
        except Malformed as error:
            missing_key_messages = ("map has no entry for key", "can't evaluate field")
            if any(message in error.message for message in missing_key_messages):
                return str(value)
            raise Malformed(
                f'failed to pre-resolve Values key "{name}": {error.message}',
                error.hint,
            ) from None

    def list_elements(self, body: Mapping[str, Any], _depth: int) -> list[Params]:
        """Return the rows of a `list` generator, from `elements` and `elementsYaml`."""
        rows: list[Params] = []
        for number, element in enumerate(_list_in(body, "elements"), start=1):
            if not isinstance(element, dict):
                raise Malformed(
                    f"error unmarshling list element: element {number} is not a mapping"
                )
            self.filler.budget.read(_size(element))
            row = go_value(element) if self.filler.go else _element_texts(element, number)
            rows.append(row)
        if body.get("elementsYaml"):
            rows += self._elements_yaml(str(body["elementsYaml"]))
        return rows

    def _elements_yaml(self, text: str) -> list[Params]:
        """Return the rows in `elementsYaml`, a list of mappings as YAML. Raises `Malformed`."""
        self.filler.budget.read(len(text))
        try:
            elements = go_yaml.load(text)
        except Malformed as error:
            raise Malformed(f"error unmarshling decoded ElementsYaml {error.message}") from None
        if elements is None:
            return []
        if not isinstance(elements, list) or not all(
            isinstance(element, dict) for element in elements
        ):
            raise Malformed("error unmarshling decoded ElementsYaml: it is not a list of mappings")
        return [go_value(element) for element in elements]

    def of_clusters(self, body: Mapping[str, Any], _depth: int) -> list[Params]:
        """Return the rows of a `clusters` generator: one for each cluster that its selector
        matches.

        Without a selector, this includes Argo CD's own cluster. With `flatList`, there is a single
        row with the list of clusters. Raises `UnknowableError` if the clusters are unknown.
        """
        if self.clusters is None:
            message = "the ApplicationSet's clusters generator needs a list of the clusters"
            raise UnknowableError(
                message,
                f"pass a file that lists them with --clusters FILE, or {WAY_OUT}",
            )
        selector = _mapping_in(body, "selector")
        has_conditions = bool(selector.get("matchLabels") or selector.get("matchExpressions"))
        # Argo CD's own cluster does not need a secret. Without a secret, the cluster is not listed,
        # and has no labels that a selector could match.
        is_local_listed = any(
            cluster.name == LOCAL_NAME or cluster.server == LOCAL_SERVER
            for cluster in self.clusters
        )
        rows = []
        if not has_conditions and not is_local_listed:
            local_row = {
                "name": LOCAL_NAME,
                "nameNormalized": LOCAL_NAME,
                "server": LOCAL_SERVER,
                "project": "",
            }
            rows.append(go_value(local_row) if self.filler.go else local_row)
        for cluster in self.clusters:
            # Argo CD finds each cluster's secret by this label.
            labels = {TYPE_LABEL: "cluster", **(cluster.labels or {})}
            if selects(selector, labels):
                rows.append(_cluster_params(cluster, labels, go=self.filler.go))

        rows = [self._with_values(body, row) for row in rows]
        if self.filler.go and body.get("flatList") is True:
            return [go_value({"clusters": rows})]
        return rows

    def from_git(self, body: Mapping[str, Any], _depth: int) -> list[Params]:
        """Return the rows of a `git` generator: one for each folder that `directories` selects, or
        those in the files that `files` selects.
        """
        repo = str(body.get("repoURL") or "")
        revision = str(body.get("revision") or "")
        prefix = str(body.get("pathParamPrefix") or "")
        if not repo:
            raise Malformed("error generating params from git: the git generator has no repoURL")
        directories = _list_in(body, "directories")
        files = _list_in(body, "files")
        if directories:
            folders = self._chosen_paths(repo, revision, _path_entries(directories), folders=True)
            rows = [path_params(folder, prefix, go=self.filler.go) for folder in folders]
        elif files:
            paths = self._chosen_paths(repo, revision, _path_entries(files), folders=False)
            rows = self._rows_of_files(self.git.texts(repo, revision, paths), prefix)
        else:
            raise Malformed(
                "error generating params from git: neither directories nor files are set"
            )
        return [self._with_values(body, row) for row in rows]

    def _chosen_paths(
        self,
        repo: str,
        revision: str,
        entries: tuple[tuple[str, bool], ...],
        *,
        folders: bool,
    ) -> Sequence[str]:
        """Return the folders or files in a repository that the entries select. Each entry is (path,
        exclude). Results are cached.
        """
        key = (repo, revision, folders, entries)
        if key not in self._chosen_paths_cache:
            paths = self.git.paths(repo, revision)
            self.filler.budget.read(len(paths) * len(entries))
            choose = chosen_folders if folders else chosen_files
            self._chosen_paths_cache[key] = choose(entries, paths)
        return self._chosen_paths_cache[key]

    def _rows_of_files(self, texts: Mapping[str, str], prefix: str) -> list[Params]:
        """Return the rows in these files (`texts`, by path), in path order. Raises `Malformed`."""
        rows: list[Params] = []
        for path, text in sorted(texts.items()):
            try:
                rows += self._rows_of_file(path, text, prefix)
            except Malformed as error:
                message = (
                    f"error generating params from git: unable to process file '{path}':"
                    f" {error.message}"
                )
                raise Malformed(message, error.hint) from None
        return rows

    def _rows_of_file(self, path: str, text: str, prefix: str) -> list[Params]:
        """Return the rows in a file, with the parameters from its path: one row for a mapping, or
        one for each mapping in a list.

        `prefix` is `pathParamPrefix`. Raises `Malformed`.
        """
        self.filler.budget.read(len(text))
        if text not in self._parsed_texts:
            try:
                self._parsed_texts[text] = go_yaml.load(text)
            except Malformed as error:
                raise Malformed(f"unable to parse file: {error.message}") from None
        data = self._parsed_texts[text]
        if data is None:
            data = {}
        objects = data if isinstance(data, list) else [data]
        if not all(isinstance(item, dict) for item in objects):
            raise Malformed("unable to parse file: it is neither a mapping nor a list of mappings")

        folder, _, file = path.rpartition("/")
        params_of_path = path_params(
            posixpath.normpath(folder or "."),
            prefix,
            go=self.filler.go,
            file=file,
        )
        if self.filler.go:
            return [AnyMap({**go_value(item), **params_of_path}) for item in objects]
        return [{**flat(item), **params_of_path} for item in objects]

    def _with_values(self, body: Mapping[str, Any], row: Params) -> Params:
        """Return the row with the generator's `values` added. The values are rendered with the row.

        A value may use the row's parameters, but not other values.
        """
        values = _mapping_in(body, "values")
        rendered_values = {}
        try:
            for key, value in values.items():
                rendered_values[str(key)] = self.filler.text(str(value), row)
        except Malformed as error:
            message = (
                "failed to append templated values: failed to replace templated string:"
                f" {error.message}"
            )
            raise Malformed(message, error.hint) from None
        if not rendered_values:
            return row
        if self.filler.go:
            # an `AnyMap` remains an `AnyMap`
            return type(row)({**row, "values": GoMap(rendered_values)})
        return row | {f"values.{key}": value for key, value in rendered_values.items()}

    def matrix(self, body: Mapping[str, Any], depth: int) -> list[Params]:
        """Return the rows of a `matrix` generator.

        For each row of its first generator (an outer row), the second generator is rendered with
        that row. Each row that it then produces (an inner row) is combined with the outer row.
        """
        members = _list_in(body, "generators")
        if len(members) != 2:
            number = "less" if len(members) < 2 else "more"
            raise Malformed(f"found {number} than two generators, Matrix support only two")
        first, second = members
        first_failed = "failed to get params for first generator in the matrix generator"
        second_failed = "failed to get params for second generator in the matrix generator"
        rows: list[Params] = []
        for outer in self._params_of_member(first, None, depth, first_failed):
            for inner in self._params_of_member(second, outer, depth, second_failed):
                self.filler.budget.row()  # raises `Malformed` if there are too many
                if self.filler.go:
                    rows.append(merged(inner, outer))  # if both have a key, the outer row wins
                else:
                    # different values for a key are an error, which names the outer value first
                    rows.append(_combine_text_rows(outer, inner))
        return rows

    def _params_of_member(
        self,
        member: Any,
        outer: Params | None,
        depth: int,
        failed: str,
    ) -> list[Params]:
        """Return the rows of a member generator (one inside a `matrix` or `merge` generator).

        `outer` is the row with which the member is rendered, if any. `depth` is the depth of the
        `matrix` or `merge`. Error messages begin with `failed`.
        """
        if len(_kinds_of(member)) > 1:
            raise Malformed(f"{failed}: found more than one generator in matrix.Generators")
        try:
            return self.params(member, outer, depth + 1)
        except UnknowableError:  # also a `Malformed`, but the ApplicationSet is valid
            raise
        except Malformed as error:
            message = (
                f"{failed}: child generator returned an error on parameter generation:"
                f" {error.message}"
            )
            raise Malformed(message, error.hint) from None

    def merge(self, body: Mapping[str, Any], depth: int) -> list[Params]:
        """Return the rows of a `merge` generator.

        These are the rows of its first generator. Each row is extended with those rows of the other
        generators that have the same values for the `mergeKeys`. The other generators' remaining
        rows are ignored.
        """
        members = _list_in(body, "generators")
        merge_keys = [str(key) for key in _list_in(body, "mergeKeys")]
        if len(members) < 2:
            raise Malformed("found less than two generators, Merge requires two or more")
        failed = "error getting param sets from generators: error getting params from generator"
        rows_of_members = [
            self._params_of_member(member, None, depth, f"{failed} {number} of {len(members)}")
            for number, member in enumerate(members, start=1)
        ]

        # each member's rows, by the values of their merge keys
        base_rows, *others = [_rows_by_merge_keys(rows, merge_keys) for rows in rows_of_members]
        for other_rows in others:
            for merge_values, other_row in other_rows.items():
                if merge_values not in base_rows:
                    continue
                row = base_rows[merge_values]
                if self.filler.go:
                    base_rows[merge_values] = merged(row, other_row)
                else:
                    base_rows[merge_values] = _as_texts(row) | _as_texts(other_row)
        return list(base_rows.values())


# the methods that return a generator's rows, by generator kind
_MAKERS = {
    "list": Generators.list_elements,
    "clusters": Generators.of_clusters,
    "git": Generators.from_git,
    "matrix": Generators.matrix,
    "merge": Generators.merge,
}


def with_one_kind(generator: Any) -> list[Any]:
    """Return a generator as a list of generators with one kind each, because Argo CD uses all kinds
    of a generator.

    An invalid generator is returned unchanged.
    """
    kinds = _kinds_of(generator)
    if len(kinds) < 2:
        return [generator]
    selector = generator.get("selector")
    return [{kind: generator[kind], "selector": selector} for kind in kinds]


def _kinds_of(generator: Any) -> list[str]:
    fields = mapping(generator)
    return [kind for kind in (*_MAKERS, *ELSEWHERE) if fields.get(kind) is not None]


def _unknown_kind_error(generator: Mapping[str, Any]) -> Malformed:
    """Return the error for a generator with a missing or unknown kind."""
    hint = "see the generators in Argo CD's documentation"
    kinds = [key for key in generator if key not in ("selector", "name")]
    if not kinds or not kinds[0]:  # no key, or an empty key
        return Malformed("the generator is empty", hint)
    similar_kind = nearest(kinds[0], (*_MAKERS, *ELSEWHERE))
    if similar_kind:
        hint = f"did you mean {similar_kind}?"
    return Malformed(f"unknown generator {shortened(kinds[0])!r}", hint)


def _path_entries(entries: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, bool], ...]:
    """Return the path of each `directories` or `files` entry, and whether it is an exclusion."""
    return tuple((str(entry.get("path") or ""), entry.get("exclude") is True) for entry in entries)


def _as_json(filler: Filler, value: Any, params: Params) -> Any:
    """Return the data with its strings rendered, and without nulls.

    Raises `Malformed` with a message that mentions JSON.
    """
    try:
        return filler.deep(value, params, nulls=False)
    except Malformed as error:
        raise Malformed(
            f"failed to deeply replace JSON field contents: {error.message}",
            error.hint,
        ) from None


def _mapping_in(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a field that must be a mapping, or {} if it is missing. Raises `Malformed`."""
    value = body.get(key) or {}
    if not isinstance(value, dict):
        raise Malformed(f"{key} is not a mapping")
    return value


def _list_in(body: Mapping[str, Any], key: str) -> list[Any]:
    """Return a field that must be a list, or [] if it is missing. Raises `Malformed`.

    The entries of `directories` and `files` must be mappings.
    """
    entries = body.get(key)
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise Malformed(f"{key} is not a list")
    must_be_mappings = key in ("directories", "files")
    if must_be_mappings and not all(isinstance(entry, dict) for entry in entries):
        raise Malformed(f"an entry of {key} is not a mapping")
    return entries


def _size(value: Any) -> int:
    """Return the number of values in a piece of data, including its mappings and lists, and the
    data itself.
    """
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    return 1


def _element_texts(element: Mapping[str, Any], number: int) -> Params:
    """Return the row for an element of a `list` generator without goTemplate: for
    `{cluster: a, values: {env: dev}}`, the row is `{"cluster": "a", "values.env": "dev"}`.

    Raises `Malformed` for a parameter that is not a string. `number` is the element's position, for
    messages.
    """
    row: Params = {}
    for key, value in element.items():
        fields = {key: value}
        if key == "values":
            if not isinstance(value, dict):
                raise Malformed(
                    f"error parsing values map: of element {number}, 'values' is not a mapping"
                )
            fields = {f"values.{name}": text for name, text in value.items()}
        for name, text in fields.items():
            if not isinstance(text, str):
                message = (
                    f"error parsing value as string: of element {number}, {name!r} is not text"
                )
                raise Malformed(message, "put it in quotes, or set goTemplate: true")
            row[name] = text
    return row


def _cluster_params(cluster: NamedCluster, labels: Mapping[str, str], *, go: bool) -> Params:
    """Return the row for a cluster. `labels` are the labels of its secret.

    With `go` (goTemplate), the labels and annotations are nested below `metadata`. Otherwise, their
    names are dotted: `metadata.labels.env`.
    """
    row: Params = {
        "name": cluster.name,
        "nameNormalized": normalize(cluster.name),
        "server": cluster.server,
        "project": cluster.project,
    }
    if not go:
        for key, value in (cluster.annotations or {}).items():
            row[f"metadata.annotations.{key}"] = value
        for key, value in labels.items():
            row[f"metadata.labels.{key}"] = value
        return row
    metadata = {"labels": GoMap(labels)}
    if cluster.annotations:
        metadata["annotations"] = GoMap(cluster.annotations)
    nested_row: Params = go_value({**row, "metadata": metadata})
    return nested_row


def merged(row: Any, other: Any) -> Any:
    """Return two rows merged into one.

    If both have a key, the value in `other` wins, and mappings are merged recursively.
    """
    result = type(row)(row)  # a copy, of the same type
    for key, value in other.items():
        both_are_mappings = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both_are_mappings else value
    return result


def _as_texts(row: Params) -> Params:
    return {key: shown(value) for key, value in row.items()}


def _combine_text_rows(row: Params, other: Params) -> Params:
    """Return two rows, with their values as strings, combined into one.

    Raises `Malformed` if they have different values for a key.
    """
    result = _as_texts(row)
    for key, value in _as_texts(other).items():
        if key in result and result[key] != value:
            message = (
                "failed to combine string maps with merging params for the matrix generator: found"
                " duplicate key "
            )
            raise Malformed(f"{message}{key} with different value, a: {result[key]} ,b: {value}")
        result[key] = value
    return result


def _rows_by_merge_keys(rows: Sequence[Params], merge_keys: Sequence[str]) -> dict[str, Params]:
    """Return the rows, keyed by the values of their merge keys as JSON, such as `{"cluster":"a"}`.

    Raises `Malformed` if two rows have the same values, or if there are no merge keys.
    """
    failed = "error getting param sets by merge key"
    if not merge_keys:
        raise Malformed(f"{failed}: no merge keys were specified, Merge requires at least one")
    distinct_keys = sorted(set(merge_keys))
    row_by_values: dict[str, Params] = {}
    for row in rows:
        values = {key: row.get(key) for key in distinct_keys}
        values_as_json = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
        if values_as_json in row_by_values:
            raise Malformed(
                f"{failed}: the parameters from a generator were not unique by the given mergeKeys,"
                " Merge requires all param sets to be unique. Duplicate key was"
                f" {values_as_json}"
            )
        row_by_values[values_as_json] = row
    return row_by_values


def selects(selector: Any, labels: Mapping[str, str]) -> bool:
    """Return whether a Kubernetes `LabelSelector` selects these labels.

    None selects everything. Raises `Malformed` for an invalid selector.
    """
    if selector is None:
        return True
    if not isinstance(selector, dict):
        raise Malformed("error parsing label selector: it is not a mapping")
    required_labels = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or []
    if not isinstance(required_labels, dict) or not isinstance(expressions, list):
        raise Malformed(
            "error parsing label selector: matchLabels is not a mapping, or matchExpressions is not"
            " a list"
        )
    for key, value in required_labels.items():
        if labels.get(key) != value:
            return False
    return all(_meets_expression(expression, labels) for expression in expressions)


def _meets_expression(expression: Any, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy an expression in `matchExpressions`. Raises Malformed."""
    values = None  # remains None if the expression is not a mapping
    if isinstance(expression, dict):
        values = expression.get("values") or []
    if not isinstance(values, list):
        raise Malformed(
            "error parsing label selector: an expression is not a mapping, or its values are not a"
            " list"
        )
    key = str(expression.get("key"))
    operator = expression.get("operator")
    if operator in ("In", "NotIn"):
        if not values:
            raise Malformed(
                "error parsing label selector: for 'in', 'notin' operators, values set can't be"
                " empty"
            )
        has_value = key in labels and labels[key] in values
        return has_value if operator == "In" else not has_value
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    raise Malformed(
        f'error parsing label selector: "{operator}" is not a valid label selector operator'
    )


def flat(value: Any, most: int = 100_000) -> dict[str, str]:
    """Return nested parameters as strings with dotted keys: `{"a.b": "1", "c.0": "x"}` for
    `{"a": {"b": 1}, "c": ["x"]}`.

    Empty lists and mappings are dropped. Raises `Malformed` if there are more than `most` values.
    """
    texts: dict[str, str] = {}
    value_count = 0
    waiting: list[tuple[str, Any]] = [("", value)]  # each value with its dotted name
    while waiting:
        name, node = waiting.pop()
        if isinstance(node, (dict, list)):
            value_count += len(node)
            if value_count > most:
                raise Malformed("a parameter set is too large")
            prefix = f"{name}." if name else ""
            items = node.items() if isinstance(node, dict) else enumerate(node)
            waiting += [(f"{prefix}{key}", item) for key, item in items]
            continue
        if not name:  # `value` itself is a scalar, or the key is empty
            continue
        if isinstance(node, int) and not isinstance(node, bool):
            node = float(node)  # Go reads every number as a float, and shows 1000000 as 1e+06
        texts[name] = shown(node)
    return texts
