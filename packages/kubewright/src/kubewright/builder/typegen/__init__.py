"""Generates classes from OpenAPI schemas: those of Kubernetes, and those of CRDs.

    OpenAPI documents -> builtin_modules \
                                          -> model -> render -> Python source
    CRDs              -> crd_modules     /

Both use `annotation`, which turns one schema into one annotation, and `names`. `source` and
`docstrings` print Python in the format of ruff.
"""
