"""An Application with three images whose changes wait on one head branch, and runs on an in-memory
repository.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from support.memory import NOW, SCOPE, URL, WORDING, Branch, Story
from support.runs import application, target
from task.annotations.application import Narrow
from task.deciding.job import Intent, Job, Terms
from task.editors.state_file import read_state
from task.image import parse_image
from task.model import Build, Hold, Report, State

HEAD = "bump"
NAMES = ("web", "api", "cron")
FIRST = "1.0.0"


def image(name: str) -> str:
    return f"ghcr.io/acme/{name}"


def kustomization(values: dict[str, str]) -> str:
    lines = "".join(f"- name: {image(name)}\n  newTag: {tag}\n" for name, tag in values.items())
    return f"resources: []\nimages:\n{lines}"


def values_in(files: dict[str, str], app: str = "a") -> dict[str, str]:
    """Return the tag of each image in a tree."""
    found = {}
    for part in files[target(app)].split("- name: ")[1:]:
        name, _, rest = part.partition("\n")
        found[name.strip().rpartition("/")[2]] = (
            rest.partition("newTag: ")[2].partition("\n")[0].strip("\"'")
        )
    return found


class Scene:
    """The Application, its repository, and consecutive runs."""

    def __init__(
        self,
        strategy: str = "semver",
        branch: str = f"main:{HEAD}",
        first: str = FIRST,
        made: Callable[[Mapping[str, str]], Branch] = Branch,
        **annotations: str,
    ) -> None:
        self.branch = made({target("a"): kustomization(dict.fromkeys(NAMES, first))})
        self.story, self.direct = (
            Story(
                application(
                    "a",
                    URL,
                    image_list=",".join(f"{name}={image(name)}" for name in NAMES),
                    update_strategy=strategy,
                    git_branch=one,
                    **annotations,
                ),
                self.branch,
            )
            for one in (branch, "main")
        )

    def event(
        self,
        *images: str,
        sequence: int | None = None,
        story: Story | None = None,
        downgrade: bool = False,
        atomic: bool = False,
        names: tuple[str, ...] = (),
    ) -> Report:
        """Send a build event with images such as `web:1.1.0`. `names` restricts the Applications
        that it applies to.
        """
        built = tuple(parse_image(image(one)) for one in images)
        terms = Terms(build=Build(sequence=sequence), now=NOW, allow_downgrade=downgrade)
        scope = replace(SCOPE, narrow=Narrow(names))
        return (story or self.story).run(Job("run", built, scope, terms, WORDING, atomic=atomic))

    def scan(self, *tags: str) -> Report:
        """Scan a registry that lists these tags for each image."""
        self.story.tags = tags
        return self.story.run(Job("scan", (), SCOPE, Terms(now=NOW), WORDING))

    def by_hand(self, verb: str, name: str = "", to: str = "", *, held: bool = True) -> Report:
        """Run a manual command for one image, or for the whole Application."""
        hold = Hold("a reason", "jane", NOW) if held and verb != "release" else None
        intent = Intent(verb, hold, whole=not name, to=to, unknown=True)
        aliases = (name,) if name else ()
        return self.story.run(
            Job(verb, (), SCOPE, Terms(now=NOW), WORDING, intent=intent, aliases=aliases)
        )

    def freeze(self, *, ends: bool = False) -> None:
        """Commit a config that freezes everything, or with `ends`, nothing."""
        frozen = 'freezes: [{schedule: "* * * * *", duration: 1h, reason: sale}]\n'
        self.branch.commit({".image-update/config": "version: 1\n" + ("" if ends else frozen)})

    @property
    def base(self) -> dict[str, str]:
        return values_in(self.branch.files)

    @property
    def held_on_base(self) -> tuple[bool, set[str]]:
        """Whether the base's state file contains a hold on the Application, and the names of the
        images with holds of their own.
        """
        text = self.branch.files.get(".image-update/apps/a/argocd_a.state", "")
        state = read_state(text).get(target("a"), State())
        return state.hold is not None, {name for name, one in state.images.items() if one.hold}

    @property
    def waiting(self) -> dict[str, str]:
        """The tags that the head branch changes relative to its own parent.

        The result is empty for a branch that a person kept after merging it, whatever is on the
        base now.
        """
        head = self.branch.heads.get(HEAD)
        if head is None or head.before is None or self.branch.merged("main", head.id):
            return {}
        before = values_in(head.before)
        return {name: tag for name, tag in values_in(head.files).items() if tag != before[name]}

    def write(self, name: str, tag: str) -> None:
        """Commit a value to the base, as a person would."""
        self.branch.commit({target("a"): kustomization({**self.base, name: tag})})


def verdicts(report: Report) -> list[str]:
    return [one.verdict for one in report.decisions]


def told(report: Report) -> Sequence[tuple[str, str, str]]:
    """Return what the report states about the builds that were already waiting."""
    return [(one.alias, one.tag, one.outcome) for one in report.waiting]
