"""Both doors read the same table, and the same command line in the same way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task.cli.door import FAST, Call, read, with_environment
from task.cli.options import OPTIONS, Option, options_of
from task.cli.typer_door import enter
from task.settings import settings_of

NAMES = {option.name: option for option in options_of("plan")}


def value_of(option: Option) -> str:
    return option.choices[-1] if option.choices else "7" if option.takes == "number" else "k=v"


def through_typer(argv: list[str]) -> Call:
    calls: list[Call] = []

    def keep(call: Call) -> int:
        calls.append(call)
        return 0

    with pytest.raises(SystemExit) as end:
        enter(argv, keep)
    assert end.value.code == 0
    return calls[0]


@pytest.mark.parametrize("option", [one for one in OPTIONS if set(FAST) & set(one.commands)], ids=lambda o: o.name)
def test_both_doors_read_every_option_alike(option: Option) -> None:
    given_as = [f"--{option.name}"] if option.takes == "flag" else [f"--{option.name}", value_of(option)]
    argv = [next(name for name in FAST if name in option.commands), *given_as]
    assert read(argv) == through_typer(argv)


@settings(max_examples=50)  # Typer builds its whole command line for each
@given(st.lists(st.sampled_from(sorted(NAMES)), max_size=6), st.data())
def test_both_doors_read_whole_lines_alike(names: list[str], data: st.DataObject) -> None:
    argv = ["plan"]
    for name in names:
        option = NAMES[name]
        if option.takes == "flag":
            argv.append(data.draw(st.sampled_from([f"--{name}", f"--no-{name}"])))
        elif data.draw(st.booleans()):
            argv.append(f"--{name}={value_of(option)}")
        else:
            argv += [f"--{name}", value_of(option)]
    fast, slow = read(argv), through_typer(argv)
    assert fast is not None
    # Typer keeps the last value of an option that takes one; so does Settings.
    last = {n: v[-1:] if NAMES[n].takes not in ("words", "lines") else v for n, v in fast.values.items()}
    assert Call(fast.command, last) == slow


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--help"],
        ["run", "--help"],
        ["run", "-h"],
        ["run", "--imag", "x"],
        ["run", "--image"],
        ["run", "--image", "--tag"],
        ["run", "x"],
        ["run", "--atomic=true"],
        ["run", "--no-image", "x"],
        ["demo"],
        ["nonsense"],
        ["run", "--"],
    ],
)
def test_what_is_not_plain_is_left_to_typer(argv: list[str]) -> None:
    assert read(argv) is None


def test_the_environment_fills_what_the_line_leaves_out() -> None:
    call = Call("run", {"tag": ("1",)})
    environ = {
        "IMAGE_UPDATE_TAG": "2",
        "IMAGE_UPDATE_IMAGE": " a:1 b:2\n",
        "IMAGE_UPDATE_APPLICATION": "x,y z",
        "IMAGE_UPDATE_TRAILER": "A=b c\nD=e",
        "IMAGE_UPDATE_PROJECT": " \n",
        "IMAGE_UPDATE_ATOMIC": "true",
    }
    assert dict(with_environment(call, environ).values) == {
        "tag": ("1",),
        "image": ("a:1 b:2",),
        "application": ("x", "y", "z"),
        "trailer": ("A=b c", "D=e"),
        "atomic": ("true",),
    }


def test_every_option_has_a_variable_of_its_own() -> None:
    assert len({option.variable for option in OPTIONS}) == len(OPTIONS)
    assert NAMES["git-author-name"].variable == "IMAGE_UPDATE_GIT_AUTHOR_NAME"


def test_defaults_are_valid_settings() -> None:
    settings = settings_of(Call("run", {}))
    assert (settings.strategy, settings.carry, settings.atomic, settings.git.deadline) == ("semver", True, False, 120)
