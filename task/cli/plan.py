"""`image-update plan`."""

from task.cli.call import Call
from task.cli.command import command
from task.cli.update import update
from task.settings import BUILT, Settings


@command(*BUILT)
def plan(settings: Settings, call: Call) -> int:
    """Show what run would do, with the exact diff, and write nothing."""
    return update(settings, call.environ, call.log)
