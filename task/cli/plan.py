"""`image-update plan`."""

from task.cli.call import Call
from task.cli.command import command
from task.cli.update import update
from task.settings import (
    WRITING,
    CommentOptions,
    DeploymentOptions,
    EventOptions,
    NameOptions,
    OriginOptions,
    RequireOptions,
    RulesOptions,
    Settings,
    UndoOptions,
)


@command(
    EventOptions,
    OriginOptions,
    NameOptions,
    RulesOptions,
    RequireOptions,
    *WRITING,
    CommentOptions,
    DeploymentOptions,
    UndoOptions,
)
def plan(settings: Settings, call: Call) -> int:
    """Show what run would do, with the exact diff, and write nothing."""
    return update(settings, call.environ, call.log)
