"""Divides the CPU profile of an API server among the parts of a status write.

    python -m bench.cpu_profile FILE

Each sample counts for the first part that has all of its functions in the stack, in this order.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

Part = tuple[str, tuple[str, ...]]
_PATCH = "applyPatchToCurrentObject"
_STORE = "etcd3.(*store).GuaranteedUpdate"
PARTS: Sequence[Part] = (
    ("garbage collector", ("runtime.gcBgMarkWorker",)),
    ("garbage collector", ("runtime.bgsweep",)),
    ("garbage collector", ("runtime.bgscavenge",)),
    ("garbage collector", ("runtime.gcAssistAlloc",)),
    ("garbage collector", ("runtime.GC",)),
    ("request: encode the stored object for the patch", (_PATCH, "runtime.Encode")),
    ("request: decode the patch strictly", ("applyJSPatch", "UnmarshalStrict")),
    ("request: merge the patch", ("applyJSPatch",)),
    ("request: decode the result of the patch", (_PATCH, "runtime.DecodeInto")),
    ("request: decode the object of a PUT", ("handlers.UpdateResource", ").Decode")),
    ("managedFields: compare the objects", ("FieldManager).Update", "TypedValue.Compare")),
    ("managedFields: objects to typed values", ("FieldManager).Update", "ObjectToTyped")),
    ("managedFields: copies of the objects", ("FieldManager).Update", "ConvertToVersion")),
    ("managedFields: read and write the list", ("FieldManager).Update", "GetManagedFields")),
    ("managedFields: read and write the list", ("FieldManager).Update", "DecodeManagedFields")),
    ("managedFields: read and write the list", ("FieldManager).Update", "ObjectManagedFields")),
    ("managedFields: other of the update", ("FieldManager).Update",)),
    (
        "managedFields: checks after admission and of times",
        ("managedFieldsValidatingAdmissionController",),
    ),
    (
        "managedFields: checks after admission and of times",
        ("IgnoreManagedFieldsTimestampsTransformer",),
    ),
    ("validation: schema", ("ValidateStatusUpdate", "ValidateCustomResourceUpdate")),
    ("validation: metadata", ("ValidateStatusUpdate",)),
    ("validation: unique items of lists", ("ValidateListSetsAndMaps",)),
    ("validation: other", ("statusStrategy.ValidateUpdate",)),
    ("copy the stored object, keep its spec", ("statusStrategy.PrepareForUpdate",)),
    ("other checks before the update", ("rest.BeforeUpdate",)),
    ("admission and its copies", (_STORE, "updateState")),
    ("storage: encode the cached object", (_STORE, "getStateFromObject")),
    ("storage: encode the new object", (_STORE, "runtime.Encode")),
    ("storage: decode the new object", (_STORE, "Decoder).Decode")),
    ("etcd client", (_STORE, "OptimisticPut")),
    ("etcd client", ("google.golang.org/grpc",)),
    ("storage: other", (".GuaranteedUpdate",)),
    ("watch: decode the event of etcd", ("etcd3.(*watchChan)",)),
    ("watch: cache and dispatch", ("cacher.(*Cacher)",)),
    ("watch: cache and dispatch", ("cacher.(*cacheWatcher)",)),
    ("watch: cache and dispatch", ("cache.(*Reflector)",)),
    ("watch: encode and send the event", ("handlers.(*WatchServer)",)),
    ("watch: cache and dispatch", ("go.etcd.io/etcd/client/v3.(*watch",)),
    ("response: encode and send", ("transformResponseObject",)),
    ("authentication", ("withAuthentication", "authenticat")),
    ("authorization", ("withAuthorization", "uthorize")),
    ("HTTP: handlers and filters", ("k8s.io/",)),
    ("HTTP: connections and TLS", ("net/http",)),
    ("Go scheduler", ("runtime.",)),
    ("other", ()),
)


def read_stacks(file: Path) -> Iterator[tuple[float, list[str]]]:
    """Milliseconds and the functions of each sample, the innermost first."""
    go = shutil.which("go")
    if go is None:
        raise SystemExit("reading a profile needs `go` on the PATH")
    command = [go, "tool", "pprof", "-traces", "-unit=ms", str(file)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for block in text.split("-----------+")[1:]:
        lines = [line.strip() for line in block.splitlines()[1:] if line.strip()]
        if not lines:
            continue
        value, _, innermost = lines[0].partition(" ")
        yield float(value.removesuffix("ms")), [innermost.strip(), *lines[1:]]


def attribute(stacks: Iterator[tuple[float, list[str]]], parts: Sequence[Part]) -> dict[str, float]:
    """Milliseconds by part."""
    totals: dict[str, float] = dict.fromkeys((name for name, _ in parts), 0.0)
    for milliseconds, functions in stacks:
        joined = "\n".join(reversed(functions))
        totals[next(name for name, needles in parts if _contains(joined, needles))] += milliseconds
    return totals


def _contains(stack: str, needles: Sequence[str]) -> bool:
    """Whether the functions are in the stack in this order, the outermost first."""
    position = 0
    for needle in needles:
        position = stack.find(needle, position) + 1
        if not position:
            return False
    return True


def print_attribution(file: Path) -> None:
    totals = attribute(read_stacks(file), PARTS)
    whole = sum(totals.values())
    print("| part | share |")
    print("|---|---|")
    for name, milliseconds in sorted(totals.items(), key=lambda item: -item[1]):
        print(f"| {name} | {100 * milliseconds / whole:.1f} % |")


if __name__ == "__main__":
    print_attribution(Path(sys.argv[1]))
