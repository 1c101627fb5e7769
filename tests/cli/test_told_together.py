"""Log lines for a problem that affects many Applications, such as a registry that is down."""

from task.cli.update import told_together
from task.errors import Trouble
from task.model import Problem


def down(number: int) -> Problem:
    return Problem(
        Trouble("registry", "ghcr.io could not be reached", "run it again"),
        application=f"argocd/a{number}",
    )


OTHER = Problem(Trouble("target", "no such file", "correct the path"), application="argocd/b")


def test_up_to_five_applications_have_separate_lines_in_report_order() -> None:
    problems = [down(0), OTHER, *(down(number) for number in range(1, 5))]
    assert list(told_together(problems)) == [(one.application, one) for one in problems]


def test_more_than_five_applications_share_one_line() -> None:
    first, *rest = told_together([down(0), OTHER, *(down(number) for number in range(1, 200))])
    assert first == ("argocd/a0, argocd/a1, argocd/a2, argocd/a3, argocd/a4 and 195 more", down(0))
    assert rest == [("argocd/b", OTHER)]


def test_a_problem_without_an_application_is_logged_without_a_name() -> None:
    assert list(told_together([Problem(Trouble("untracked", "x"))])) == [
        ("", Problem(Trouble("untracked", "x")))
    ]
