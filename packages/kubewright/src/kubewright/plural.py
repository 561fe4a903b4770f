"""The plurals of kinds, as kubebuilder forms them."""

from __future__ import annotations

# Endings and their plurals; the first match counts. From the library that kubebuilder uses
# (gobuffalo/flect), without its rare endings: `plural=` overrides them.
_PLURALS = """
index:indices vertex:vertices matrix:matrices criterion:criteria medium:media person:people
child:children human:humans man:men mouse:mice quiz:quizzes leaf:leaves shelf:shelves life:lives
half:halves radius:radii focus:foci data:data series:series information:information
equipment:equipment potato:potatoes tomato:tomatoes piano:pianos datum:data alias:aliases
sis:ses ss:sses us:uses s:s x:xes z:zes ch:ches sh:shes io:ios oo:oos to:tos o:oes
"""


def pluralize(kind: str) -> str:
    """The plural that kubebuilder would give: HostInfo -> hostinfoes, Policy -> policies."""
    word = kind.lower()
    for ending, _, plural in (pair.partition(":") for pair in _PLURALS.split()):
        if word.endswith(ending):
            return word.removesuffix(ending) + plural
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"
