"""An ApplicationSet → its Applications, as Argo CD makes them.

This is the door: nobody imports the rooms behind it.
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
