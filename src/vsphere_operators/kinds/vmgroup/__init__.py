"""VmGroup: a number of equal virtual machines, cloned from a template."""

from .types import VmGroup as VmGroup
