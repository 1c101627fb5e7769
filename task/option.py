"""Command-line options, and the functions that read their values.

The options themselves are fields of the records in `task/settings.py`. `task/cli/command.py`
converts them to Typer options. The functions below receive the values as passed, and implement what
the reference promises beyond Typer:

- Whitespace around a value is stripped, and a blank value counts as not set.
- A variable with several values contains one value per line. Typer would split it at every space.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any, Literal, TypeVar

from task.errors import UsageError
from task.secret import Secret
from task.text import is_address, is_name

T = TypeVar("T")
OPTION = "option"  # the key under which a field's metadata stores its `Option`
ENV_PREFIX = "IMAGE_UPDATE_"
# prefix of the variables in which CI systems pass a form's parameters
PARAMETER_PREFIX = "IMAGE_UPDATE_PARAMETER_"
# prefix of the lines in the dotenv file that one job passes to the next
RESULTS_PREFIX = "IMAGE_UPDATE_RESULT_"
# Placeholders that Tekton, Argo Workflows, GitHub Actions, and GitLab leave in place if they
# contain an unknown name.
PLACEHOLDER = re.compile(
    r"\$\((?:tasks|params|context|workspaces|steps|results)\.[^()]*\)|\$?\{\{[^{}]*\}\}|\$\[\[[^\[\]]*\]\]"
)


Origin = Literal["default", "variable", "command line"]


@dataclass(frozen=True)
class Given:
    """The values passed for an option in one call, and where they were set."""

    name: str  # the option's name, as quoted in errors: --image
    texts: tuple[str, ...]
    source: Origin
    metavar: str
    default: Any

    @property
    def is_given(self) -> bool:
        """Whether the option is set, on the command line or by a non-empty variable."""
        if self.source == "variable":
            return bool("".join(self.texts).strip())
        return self.source == "command line"

    def wrong(self, value: str, what: str, hint: str) -> UsageError:
        """Return the error for an invalid value. `what` describes a valid value."""
        return UsageError(f"{self.name}: {value!r} is not {what}", hint=hint)

    def without_placeholders(self, text: str) -> str:
        """Return the value. Raises `UsageError` if it still contains a placeholder from the CI
        system.
        """
        placeholder = PLACEHOLDER.search(text)
        if placeholder:
            raise UsageError(
                f"{self.name}: the pipeline did not replace {placeholder.group()[:200]}",
                hint=(
                    "check the names in the placeholder, and make sure that the step that sets the"
                    " value runs"
                    " before this one"
                ),
            )
        return text


def one_text(given: Given) -> str:
    """Return the value without surrounding whitespace, or the default if that is empty."""
    text = given.without_placeholders("".join(given.texts).strip())
    return text or str(given.default)


def secret(given: Given) -> Secret:
    """Return the value as a string that may be a secret."""
    return Secret(one_text(given))


def prefix(given: Given) -> str:
    """Return an annotation prefix, which ends with exactly one slash."""
    return one_text(given).rstrip("/") + "/"


def one_of(given: Given) -> str:
    """Return the value, which must be one of the words in the option's metavar (such as
    `auto|always|never`), or the default if the option is not set.
    """
    text = one_text(given)
    choices = given.metavar.split("|")
    if text not in choices and text != given.default:
        raise given.wrong(text, "a valid value", f"use one of {', '.join(choices)}")
    return text


def seconds(given: Given) -> float:
    """Return a number of seconds, up to eleven days."""
    text = one_text(given)
    try:
        number = float(text)
    except ValueError:
        number = -1.0  # not a number; rejected below
    is_valid = 0 <= number < 1e6  # False for inf and nan as well
    if not is_valid:
        valid = "below 1,000,000 seconds" if number >= 1e6 else "a number of seconds"
        raise given.wrong(text, valid, "use a number such as 120")
    return number


def count(given: Given) -> int:
    """Return an integer of at most 50."""
    text = one_text(given)
    is_valid = text.isascii() and text.isdigit() and len(text) <= 2 and int(text) <= 50
    if not is_valid:
        raise given.wrong(text, "a whole number from 0 to 50", "use a number such as 5")
    return int(text)


def commit_id(given: Given) -> str:
    """Return a full or abbreviated commit ID in lowercase, or "" if none is set. Branches and other
    names are rejected, because later steps cannot resolve them.
    """
    text = one_text(given).lower()
    is_hex = all(char in "0123456789abcdef" for char in text)
    is_commit_id = is_hex and 7 <= len(text) <= 64
    if text and not is_commit_id:
        raise given.wrong(
            text,
            "a commit ID",
            "use all 40 hex digits, as printed by git rev-parse",
        )
    return text


def author_name(given: Given) -> str:
    """Return a name that git accepts, or "" if none is set. The repository's config may then
    provide one.
    """
    text = one_text(given)
    if text and not is_name(text):
        raise given.wrong(
            text,
            "a name that Git accepts",
            "remove < > and control characters; use --git-author-email for the address",
        )
    return text


def author_email(given: Given) -> str:
    """Return an email address, or "" if none is set. The repository's config may then
    provide one.
    """
    text = one_text(given)
    if text and not is_address(text):
        raise given.wrong(
            text,
            "an email address",
            "use only the address, such as bot@example.com",
        )
    return text


def every_text(given: Given) -> tuple[str, ...]:
    """Return all values, trimmed and without blank ones. A variable counts as a single value, which
    the caller parses.
    """
    texts = map(str.strip, given.texts)
    return tuple(given.without_placeholders(text) for text in texts if text)


def every_line(given: Given) -> tuple[str, ...]:
    """Return all values. Each line of a variable is one value; a value on the command line is not
    split.
    """
    texts = every_text(given)
    if given.source != "variable":
        return texts
    lines: list[str] = []
    for text in texts:
        lines += map(str.strip, text.splitlines())
    return tuple(filter(None, lines))


def every_word(given: Given) -> tuple[str, ...]:
    """Return the words in all values. On the command line and in a variable, words are separated by
    whitespace and commas.
    """
    words: list[str] = []
    for text in every_text(given):
        words += text.replace(",", " ").split()
    return tuple(words)


def every_choice(given: Given) -> tuple[str, ...]:
    """Return the words in all values. Each must be one of the choices in the option's metavar, such
    as `behind,held`.
    """
    words = every_word(given)
    choices = given.metavar.split(",")
    for word in words:
        if word not in choices:
            raise given.wrong(word, "a valid value", f"use one of {', '.join(choices)}")
    return words


def every_pair(given: Given) -> tuple[tuple[str, str], ...]:
    """Return each `KEY=VALUE` value as a (key, value) pair. A variable contains one pair
    per line.
    """
    pairs = []
    for text in every_line(given):
        key, _, value = map(str.strip, text.partition("="))
        if not key or not value:
            raise given.wrong(text, f"in the form {given.metavar}", f"use {given.metavar}")
        pairs.append((key, value))
    return tuple(pairs)


@dataclass(frozen=True)
class Option:
    """How the command line presents and reads one field of a record.

    The option and its variable are named after the field: `git_username` becomes --git-username and
    IMAGE_UPDATE_GIT_USERNAME. A bool field becomes a pair of flags: --wait/--no-wait.
    """

    group: str  # the heading in the help that the option is listed under
    help: str
    metavar: str = ""
    read: Callable[[Given], Any] = one_text  # not used for flags
    flag: str = ""  # the option's name, if it differs from the field's
    argument: bool = False  # whether it is a positional argument
    # the default to show in the help, if the field's own
    # default only means that no value was passed
    shown: str = ""
    # whether --help lists the option, or for which commands; --help-all lists all options
    common: bool | tuple[str, ...] = False
    # the metavar and text for --help, if those in --help-all are longer
    brief: tuple[str, str] = ("", "")
    # whether the option is a former name, which is hidden in the help and has no variable
    old_name: bool = False


class Group(str):
    """A heading in the help. Its methods declare the options under that heading, as fields of a
    record.
    """

    __slots__ = ()

    def option(  # noqa: PLR0913 - the properties of an option
        self,
        default: T,
        help: str,  # noqa: A002 - as Typer calls it
        metavar: str = "",
        *,
        read: Callable[[Given], Any] = one_text,
        flag: str = "",
        argument: bool = False,
        shown: str = "",
        common: bool | tuple[str, ...] = False,
        brief: tuple[str, str] = ("", ""),
        old_name: bool = False,
    ) -> T:
        """Return a dataclass field for an option under this heading. The other arguments are the
        fields of `Option`. Type checkers see a field with the type of its default.
        """
        declared = Option(
            group=self,
            help=help,
            metavar=metavar,
            read=read,
            flag=flag,
            argument=argument,
            shown=shown,
            common=common,
            brief=brief,
            old_name=old_name,
        )
        return field(default=default, metadata={OPTION: declared})

    text = partialmethod(option, "")
    flag = partialmethod(option, False)  # noqa: FBT003 - the default
    flag_on = partialmethod(option, True)  # noqa: FBT003 - the default
    choice = partialmethod(option, read=one_of)
    choices = partialmethod(option, (), read=every_choice)
    lines = partialmethod(option, (), read=every_line)
    words = partialmethod(option, (), read=every_word)
    pairs = partialmethod(option, (), read=every_pair)


def flag_of(field: str) -> str:
    """Return the command-line flag for an option's field."""
    return "--" + field.replace("_", "-")


def variable_of(flag: str) -> str:
    """Return the name of an option's environment variable."""
    return ENV_PREFIX + flag.removeprefix("--").upper().replace("-", "_")
