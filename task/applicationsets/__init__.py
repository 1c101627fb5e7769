"""Turns an ApplicationSet into its Applications, as Argo CD does.

Import only this package, not its modules.
"""

from task.applicationsets.fill import Budget
from task.applicationsets.generators import NamedCluster
from task.applicationsets.go_yaml import load, load_all
from task.applicationsets.rendered_set import Rendered, may_name, render, template_of

__all__ = [
    "Budget",
    "NamedCluster",
    "Rendered",
    "load",
    "load_all",
    "may_name",
    "render",
    "template_of",
]
