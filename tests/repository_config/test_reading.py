"""Parsing `.image-update/config`: its contents, and every mistake with its line number."""

import json
import time
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from task.errors import TargetError
from task.model import File, Wishes
from task.repository_config.config import NO_CONFIG, PATH, RepositoryConfig
from task.repository_config.reading import MOST_MISTAKES, check_config, config_in, read_config
from task.schemas import load

SCHEMA = jsonschema.Draft7Validator(load("config.v1"))
WHOLE = """\
version: 1
commit:
  authorName: Deploy Bot
  authorEmail: deploy@example.com
  template: .image-update/message.tmpl
  trailers: {Team: platform}
  signOff: true
pullRequests:
  enabled: false
  group: application
  labels: [image-update]
  reviewers: [acme/platform]
  assignees: [jane]
  autoMerge: true
  draft: false
pinDigest: true
tagOrder: numeric
rules:
- match:
    applications: ["team-a/*"]
    projects: [shop]
    paths: ["clusters/production/**"]
    images: ["ghcr.io/acme/*"]
  pullRequests: {enabled: true, autoMerge: false}
  commit: {authorName: Other}
  pinDigest: false
freezes:
- schedule: "0 18 * * 5"
  duration: 62h
  timeZone: Europe/Berlin
  reason: no deployments at weekends
  match: {projects: [shop]}
"""


def test_every_key_of_the_config_is_read() -> None:
    found = read_config(WHOLE)
    assert found.wishes == Wishes(
        "Deploy Bot", "deploy@example.com", ".image-update/message.tmpl", (("Team", "platform"),), True, False,
        "application", ("image-update",), ("acme/platform",), ("jane",), False, True, True, "numeric",
    )  # fmt: skip
    (rule,) = found.rules
    assert rule.wishes == Wishes(
        author_name="Other", pull_request=True, auto_merge=False, pin_digest=False
    )
    (freeze,) = found.freezes
    assert (freeze.schedule, freeze.seconds, freeze.zone.key) == (
        "0 18 * * 5",
        62 * 3600,
        "Europe/Berlin",
    )
    assert (freeze.reason, freeze.line) == ("no deployments at weekends", 28)


def test_an_empty_list_of_reviewers_means_no_reviewers() -> None:
    """A rule with an empty list removes the reviewers set at the top level."""
    assert read_config("version: 1\npullRequests: {reviewers: []}\n").wishes.reviewers == ()


def test_yaml_aliases_are_resolved() -> None:
    rules = "- match: &prod {paths: [a]}\n  pinDigest: true\n- match: *prod\n  commit: {signOff: true}\n"
    first, second = read_config(f"version: 1\nrules:\n{rules}").rules
    assert first.match == second.match


MISTAKES = [
    ("", 1, "the file is empty"),
    ("# only a comment\n", 1, "the file is empty"),
    ("version: 1\n---\nversion: 1\n", 3, "unexpected second YAML document"),
    ("version: 1\npullrequests: {enabled: true}\n", 2, "did you mean pullRequests?"),
    (
        "version: 1\npullRequests:\n  enable: true\n",
        3,
        "unknown key 'enable' in pullRequests",
    ),
    ("version: 1\nversion: 1\n", 2, "'version' appears twice"),
    ("pinDigest: true\n", 1, "version is missing"),
    ("version: 2\n", 1, "version '2' is not supported"),
    ("- 1\n", 1, "is not a mapping"),
    ("version: 1\ncommit:\n", 2, "commit is not a mapping"),
    ('version: 1\npinDigest: "true"\n', 2, "pinDigest is neither true nor false"),
    ("version: 1\nminimumAge: 3\n", 2, "minimumAge: '3' is not a duration"),
    ('version: 1\npushOptions: ["a\\nb"]\n', 2, "pushOptions: a string has a line break"),
    ("version: 1\npushOptions: ci.skip\n", 2, "pushOptions is not a list"),
    ("version: 1\ntagOrder: number\n", 2, "tagOrder: 'number' is not a tag order"),
    ("version: 1\npinDigest: yes\n", 2, "pinDigest is neither true nor false"),
    ("version: 1\npullRequests:\n  group: team\n", 3, "'team' is not a group"),
    ("version: 1\npullRequests:\n  labels: x\n", 3, "pullRequests.labels is not a list"),
    (
        "version: 1\npullRequests:\n  labels:\n  - ok\n  -\n",
        5,
        "an entry of pullRequests.labels is not a string",
    ),
    (
        "version: 1\ncommit:\n  authorName: a<b\n",
        3,
        "commit.authorName is not a name that Git accepts",
    ),
    (
        'version: 1\ncommit:\n  authorName: "a\\nb"\n',
        3,
        "commit.authorName is not a name that Git accepts",
    ),
    (
        "version: 1\ncommit:\n  authorEmail: jane\n",
        3,
        "commit.authorEmail is not an email address",
    ),
    (
        "version: 1\ncommit:\n  authorEmail: Jane <a@b>\n",
        3,
        "commit.authorEmail is not an email address",
    ),
    (
        'version: 1\ncommit:\n  authorEmail: "a@b\\nc"\n',
        3,
        "commit.authorEmail is not an email address",
    ),
    ('version: 1\ncommit:\n  authorEmail: " "\n', 3, "commit.authorEmail is empty"),
    ("version: 1\ncommit:\n  template: ../secret\n", 3, "is not a path within the repository"),
    ("version: 1\ncommit:\n  template: /etc/passwd\n", 3, "is not a path within the repository"),
    ("version: 1\ncommit:\n  trailers:\n    a b: c\n", 4, "'a b' is not a key"),
    (
        "version: 1\ncommit:\n  trailers:\n    Team: x\n    application: c\n",
        5,
        "already has the trailer application",
    ),
    ("version: '1'\n", 1, "version is a string"),
    ('version: 1\ncommit:\n  template: ""\n', 3, "commit.template is empty"),
    ("version: 1\ncommit:\n\tsignOff: true\n", 3, "is indented with a tab"),
    (
        "version: 1 # reviewed\u2028pinDigest: true\n",
        1,
        "has U+2028, which some parsers treat as the end of the line",
    ),
    (
        "version: 1\npinDigest\x85: true\n",
        2,
        "has U+0085, which some parsers treat as the end of the line",
    ),
    ("version: 1\n\ufeffpinDigest: true\n", 2, "unknown key"),
    ("version: 1\nrules: 1\n", 2, "rules is not a list"),
    ("version: 1\nrules:\n- match: {projects: [a]}\n", 3, "rules[1] has no rules"),
    ("version: 1\nwrites: {}\n", 2, "writes is empty"),
    ("version: 1\nsignatures: {}\n", 2, "signatures has no keys and no identities"),
    (
        "version: 1\nsignatures: {keys: [], identities: []}\n",
        2,
        "signatures has no keys and no identities",
    ),
    ("version: 1\nsignatures: {keys: [../ci.pub]}\n", 2, "is not a path within the repository"),
    ("version: 1\nbranchPrefix: /bots\n", 2, "branchPrefix cannot be the start of a branch name"),
    ("version: 1\nbranchPrefix: bots..iu\n", 2, "cannot be the start of a branch name"),
    ("version: 1\nmemorySigners: ci.pub\n", 2, "memorySigners is not a list"),
    ("version: 1\nmemorySigners: [../ci.pub]\n", 2, "is not a path within the repository"),
    ("version: 1\nsignatures: {keys: ci.pub}\n", 2, "signatures.keys is not a list"),
    (
        "version: 1\nsignatures: {identities: [{subject: a}]}\n",
        2,
        "an entry of signatures.identities has no issuer",
    ),
    (
        "version: 1\nsignatures:\n  identities: [{subject: a, issuer: '*'}]\n",
        3,
        "issuer cannot contain wildcards",
    ),
    (
        "version: 1\nsignatures: {keys: [a], ref: b}\n",
        2,
        "unknown key 'ref' in signatures",
    ),
    ("version: 1\nprovenance: {keys: [a]}\n", 2, "provenance has no requirement"),
    (
        "version: 1\nprovenance: {ref: refs/heads/main}\n",
        2,
        "provenance has no keys and no identities",
    ),
    (
        "version: 1\nprovenance: {keys: [a], sourcerepository: b}\n",
        2,
        "did you mean sourceRepository?",
    ),
    ("version: 1\nwrites: {path: [a]}\n", 2, "did you mean paths?"),
    ("version: 1\nrules:\n- writes: {paths: apps}\n", 3, "rules[1].writes.paths is not a list"),
    ("version: 1\nrules:\n- writes: {paths: [/apps]}\n", 3, "a glob that begins with a slash"),
    ("version: 1\nrules:\n- match: {}\n  pinDigest: true\n", 3, "rules[1].match is empty"),
    (
        "version: 1\nrules:\n- match: {projects: []}\n  pinDigest: true\n",
        3,
        "is empty, so it matches nothing",
    ),
    (
        "version: 1\nrules:\n- match: {project: [a]}\n  pinDigest: true\n",
        3,
        "did you mean projects?",
    ),
    ("version: 1\nrules:\n- match: {projects: [a]}\n", 3, "rules[1] has no rules"),
    ("version: 1\nrules:\n- match: {projects: [a]}\n  commit: {}\n", 3, "rules[1] has no rules"),
    (
        "version: 1\nrules:\n- {match: {projects: [a]}, freezes: []}\n",
        3,
        "unknown key 'freezes' in rules[1]",
    ),
    (
        "version: 1\nfreezes:\n- schedule: 0 18 * * 5\n  reason: x\n",
        3,
        "freezes[1] has no duration",
    ),
    (
        "version: 1\nfreezes:\n- schedule: 0 18 * * 5\n  duration: 1h\n",
        3,
        "freezes[1] has no reason",
    ),
    (
        "version: 1\nfreezes:\n- schedule: '@daily'\n  duration: 1h\n  reason: x\n",
        3,
        "not a schedule with five fields",
    ),
    ("version: 1\nfreezes:\n- schedule: 0 25 * * *\n  duration: 1h\n  reason: x\n", 3, "Bad hour"),
    (
        "version: 1\nfreezes:\n- schedule: 0 1 * * *\n  duration: 1w\n  reason: x\n",
        4,
        "'1w' is not a duration",
    ),
    (
        "version: 1\nfreezes:\n- schedule: 0 1 * * *\n  duration: 367d\n  reason: x\n",
        4,
        "at most 366 days",
    ),
    (
        "version: 1\nfreezes:\n- {schedule: 0 1 * * *, duration: 1h, reason: x,\n   timeZone: Berlin}\n",
        4,
        "'Berlin' is not a time zone",
    ),
    ("version: 1\ncommit: {authorName: [\n", 3, "not valid YAML"),
    ("version: 1\n<<: {pinDigest: true}\n", 2, "unknown key '<<'"),
    (f"version: 1\ncommit: {{authorName: {'x' * 501}}}\n", 2, "has more than 500 characters"),
    ("version: 1\n" + "# x\n" * 70_000, 1, "larger than 256 KiB"),
    (
        "version: 1\nrules:\n" + "- {match: {projects: [a]}, pinDigest: true}\n" * 201,
        3,
        "rules has more than 200",
    ),
    (
        "version: 1\nrules:\n- match: &a {projects: [" + "a, " * 600 + "b]}\n  pinDigest: true\n"
        "- match: &b {paths: [" + ", ".join(f"p{n}" for n in range(999)) + "]}\n  pinDigest: true\n"
        "- {match: *b, pinDigest: true}\n",
        5,
        "more than 1000 globs",
    ),
]


@pytest.mark.parametrize(
    ("text", "line", "words"), MISTAKES, ids=[words for _, _, words in MISTAKES]
)
def test_a_mistake_is_reported_with_its_line_number(text: str, line: int, words: str) -> None:
    with pytest.raises(TargetError) as caught:
        config_in({PATH: File(text)})
    error = caught.value
    assert error.subject == PATH
    assert words in f"{error.message} {error.hint}"
    assert f"line {line}" in error.message
    assert "the repository's owners" in error.hint


SEVERAL = """\
version: 1
colour: blue
commit: {autorName: "", signOff: maybe}
pullRequests:
  labels: [ok, {}, ""]
  group: each
rules:
- {match: {applicatons: [web]}, pinDigest: true}
- {match: {applications: []}, pinDigets: maybe}
- {match: {applications: [web]}}
- {match: {applications: [web], projects: x}, pinDigest: true}
- {pinDigest: true}
- nothing
freezes:
- {schedule: "99 * * * *", duration: forever, timeZone: Mars, reason: []}
- {schedul: "0 1 * * *", match: {}}
"""


def test_all_mistakes_are_reported_together() -> None:
    """Consequences of a mistake are not reported: a misspelled key is not also called missing."""
    _, mistakes = check_config(SEVERAL)
    told = sorted(
        (int(one.message.split()[1][:-1]), one.message.partition(": ")[2]) for one in mistakes
    )
    assert told == [
        (2, "unknown key 'colour'"),
        (3, "commit.authorName is empty"),
        (3, "commit.signOff is neither true nor false"),
        (3, "unknown key 'autorName' in commit"),
        (5, "an entry of pullRequests.labels is empty"),
        (5, "an entry of pullRequests.labels is not a string"),
        (6, "pullRequests.group: 'each' is not a group"),
        (8, "unknown key 'applicatons' in rules[1].match"),
        (9, "rules[2].match.applications is empty, so it matches nothing"),
        (9, "rules[2].pinDigest is neither true nor false"),
        (9, "unknown key 'pinDigets' in rules[2]"),
        (10, "rules[3] has no rules"),
        (11, "rules[4].match.projects is not a list"),
        (13, "rules[6] is not a mapping"),
        (15, "freezes[1].duration: 'forever' is not a duration of at most 366 days"),
        (15, "freezes[1].reason is not a string"),
        (15, "freezes[1].schedule: '99 * * * *' is not a schedule: Bad minute"),
        (15, "freezes[1].timeZone: 'Mars' is not a time zone"),
        (16, "freezes[2] has no duration"),
        (16, "freezes[2] has no reason"),
        (16, "freezes[2].match is empty"),
        (16, "unknown key 'schedul' in freezes[2]"),
    ]


def test_a_check_rule_that_is_not_a_string_is_reported_only_once() -> None:
    _, mistakes = check_config("version: 1\ncheck: {refuse: [[], superseded, x]}\n")
    assert [one.message for one in mistakes] == [
        "line 2: an entry of check.refuse is not a string",
        "line 2: an entry of check.refuse is 'x'",
    ]


def test_the_number_of_reported_mistakes_is_limited() -> None:
    began = time.process_time()
    _, mistakes = check_config("version: 1\n" + "".join(f"versio{n}: 1\n" for n in range(15_000)))
    assert len(mistakes) == MOST_MISTAKES
    assert time.process_time() - began < 10


BOMB = "version: 1\na0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}x]\n" for n in range(1, 30)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "version: 1\nrules: " + "[" * 100_000,
        "version: 1\nrules:\n" + "-\n" * 100_000,
        "version: 1\nrules:\n- match: &m {projects: &p ["
        + "a, " * 80_000
        + "b]}\n"
        + "- match: *m\n" * 100,
        "version: 1\n" + "? " * 100_000,
        "version: 1\ncommit: {trailers: {" + ", ".join(f"k{n}: v" for n in range(20_000)) + "}}\n",
    ],
    ids=[
        "alias bomb",
        "nested",
        "empty rules",
        "long lists",
        "keys of keys",
        "trailers",
    ],
)
def test_a_hostile_file_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(TargetError):
        read_config(text)
    assert time.process_time() - began < 10


def test_a_million_rules_are_rejected_immediately() -> None:
    test_a_hostile_file_is_refused_at_once(
        "version: 1\nrules:\n" + "- {match: {projects: [a]}, pinDigest: true}\n" * 1_000_000
    )


def test_a_missing_file_or_a_folder_counts_as_no_config() -> None:
    assert config_in({}) is config_in({PATH: File("", "040000")}) is NO_CONFIG


@pytest.mark.parametrize("mode", ["120000", "160000"])
def test_a_symbolic_link_is_not_accepted_as_a_config(mode: str) -> None:
    with pytest.raises(TargetError, match="not a file"):
        config_in({PATH: File("", mode)})


texts = st.sampled_from(["a", "team-a/*", "**", "x y", "1.0"])
lists = st.lists(texts, max_size=3)
match = st.dictionaries(
    st.sampled_from(["applications", "projects", "paths", "images"]),
    st.lists(texts, min_size=1, max_size=2),
    min_size=1,
)
commits = st.fixed_dictionaries(
    {},
    optional={
        "authorName": texts, "authorEmail": st.sampled_from(["a@b", " 1+deploy[bot]@users.example.com"]),
        "template": st.just("a/b"), "signOff": st.booleans(),
        "trailers": st.dictionaries(st.sampled_from(["A", "B-c"]), texts),
    },
)  # fmt: skip
requests = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(), "group": st.sampled_from(["repository", "project", "application", "image"]),
        "labels": lists, "reviewers": lists, "assignees": lists, "autoMerge": st.booleans(), "draft": st.booleans(),
    },
)  # fmt: skip
of_tags = {
    "tagOrder": st.sampled_from(["numeric", "alphabetical desc", "regexp:^(?P<semver>.+) desc"]),
    "pushOptions": lists,
    "minimumAge": st.sampled_from(["3d", "12h30m"]),
}
wishes = {"commit": commits, "pullRequests": requests, "pinDigest": st.booleans(), **of_tags}
rules = st.fixed_dictionaries(
    {"match": match, "pinDigest": st.booleans()},
    optional={"commit": commits, "pullRequests": requests, **of_tags},
)
freezes = st.fixed_dictionaries(
    {
        "schedule": st.sampled_from(["0 18 * * 5", "*/5 0-3 1,15 JAN *"]),
        "duration": st.sampled_from(["62h", "1h30m", "3d"]),
        "reason": texts,
    },
    optional={"timeZone": st.sampled_from(["UTC", "Europe/Berlin"]), "match": match},
)  # fmt: skip
configs = st.fixed_dictionaries(
    {"version": st.just(1)},
    optional={
        **wishes,
        "rules": st.lists(rules, max_size=3),
        "freezes": st.lists(freezes, max_size=3),
    },
)


@given(configs)
def test_every_config_that_fits_the_schema_is_read(config: dict[str, Any]) -> None:
    SCHEMA.validate(config)
    for text in (yaml.safe_dump(config), json.dumps(config)):
        found = read_config(text)
        assert len(found.rules) == len(config.get("rules", []))
        assert found.wishes.pin_digest == config.get("pinDigest")


@given(configs, st.data())
def test_an_unknown_key_is_rejected_by_schema_and_reader(
    config: dict[str, Any], data: st.DataObject
) -> None:
    places = [config, *(config[key] for key in ("commit", "pullRequests") if key in config)]
    places += [part for rule in config.get("rules", []) for part in (rule, rule["match"])]
    places += config.get("freezes", [])
    data.draw(st.sampled_from(places))["unknown"] = "x"
    assert list(SCHEMA.iter_errors(config))
    with pytest.raises(TargetError, match="unknown key 'unknown'"):
        read_config(yaml.safe_dump(config))


@pytest.mark.parametrize("text", [WHOLE])
def test_the_complete_example_matches_the_schema(text: str) -> None:
    SCHEMA.validate(yaml.safe_load(text))


@given(st.text(max_size=200) | st.text(alphabet="version: 1\n-{}[]*&<|>'\"#%@`?", max_size=200))
def test_any_text_is_either_read_or_rejected(text: str) -> None:
    with suppress(TargetError):
        assert isinstance(read_config(text), RepositoryConfig)
