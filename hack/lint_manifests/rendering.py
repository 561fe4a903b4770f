"""The manifests that users apply: config/default alone and with each component, the chart, the
samples and the optional roles.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import yaml

_ROOT = Path(__file__).parents[2]
BIN = _ROOT / ".testenv/bin"
CHART = _ROOT / "charts/vsphere-operators"
# Everything that the chart can add, so that the linters see all templates.
_FULL_VALUES = Path(__file__).with_name("full-values.yaml")
# By component: the components that it needs.
_REQUIRED_COMPONENTS = {"cert-manager": ["webhooks"]}
_NAMESPACE = "vsphere-operators-system"


def render_all(folder: Path) -> list[Path]:
    """Writes a file for each way to install, for each sample and for each optional role."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = [_write(folder, "default", _kustomize(_ROOT / "config/default"))]
    for component in sorted(path.name for path in (_ROOT / "config/components").iterdir()):
        overlay = _write_overlay(folder / "overlays" / component, component)
        files.append(_write(folder, f"component-{component}", _kustomize(overlay)))
    files.append(_write(folder, "chart", _render_chart()))
    files.append(_write(folder, "chart-full", _render_chart("--values", _FULL_VALUES)))
    examples = [*_ROOT.glob("config/samples/*.yaml"), *_ROOT.glob("config/optional/*.yaml")]
    return files + [
        _write(folder, f"{path.parent.name}-{path.stem}", path.read_text())
        for path in sorted(examples)
    ]


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def _write_overlay(overlay: Path, component: str) -> Path:
    overlay.mkdir(parents=True)
    components = [*_REQUIRED_COMPONENTS.get(component, ()), component]
    # kustomize accepts no absolute paths.
    config = os.path.relpath(_ROOT / "config", overlay)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{config}/default"],
        "components": [f"{config}/components/{name}" for name in components],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return overlay


def _kustomize(folder: Path) -> str:
    return _run(BIN / "kubectl", "kustomize", folder)


def _render_chart(*arguments: str | Path) -> str:
    image = "image.repository=controller,image.tag=latest"
    command = (BIN / "helm", "template", "vsphere-operators", CHART, "--namespace", _NAMESPACE)
    return _run(*command, "--set", image, *arguments)


def _run(*command: str | Path) -> str:
    process = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{process.stderr}")
    return process.stdout
