"""Runs linters on the manifests, the chart, the Dockerfiles and the workflows.

    python -m hack.lint_manifests

`schemas` writes the JSON schemas for kubeconform, `rendering` the manifests that users apply,
`tools` turns the output of each linter into findings. `allowed.yaml` lists the findings that are
accepted, each with its reason; an entry that matches no finding is an error.
"""
