import copy
import pickle

import pytest

from task.model import Image, Reading
from task.record import NamedTuple


class Point(NamedTuple):
    """A record with a default and a method."""

    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


def test_values_are_given_by_place_or_name() -> None:
    assert Point(1) == Point(x=1, y=2) == Point(1, y=2) == (1, 2)
    assert (Point(3).x, Point(3).y, Point(3).total) == (3, 2, 5)


def test_many_values_are_made_as_few_are() -> None:
    class Pair(NamedTuple):
        one: int
        two: int = 2

    made = [Pair(number) if number % 2 else Pair(one=number, two=2) for number in range(100)]
    assert made == [(number, 2) for number in range(100)]
    assert {type(one) for one in made} == {Pair}


@pytest.mark.parametrize("values", [(), (1, 2, 3)])
def test_wrong_numbers_of_values_are_type_errors(values: tuple[int, ...]) -> None:
    with pytest.raises(TypeError):
        Point(*values)


@pytest.mark.parametrize("given", [{"x": 1}, {"z": 1}])
def test_no_field_is_given_twice_nor_made_up(given: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        Point(1, **given)


@pytest.mark.parametrize("given", [{}, {"y": 1}, {"x": 1, "z": 2}])
def test_wrong_fields_are_type_errors(given: dict[str, int]) -> None:
    class Fresh(NamedTuple):
        x: int
        y: int = 2

    for one in (Point, Fresh):
        with pytest.raises(TypeError):
            one(**given)


def test_a_change_is_a_new_value() -> None:
    one = Point(1)
    assert one._replace(y=5) == Point(1, 5)
    assert one == Point(1, 2)
    with pytest.raises(ValueError, match="z"):
        one._replace(z=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        one.x = 2  # type: ignore[misc]


def test_it_is_what_typing_makes() -> None:
    assert repr(Point(1)) == "Point(x=1, y=2)"
    assert hash(Point(1)) == hash((1, 2))
    assert Point._fields == ("x", "y")
    assert Point(1)._asdict() == {"x": 1, "y": 2}
    assert Point.__doc__ == "A record with a default and a method."
    assert copy.copy(Point(1)) == Point(1)
    match Point(1, 9):
        case Point(x, y):
            assert (x, y) == (1, 9)


def test_records_can_be_pickled() -> None:
    reading = Reading("a", "1")
    again = pickle.loads(pickle.dumps(reading))  # noqa: S301 - our own bytes
    assert again == reading
    assert type(again) is Reading


def test_two_records_do_not_share_a_constructor() -> None:
    assert Image("n", "r", "p").identity == "r/p"
    assert Point(1).total == 3
    assert type(Point(1)) is Point
