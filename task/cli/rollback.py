"""`image-update rollback`."""

from task.cli.call import Call
from task.cli.command import command
from task.cli.update import update
from task.settings import WRITING, AliasOptions, HeldOptions, HoldOptions, RollbackOptions, SendOptions, Settings


@command(HeldOptions, AliasOptions, RollbackOptions, HoldOptions, *WRITING, SendOptions)
def rollback(settings: Settings, call: Call) -> int:
    """Go back to an older tag and hold the image there, in one commit."""
    return update(settings, call.environ, call.log)
