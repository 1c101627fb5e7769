"""The second law of `check`, tested with random histories of changes by people and bots.

(b) In a repository that merges only passing changes, nothing violates the base's holds, freezes, or
proofs, or a constraint in the change's annotations, unless the check reported it.

Trees are generated from a model, and an oracle compares two models without using the check's code.
`LAW_CHANGES=10000` tries that many changes. A failure shows its seed.
"""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from support.judging import Judge, told, warnings
from support.memory import URL
from support.runs import KUSTOMIZATION, application

from task.model import Answer, Question, Report, Verdict
from task.proof import Proof

CHANGES = int(os.environ.get("LAW_CHANGES", "200"))
SIGNED, UNSIGNED, MISSING = (f"sha256:{letter * 64}" for letter in "abc")
TAGS = ("1.0.0", "1.1.0", "1.2.0", "2.0.0", "latest")
CONSTRAINTS = ("", ":~1.0", ":~1.1", ":^2")
FITS = {
    "": lambda tag: tag != "latest",
    ":~1.0": lambda tag: tag.startswith("1.0."),
    ":~1.1": lambda tag: tag.startswith("1.1."),
    ":^2": lambda tag: tag.startswith("2."),
}
SHAPES = ("{}", "# words\n{}", "{}# more\n")


@dataclass(frozen=True)
class App:
    """An Application: the folder that contains its values, and the contents of its state file."""

    folder: str
    constraint: str = ""
    hold: str = ""  # on all images of the Application
    own: str = ""  # on one image
    back: tuple[str, str] | None = None  # a rollback: to, from


@dataclass(frozen=True)
class Model:
    """The model of a tree."""

    apps: Mapping[str, App]
    values: Mapping[str, tuple[str, str]] = field(
        default_factory=dict
    )  # tags and digests by folder
    shape: int = 0
    frozen: bool = False
    demands: bool = False
    pins: bool = False

    def files(self) -> dict[str, str]:
        """Return the files that the model describes."""
        found = {"ci.pub": "key\n", ".image-update/config": self._config()}
        for folder, (tag, digest) in self.values.items():
            text = KUSTOMIZATION.replace("1.0.0", tag)
            text += f"  digest: {digest}\n" if digest else ""
            found[f"{folder}/kustomization.yaml"] = SHAPES[self.shape].format(text)
        for name, app in self.apps.items():
            item = application(name, URL, image_list=f"web=ghcr.io/acme/web{app.constraint}")
            item["spec"]["source"]["path"] = app.folder
            found[f"clusters/{name}.json"] = json.dumps(item)
            if app.hold or app.own or app.back:
                found[f".image-update/{app.folder}/argocd_{name}.state"] = _state(app)
        return found

    def _config(self) -> str:
        text = "version: 1\n"
        text += "pinDigest: true\n" if self.pins else ""
        text += "signatures: {keys: [ci.pub]}\n" if self.demands else ""
        freeze = 'freezes: [{schedule: "* * * * *", duration: 1h, reason: sale}]\n'
        return text + (freeze if self.frozen else "")


def _state(app: App) -> str:
    lines = ["files:", f"  {app.folder}/kustomization.yaml:"]
    lines += [f"    hold: {{reason: {app.hold}}}"] if app.hold else []
    lines += ["    images:", "      web:"] if app.own or app.back else []
    lines += [f"        hold: {{reason: {app.own}}}"] if app.own else []
    if app.back:
        to, was = app.back
        lines.append(f'        rollback: {{tag: "{to}", was: "{was}"}}')
    return "\n".join(lines) + "\n"


class Person:
    """Makes random changes to a model, small or large."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - a history is no secret
        self.made = 0

    def change(self, model: Model) -> Model:
        for _ in range(self.random.choice((1, 1, 2, 3))):
            step = self.random.choice(
                (self.value, self.value, self.value, self.hold, self.annotation, self.place,
                 self.leave, self.name, self.config, self.back, self.shape)
            )  # fmt: skip
            model = step(model)
        return model

    def value(self, model: Model) -> Model:
        folder = self.random.choice(sorted(model.values))
        digest = self.random.choice(("", "", SIGNED, SIGNED, UNSIGNED, MISSING))
        return replace(model, values={**model.values, folder: (self.random.choice(TAGS), digest)})

    def hold(self, model: Model) -> Model:
        reason = self.random.choice(("", "INC-1", "INC-2"))
        if self.random.random() < 0.5:
            return self._app(model, hold=reason)
        return self._app(model, own=reason)

    def annotation(self, model: Model) -> Model:
        return self._app(model, constraint=self.random.choice(CONSTRAINTS))

    def back(self, model: Model) -> Model:
        name = self.random.choice(sorted(model.apps))
        was = "@".join(filter(None, model.values[model.apps[name].folder]))
        return self._app(model, name, back=(self.random.choice(TAGS), was))

    def place(self, model: Model) -> Model:
        """Return the model after moving an Application's folder."""
        self.made += 1
        name = self.random.choice(sorted(model.apps))
        old, new = model.apps[name].folder, f"apps/new-{self.made}"
        values = {(new if one == old else one): value for one, value in model.values.items()}
        apps = {
            key: replace(app, folder=new) if app.folder == old else app
            for key, app in model.apps.items()
        }
        return replace(model, apps=apps, values=values)

    def leave(self, model: Model) -> Model:
        """Move an Application to a copy of its folder, and change the value in the old folder."""
        self.made += 1
        name = self.random.choice(sorted(model.apps))
        old, new = model.apps[name].folder, f"apps/copy-{self.made}"
        values = {
            **model.values,
            new: model.values[old],
            old: (self.random.choice(TAGS), self.random.choice(("", SIGNED, MISSING))),
        }
        return replace(self._app(model, name, folder=new), values=values)

    def name(self, model: Model) -> Model:
        """Rename an Application, with or without renaming its memory."""
        self.made += 1
        name = self.random.choice(sorted(model.apps))
        app = model.apps[name]
        if self.random.random() < 0.5:
            app = App(app.folder, app.constraint)
        rest = {key: one for key, one in model.apps.items() if key != name}
        return replace(model, apps={**rest, f"app-{self.made}": app})

    def config(self, model: Model) -> Model:
        key = self.random.choice(("frozen", "demands", "pins"))
        if key == "frozen":
            return replace(model, frozen=not model.frozen)
        if key == "demands":
            return replace(model, demands=not model.demands)
        return replace(model, pins=not model.pins)

    def shape(self, model: Model) -> Model:
        return replace(model, shape=self.random.randrange(len(SHAPES)))

    def _app(self, model: Model, name: str = "", **changes: object) -> Model:
        name = name or self.random.choice(sorted(model.apps))
        app = replace(model.apps[name], **changes)  # type: ignore[arg-type]
        return replace(model, apps={**model.apps, name: app})


def broken(old: Model, new: Model, report: Report) -> list[str]:
    """Return the unreported violations in a merged change, as judged from the models alone."""
    words = warnings(report)
    found = []
    for name, app in new.apps.items():
        before = old.apps.get(name)
        if before and before.folder != app.folder:
            found += _broken_behind(old, new, name, words)
        was = old.values.get(before.folder if before else app.folder)
        now = new.values[app.folder]
        if was == now:
            continue
        back = app.back is not None and f"rolls web in argocd/{name} back" in words
        found += _broken_rules(old, name, app, now, back=back, words=words)
        if before and not back:
            found += _broken_holds(name, before, app, words)
    for name, app in old.apps.items():
        now_there = new.values.get(app.folder)
        if name in new.apps or now_there == old.values[app.folder]:
            continue
        if now_there is None and "web is not checked" not in words:
            found.append(f"{name} is removed without a word")
        if now_there is not None:
            found += _broken_holds(name, app, App(app.folder), words)
    return found


def _broken_behind(old: Model, new: Model, name: str, words: str) -> list[str]:
    """Return violations of the base's rules in the old folder of a moved Application."""
    before = old.apps[name]
    left = new.values.get(before.folder)
    if left in (None, old.values[before.folder], new.values[new.apps[name].folder]):
        return []
    rules = _broken_rules(old, name, before, left, back=False, words=words)
    return rules + _broken_holds(name, before, App(before.folder), words)


def _broken_rules(
    old: Model, name: str, app: App, now: tuple[str, str], *, back: bool, words: str
) -> list[str]:
    tag, digest = now
    found = []
    if old.frozen and not (back and (app.hold or app.own)):
        found.append(f"the freeze, by {name}")
    if old.demands and digest != SIGNED and not (back and "not proved" in words):
        found.append(f"the proof of {name}: {now}")
    if old.pins and not digest and not back:
        found.append(f"the digest of {name}: {now}")
    if digest == MISSING and not back:
        found.append(f"a digest that does not exist: {name}")
    if not FITS[app.constraint](tag) and not back:
        found.append(f"the constraint {app.constraint} of {name}: {tag}")
    return found


def _broken_holds(name: str, before: App, after: App, words: str) -> list[str]:
    found = []
    for hold, left in ((before.hold, after.hold), (before.own, after.own)):
        if not hold:
            continue
        ended = f"ends the hold {hold} on" in words and not left
        if not ended:
            found.append(f"the hold {hold} of {name}")
    return found


def _proofs(questions: Collection[Question]) -> Mapping[Question, Proof | Verdict]:
    no = Verdict("refuse", "signature", "there is no signature")
    return {
        one: Proof("signature", "ci") if one.image.digest == SIGNED else no for one in questions
    }


@pytest.mark.slow
def test_a_change_that_passes_breaks_no_rule_without_a_warning() -> None:
    tried = seed = merged = 0
    while tried < CHANGES:
        person = Person(seed)
        values = {"apps/a": ("1.0.0", ""), "apps/b": ("1.0.0", "")}
        model = Model({"a": App("apps/a"), "b": App("apps/b", ":~1.0")}, values)
        past: list[Mapping[str, str]] = []
        for step in range(20):
            new = person.change(model)
            answers = {MISSING: Answer(exists=False)}
            judge = Judge(
                answers=answers,
                answer=Answer(digest=UNSIGNED),
                prove=_proofs,
                past=tuple(past),
            )
            report = judge.report(model.files(), new.files())
            tried += 1
            if report.exit == 0:
                history = f"seed {seed}, step {step}\n{model}\n{new}\n{told(report)}"
                assert broken(model, new, report) == [], f"{history}\n{warnings(report)}"
                merged += 1
                past.append(model.files())
                model = new
        seed += 1
    assert merged > tried / 10
