"""`image-update hold`."""

from task.cli.call import Call
from task.cli.command import command
from task.cli.update import update
from task.settings import WRITING, AliasOptions, HeldOptions, HoldOptions, SendOptions, Settings


@command(HeldOptions, AliasOptions, HoldOptions, *WRITING, SendOptions, required=["reason"])
def hold(settings: Settings, call: Call) -> int:
    """Keep images at their current version. Later builds are remembered, not written."""
    return update(settings, call.environ, call.log)
