"""`image-update scan`."""

from task.cli.call import Call
from task.cli.command import command
from task.cli.update import update
from task.errors import UsageError
from task.settings import UPDATING, AgeOptions, SendOptions, Settings


@command(AgeOptions, *UPDATING, SendOptions)
def scan(settings: Settings, call: Call) -> int:
    """Ask the registries for the newest allowed tag of every tracked image, then go on as run does."""
    if settings.require.require_match:
        raise UsageError(
            "--require-match: scan is given no image to look for", hint="leave it out; it is for run and plan"
        )
    if settings.decide.registry_check == "never":
        raise UsageError(
            "--registry-check: scan cannot do without the registries", hint="write auto or always, or leave it out"
        )
    return update(settings, call.environ, call.log)
