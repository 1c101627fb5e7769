"""State files: contents, errors, and how few lines a write changes."""

import difflib
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import yaml
from editors.editing import styled
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from task.editors.state_file import data_of, read_state, write_state
from task.errors import TargetError
from task.model import Build, Hold, Meant, Memory, State, Written
from task.schemas import load

SCHEMA = load("state.v1")
HELD = Hold("not before Christmas", "jane", "2026-11-21T06:00:00Z", "2026-12-27T00:00:00Z")
BUILD = Build(
    42,
    "github:github.com/acme/api",
    "0123456789ab",
    "https://github.com/acme/api",
    "2026-11-21T05:00:00Z",
)
WRITTEN = Written("1.10", "sha256:" + "a" * 64, BUILD)
API = Memory(WRITTEN, ("1.9", "1.8"))
FULL = State(None, {"api": API, "web": Memory(hold=HELD, deferred=Written("v3", build=Build(7)))})
FILE = "apps/web/kustomization.yaml"
TEXT = """\
# Image Update's state for this Application: written builds, holds, and waiting builds. You can edit this file.
files:
  apps/web/kustomization.yaml:
    images:
      api:
        written:
          tag: "1.10"
          digest: sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
          sequence: "42"
          counter: github:github.com/acme/api
          commit: 0123456789ab
          repository: https://github.com/acme/api
          created: "2026-11-21T05:00:00Z"
        replaced:
        - "1.9"
        - "1.8"
      web:
        hold:
          reason: not before Christmas
          by: jane
          at: "2026-11-21T06:00:00Z"
          until: "2026-12-27T00:00:00Z"
        deferred:
          tag: v3
          sequence: "7"
"""
BY_HAND = """\
# The web shop.

# Where it lies
files:   # files
  # production
  'apps/web/kustomization.yaml':
    # Black Friday!
    hold: {reason: 'freeze', until: 2026-12-01}  # ask Jane

    images:
        # the big one
        api:   # api
            written:
                tag: 1.10  # plain, as people write it
                sequence: 0042
                created: 2026-11-21 06:00:00+01:00
            replaced: [1.9, v1]  # those
        "web":
            replaced:
                # newest
                - 1.2
                - 'v0'   # old
            hold:
                reason: |
                    two
                    lines
                by:
# end
"""
BY_HAND_STATE = State(
    Hold("freeze", until="2026-12-01T00:00:00Z"),
    {
        "api": Memory(
            Written("1.10", build=Build(42, created="2026-11-21T05:00:00Z")), ("1.9", "v1")
        ),
        "web": Memory(replaced=("1.2", "v0"), hold=Hold("two\nlines\n")),
    },
)


def changes(old: str, new: str) -> list[str]:
    """Return the removed lines and the added lines."""
    return [line for line in difflib.ndiff(old.splitlines(), new.splitlines()) if line[0] in "+-"]


IN = f"files:\n  {FILE}:\n"
API_IN = IN + "    images:\n      api: "


def write(text: str, state: State) -> str:
    """Return the state file's text after storing this state for the only target file."""
    return write_state(text, {FILE: state})


def read(text: str) -> State:
    """Return the only target file's state in the text."""
    states = read_state(text)
    assert set(states) <= {FILE}
    return states.get(FILE, State())


def other(state: State, alias: str, **more: Any) -> State:
    """Return the state with a different memory for one image."""
    return replace(
        state, images={**state.images, alias: replace(state.images.get(alias, Memory()), **more)}
    )


def test_a_new_state_file_is_written_and_read_back() -> None:
    assert write("", FULL) == TEXT
    assert read(TEXT) == FULL


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "# only a comment\n",
        "---\n",
        "files:\n",
        "files: {}\n",
        "files: {a: {images: }}\n",
        "\ufeff",
        "{}",
        "~",
    ],
)
def test_an_empty_state_file_is_an_empty_state(text: str) -> None:
    assert read(text) == State()
    assert write(text, State()) == ""
    assert read(write(text, FULL)) == FULL


@pytest.mark.parametrize(
    "state",
    [
        State(),
        State(None, {"api": Memory()}),
        State(None, {"api": Memory(Written(), deferred=Written())}),
    ],
)
def test_an_empty_state_removes_the_file(state: State) -> None:
    assert write(BY_HAND, state) == ""
    assert write("", state) == ""


def test_comments_in_an_otherwise_empty_file_are_kept() -> None:
    assert (
        write("# ours\n", State(Hold("x")))
        == f"# ours\nfiles:\n  {FILE}:\n    hold:\n      reason: x\n"
    )


def test_a_manually_written_file_is_read_literally_and_kept() -> None:
    assert read(BY_HAND) == BY_HAND_STATE
    assert write(BY_HAND, BY_HAND_STATE) == BY_HAND


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (other(FULL, "web", hold=None),
         ["-         hold:", "-           reason: not before Christmas", "-           by: jane",
          '-           at: "2026-11-21T06:00:00Z"', '-           until: "2026-12-27T00:00:00Z"']),
        (other(FULL, "web", deferred=None),
         ["-         deferred:", "-           tag: v3", '-           sequence: "7"']),
        (other(FULL, "api", replaced=("1.10", "1.9")), ['+         - "1.10"', '-         - "1.8"']),
        (other(FULL, "api", replaced=()), ["-         replaced:", '-         - "1.9"', '-         - "1.8"']),
        (other(FULL, "api", replaced=("1.9", "1.8", "x")), ["+         - x"]),
        (other(FULL, "api", written=replace(WRITTEN, tag="v2")),
         ['-           tag: "1.10"', "+           tag: v2"]),
        (replace(FULL, hold=Hold("stop")), ["+     hold:", "+       reason: stop"]),
        (other(FULL, "db", replaced=("1",)), ["+       db:", "+         replaced:", '+         - "1"']),
        (other(FULL, "aaa", replaced=("1",)), ["+       aaa:", "+         replaced:", '+         - "1"']),
        (other(FULL, "zzz", replaced=("1",)), ["+       zzz:", "+         replaced:", '+         - "1"']),
        (other(FULL, "web", replaced=("1",)), ["+         replaced:", '+         - "1"']),
        (other(FULL, "web", rollback=Meant("previous", "1.9")),
         ["+         rollback:", "+           to: previous", '+           tag: "1.9"']),
        (replace(FULL, images={"api": API}), ["-       web:", *(f"- {line}" for line in TEXT.splitlines()[17:])]),
        (State(None, {"api": API, "web": Memory(deferred=Written("v3", build=Build(8)))}),
         ["-         hold:", "-           reason: not before Christmas", "-           by: jane",
          '-           at: "2026-11-21T06:00:00Z"', '-           until: "2026-12-27T00:00:00Z"',
          '-           sequence: "7"', '+           sequence: "8"']),
    ],
)  # fmt: skip
def test_only_the_affected_lines_change(state: State, expected: list[str]) -> None:
    new = write(TEXT, state)
    assert changes(TEXT, new) == expected
    assert read(new) == state
    assert write(new, state) == new


def test_a_changed_manual_file_is_reformatted_below_its_leading_comments() -> None:
    state = replace(BY_HAND_STATE, hold=Hold("thaw"))
    below = write("", state).partition("\n")[2]
    head = "# The web shop.\n\n# Where it lies\n"
    for text in (BY_HAND, "---\n" + BY_HAND, BY_HAND + "...\n"):
        new = write(text, state)
        assert new.removeprefix("---\n") == head + below
        assert (read(new), write(new, state)) == (state, new)
    assert write(BY_HAND.replace("\n", "\r\n"), state) == (head + below).replace("\n", "\r\n")
    assert write("\ufeff" + BY_HAND, state) == "\ufeff" + head + below


@pytest.mark.parametrize(
    "text",
    [
        '{"files": {"apps/web/kustomization.yaml": {"images": {"api": {"replaced": ["1"]}}}}}\n',
        f"? files\n: ? {FILE}\n  : ? images\n    : ? api\n      : replaced: [1]\n",
        f"files: {{{FILE}: {{images: {{api: {{replaced: [1]}}}}}}}}\n",
        f"files:\n  {FILE}:\n    images:\n      api: {{replaced: [1]}}\n",
        f"files:\n  {FILE}:\n    images:\n      api:\n        replaced:\n        - 1",
        f"files:\n  {FILE}:\n    images:\n      api:\n        replaced:\n        - |-\n          1",
        f"# c\n--- # d\nfiles: {{{FILE}: {{images: {{api: {{replaced: [!!str 1]}}}}}}}}\n",
    ],
)
def test_files_in_every_yaml_style_can_be_updated(text: str) -> None:
    assert read(text) == State(None, {"api": Memory(replaced=("1",))})
    for state in (
        FULL,
        State(HELD),
        State(HELD, {"api": Memory(replaced=("2", "1"))}),
        State(None, {"b": API}),
    ):
        new = write(text, state)
        assert read(new) == state
        assert write(new, state) == new


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (IN + "    hold: true\n", "line 3: hold is a single value, not a mapping", "key: value"),
        (IN + "    hold:\n", "line 3: hold is empty", "reason"),
        (IN + "    hold: {}\n", "line 3: hold is empty", "reason"),
        (IN + "    images:\n      api:\n        hold:\n", "line 5: hold is empty", "reason"),
        (IN + "    hold:\n      by: jane\n", "line 4: hold has no reason", "reason"),
        (IN + "    hold: {reason: [x]}\n", "line 3: reason is a list, not a string", "reason:"),
        (IN + "    hold: {reason: x, until: Monday}\n", "line 3: until: 'Monday' is not a time",
         "2026-11-21T06:00:00Z"),
        (IN + "    hold: {reason: x, Until: Monday}\n", "line 3: hold has the key 'Until'", "reason, by, at, until"),
        (IN + "    holds:\n      reason: x\n", f"line 3: {FILE} has the key 'holds'", "hold, images"),
        (IN + "    images:\n      \u2028api: {hold: {reason: x}}\n", "line 4: has U.2028", "remove it"),
        (IN + "    images:\n      api\x85:\n        hold: {reason: x}\n", "line 4: has U.0085", "remove it"),
        ("# a comment\u2029files: {}\n", "line 1: has U.2029", "remove it"),
        (IN + "    \ufeffhold:\n      reason: x\n", "line 3: .* has the key '.ufeffhold'", "hold, images"),
        (IN + "    'hold\u2028': {reason: x}\n", "line 3: has U.2028", "remove it"),
        (IN + '    "\\N hold": {reason: x}\n', "line 3: .* has the key '.x85 hold'", "hold, images"),
        (API_IN + "{hold\u200b: {reason: x}}\n", "line 4: api has the key 'hold.u200b'", "images: <alias>"),
        (IN + "    written: {tag: v1}\n", f"line 3: {FILE} has the key 'written'", "images: <alias>"),
        ("hold:\n  reason: x\n", "line 1: the file has the key 'hold'", "files: <file>"),
        ("images: {api: {replaced: [v1]}}\n", "line 1: the file has the key 'images'", "files: <file>"),
        ("File: {}\n", "line 1: the file has the key 'File'", "files"),
        ("- a\n", "line 1: the file is a list, not a mapping", "key: value"),
        ("just text\n", "line 1: the file is a single value", "key: value"),
        ("files: [api]\n", "line 1: files is a list", "key: value"),
        (IN + "    images: [api]\n", "line 3: images is a list", "key: value"),
        (API_IN + "1.2\n", "line 4: api is a single value", "key: value"),
        (API_IN + "{written: {tag: {a: b}}}\n", "line 4: tag is a mapping", "tag"),
        (API_IN + "{written: {sequence: 1_0}}\n", "line 4: sequence: '1_0' is not a number", "20 digits"),
        (API_IN + "{written: {sequence: -1}}\n", "line 4: sequence", "20 digits"),
        (API_IN + "{written: {created: now}}\n", "line 4: created: 'now' is not a time", "2026"),
        (API_IN + "{written: {tag: !!binary aGk=}}\n", "line 4: tag is tagged", "tag"),
        (API_IN + "{replaced: 1.2}\n", "line 4: replaced is a single value, not a list", "own line below"),
        (API_IN + "\n        replaced:\n        -\n", "line 6: replaced has an empty item", "- "),
        (API_IN + "{}\n      api: {}\n", "line 5: 'api' appears twice in images", "keep one"),
        (IN + "    hold: &a {reason: x}\n", "line 3: the anchor &a", "write out the value"),
        (IN + "    images:\n      a: {hold: {reason: &r x}}\n      b: {hold: {reason: *r}}\n", "line 4: the anchor &r",
         "write out the value"),
        ("? [a]\n: b\n", "line 1: a key in the file is a list", "plain word"),
        ("files: {}\n---\nfiles: {}\n", "line 3: unexpected second YAML document", "---"),
        ("hold: [\n", "not valid YAML: .*line", "delete it"),
        ("hold:\n\treason: x\n", "not valid YAML: .*line 2", "delete it"),
        ("a: \x00\n", "not valid YAML", "delete it"),
        ("files:\n<<<<<<< HEAD\n  a: {}\n=======\n  b: {}\n>>>>>>> b\n", "line 2: a merge conflict", "<<<<<<<"),
        ("x" * 1_000_001, "larger than 1 MB", "delete it"),
        ("[" * 300, "nested deeper|not valid", "delete it"),
    ],
)  # fmt: skip
def test_invalid_state_files_are_rejected_with_a_line_number_and_a_hint(
    text: str, message: str, hint: str
) -> None:
    for call in (lambda: read(text), lambda: write(text, FULL)):
        with pytest.raises(TargetError, match=message) as caught:
            call()
        assert hint in caught.value.hint


def test_an_alias_bomb_is_refused_at_once() -> None:
    lines = [
        "a0: &a0 [x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)),
    ]
    with pytest.raises(TargetError):
        read("\n".join(lines))


@pytest.mark.parametrize(
    "state",
    [
        State(Hold("x", until="tomorrow")),
        State(Hold("x", at="now")),
        State(None, {"a": Memory(Written("1", build=Build(created="x")))}),
        State(None, {"a": Memory(Written("1", build=Build(sequence=10**20)))}),
        State(None, {"a": Memory(Written("1", build=Build(sequence=-1)))}),
        State(Hold("x" * 1_000_001)),
    ],
)
def test_invalid_states_cannot_be_written(state: State) -> None:
    with pytest.raises(TargetError):
        write("", state)


def test_undecodable_bytes_are_replaced() -> None:
    assert read(write("", State(Hold("a\udcff")))) == State(Hold("a\ufffd"))


NEWER = """\
# ours
schema: {version: 2, 'kinds': [1, ~, x y, "true"]}
files:
  apps/web/kustomization.yaml:
    # of the newer version
    freezes:
    - {at: 2026-12-01}  # noted
    hold:
      reason: x
      scope: all
    images:
      api:
        written:
          tag: v1
          signed: yes
        pinned: true
"""


@pytest.mark.parametrize(
    ("state", "gone"),
    [
        (State(Hold("x"), {"api": Memory(Written("v2"))}), []),
        (State(None, {"api": Memory(Written("v1"))}), ["hold"]),
        (State(Hold("x")), ["written"]),
        (
            State(
                Hold("x", "joe"), {"api": Memory(Written("v1")), "web": Memory(replaced=("v0",))}
            ),
            [],
        ),
        (State(), ["hold", "written"]),
    ],
)
def test_unknown_keys_from_a_newer_version_are_kept(state: State, gone: list[str]) -> None:
    """If an entry is removed, its unknown keys are removed, too."""
    assert read(NEWER) == State(Hold("x"), {"api": Memory(Written("v1"))})
    for text in (NEWER, NEWER.replace("\n", "\r\n")):
        new = write(text, state)
        assert write(new, state) == new
        known, left = yaml.safe_load(new), yaml.safe_load(NEWER)
        assert known["schema"] == left["schema"]
        of_file, was = known["files"][FILE], left["files"][FILE]
        assert of_file["freezes"] == was["freezes"]
        assert of_file["images"]["api"]["pinned"] is True
        assert ("hold" in gone) == ("hold" not in of_file)
        assert "hold" in gone or of_file["hold"]["scope"] == "all"
        assert ("written" in gone) == ("written" not in of_file["images"]["api"])
        assert "written" in gone or of_file["images"]["api"]["written"]["signed"] is True


def test_keys_from_a_newer_version_are_kept_in_flow_style() -> None:
    text = (
        str(yaml.safe_load(NEWER))
        .replace("None", "null")
        .replace("True", "true")
        .replace("datetime.date", "")
    )
    text = text.replace("(2026, 12, 1)", "2026-12-01")
    new = write(text, State(Hold("y"), {"web": Memory(replaced=("v0",))}))
    known, left = yaml.safe_load(new), yaml.safe_load(NEWER)
    assert known.pop("schema") == left.pop("schema")
    of_file = known["files"][FILE]
    assert of_file.pop("freezes") == left["files"][FILE]["freezes"]
    assert of_file == {
        "hold": {"reason": "y", "scope": "all"},
        "images": {"api": {"pinned": True}, "web": {"replaced": ["v0"]}},
    }


def test_each_target_file_has_a_separate_state() -> None:
    both = {
        "a/values.yaml": State(HELD, {"api": API}),
        "b/values.yaml": State(None, {"api": Memory(replaced=("1",))}),
    }
    text = write_state("", both)
    assert read_state(text) == both
    one = write_state(text, {"a/values.yaml": both["a/values.yaml"]})
    assert changes(text, one) == [
        f"- {line}" for line in text.splitlines()[text.splitlines().index("  b/values.yaml:") :]
    ]
    assert write_state(one, both) == text


HOSTILE = st.sampled_from(
    ["", "a\nb", "- x", "# no", "a: b", "{x}", "'", '"', "yes", "1.10", "~", "null", "<<", "0x1f", "\t", "\\", "é😀",
     "\0", "\r\n", "x" * 1500, "*a", "&a", "!!int", "%YAML", "---", "...", "2026-01-01", " a ", "\u2028", "\ufeff",
     "<<<<<<< HEAD"]
)  # fmt: skip
WORDS = HOSTILE | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TIMES = st.sampled_from(["", "2026-11-21T06:00:00Z", "2026-11-21T06:00:00.120Z"])
BUILDS = st.builds(Build, st.none() | st.integers(0, 10**20 - 1), WORDS, WORDS, WORDS, TIMES)
WRITTENS = st.builds(Written, WORDS, WORDS, BUILDS).filter(lambda one: one != Written())
HOLDS = st.builds(Hold, WORDS, WORDS, TIMES, TIMES)
MEMORIES = st.builds(
    Memory,
    written=st.none() | WRITTENS,
    replaced=st.lists(WORDS, max_size=4).map(tuple),
    failed=st.lists(WORDS, max_size=4).map(tuple),
    hold=st.none() | HOLDS,
    deferred=st.none() | WRITTENS,
    rollback=st.none() | st.builds(Meant, WORDS.filter(bool), WORDS, WORDS),
).filter(lambda one: one != Memory())
ALIASES = st.sampled_from(["api", "web", "db"]) | WORDS
STATES = st.builds(State, st.none() | HOLDS, st.dictionaries(ALIASES, MEMORIES, max_size=4))


@given(STATES, STATES)
def test_a_written_state_is_read_back_unchanged(old: State, new: State) -> None:
    before = write("", old)
    after = write(before, new)
    assert read(before) == old
    assert read(after) == new
    assert write(after, new) == after


@given(STATES.filter(lambda one: one != State()))
def test_every_yaml_reader_reads_only_strings(state: State) -> None:
    text = write("", state)
    data = yaml.safe_load(text)
    assert data == YAML(typ="safe", pure=True).load(text)
    jsonschema.validate(data, SCHEMA)
    assert data == yaml.load(text, yaml.BaseLoader)  # noqa: S506 - it makes nothing but texts
    of_file = data["files"][FILE]
    if state.hold:
        assert of_file["hold"]["reason"] == state.hold.reason
    assert set(of_file.get("images", {})) == set(state.images)


@given(STATES, ALIASES, MEMORIES)
def test_other_images_keep_their_lines(state: State, alias: str, memory: Memory) -> None:
    before = write("", replace(state, images={**state.images, "other": API}))
    after = write(before, State(state.hold, {**state.images, "other": API, alias: memory}))
    kept = write("", State(None, {"other": API})).partition("images:\n")[2]
    assert alias == "other" or (kept in before and kept in after)
    same = {**state.images, "other": API}
    same.pop(alias, None)
    rest = write("", State(state.hold, same)).splitlines()
    assert [line for line in rest if line not in after.splitlines()] == []


SIMPLE = st.sampled_from(
    ["v1", "1.10", "a b", "it's", "# z", "- y", "a: b", "é😀", "0x1f", "x" * 200]
)
BY_HAND_BUILDS = st.builds(Build, st.none() | st.integers(0, 99), SIMPLE, SIMPLE, SIMPLE, TIMES)
BY_HAND_WRITTEN = st.builds(Written, SIMPLE, SIMPLE, BY_HAND_BUILDS)
BY_HAND_HOLDS = st.builds(Hold, SIMPLE, SIMPLE, TIMES, TIMES)
BY_HAND_MEMORIES = st.builds(
    Memory,
    written=st.none() | BY_HAND_WRITTEN,
    replaced=st.lists(SIMPLE, min_size=1, max_size=4).map(tuple),
    failed=st.lists(SIMPLE, min_size=1, max_size=4).map(tuple),
    hold=st.none() | BY_HAND_HOLDS,
    deferred=st.none() | BY_HAND_WRITTEN,
    rollback=st.none() | st.builds(Meant, SIMPLE, SIMPLE, SIMPLE),
)
BY_HAND_STATES = st.builds(
    State,
    st.none() | BY_HAND_HOLDS,
    st.dictionaries(
        st.sampled_from(["api", "web", "db", "1.1"]), BY_HAND_MEMORIES, min_size=1, max_size=4
    ),
)


@given(st.data(), BY_HAND_STATES, BY_HAND_STATES)
def test_manual_files_in_any_style_can_be_read_and_updated(
    data: st.DataObject, old: State, new: State
) -> None:
    before = data.draw(styled(data_of({FILE: old})))
    assert read(before) == old
    assert write(before, old) == before
    after = write(before, new)
    assert read(after) == new
    assert write(after, new) == after
