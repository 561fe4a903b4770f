"""The plurals of kinds, as kubebuilder forms them.

A plural is part of every URL of a kind, so a project that moves here must get the plural that it
has. kubebuilder uses gobuffalo/flect. The rules here give its results, except where those are
spelling mistakes: `octupuses`, or `penbulae` for Pendula.
"""

from __future__ import annotations

import re
from functools import cache

# Only as the last word of a kind: an alias is not a box, and Linux does not end in an ox.
_EXACT_NOUNS = "ox:oxen louse:lice die:dice axis:axes alias:aliases"

# Abbreviations that are also recognized in lower case, because another rule would apply to them.
_ABBREVIATIONS = ("aes", "cmos", "dns", "eia", "https", "ids", "ips", "mpls", "ssh", "tia")

# Endings and their plurals. The first match counts, and an ending that is plural already stays: so
# Lambda, Area and Price keep their form (da, ea and rice), and agenda, quota and formula are listed
# because they do not. The plurals of wildox and superbox are those in flect's own tests.
_ENDINGS = """
aircraft:aircraft beef:beef bison:bison deer:deer equipment:equipment fish:fish graffiti:graffiti
information:information money:money moose:moose police:police rice:rice salmon:salmon sheep:sheep
shrimp:shrimp swine:swine trout:trout tuna:tuna you:you

human:humans woman:women man:men child:children person:people foot:feet tooth:teeth goose:geese
mouse:mice thief:thieves dwarf:dwarfs wildox:wildoxen superbox:superboxen

adieu:adieux bureau:bureaus fabliau:fabliaux buffalo:buffaloes potato:potatoes tomato:tomatoes
topaz:topazes

criterion:criteria ganglion:ganglia lexicon:lexica mitochondrion:mitochondria noumenon:noumena
phenomenon:phenomena taxon:taxa

media:media medium:media curriculum:curriculums pretorium:pretoriums stadium:stadiums
agenda:agendas formula:formulas quota:quotas vedalia:vedalias

alumnus:alumni bacillus:bacilli cactus:cacti coccus:cocci corpus:corpora focus:foci genus:genera
locus:loci nucleus:nuclei radius:radii syllabus:syllabi

alumna:alumnae differentia:differentiae larva:larvae minutia:minutiae postcava:postcavae
praecava:praecavae uva:uvae vertebra:vertebrae vita:vitae

apex:apices appendix:appendices codex:codices helix:helices index:indices latex:latices
radix:radices vertex:vertices vortex:vortices

basis:bases crisis:crises ellipsis:ellipses genesis:geneses oasis:oases testis:testes thesis:theses

tive:tives eaf:eaves oaf:oaves afe:aves rf:rves lf:lves fe:ves
ay:ays ey:eys oy:oys quy:quies uy:uys y:ies
eau:eaux bula:bulae hedron:hedra
ium:ia seum:seums eum:ea oum:oa stracum:straca dum:da elum:ela ilum:ila olum:ola ulum:ula llum:lla
ylum:yla imum:ima ernum:erna gnum:gna brum:bra crum:cra terum:tera serum:sera trum:tra antum:anta
atum:ata entum:enta etum:eta itum:ita otum:ota utum:uta ctum:cta ovum:ova
trix:trices iasis:iases mesis:meses kinesis:kineses resis:reses gnosis:gnoses opsis:opses ysis:yses
us:uses ch:ches io:ios sh:shes ss:sses ez:ezzes iz:izzes tz:tzes zz:zzes
ano:anos lo:los to:tos oo:oos o:oes x:xes
"""


@cache
def _parse_pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((pair.partition(":")[0], pair.partition(":")[2]) for pair in text.split())


def pluralize(kind: str) -> str:
    """The plural that kubebuilder would give: HostInfo -> hostinfoes, Policy -> policies."""
    word = kind.lower()
    match = re.search(r"[A-Z]?[^A-Z_ ]+$|[A-Z]+$", kind)
    last_word = match[0].lower() if match else word
    for singular, plural in _parse_pairs(_EXACT_NOUNS):
        if last_word == singular:
            return word.removesuffix(singular) + plural
    if last_word in _ABBREVIATIONS or re.search(r"[A-Z]$", kind):
        return f"{word}es" if word.endswith("s") else f"{word}s"
    for singular, plural in _parse_pairs(_ENDINGS):
        if word.endswith(plural):
            return word
        if word.endswith(singular):
            return word.removesuffix(singular) + plural
    return word if word.endswith("s") else f"{word}s"
