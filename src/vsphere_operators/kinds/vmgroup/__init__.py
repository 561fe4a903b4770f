"""VmGroup: a number of equal virtual machines, cloned from a template."""

from .reasons import Reason as Reason
from .types import VmGroup as VmGroup
