"""The builder: from a command to files.

commands    the options and their help; `main` runs one and turns failures into words; `terminal` is what they share
scaffold    `init`: a new project
create      `create api` (`api`, `version`) and `create webhook` (`hook`, `spoke`)
names field edit template layout               what they need: checked names, fields, edits of Python, templates, ruff
manifests   `manifests`: config/ from the types, the controllers and pyproject.toml (`project`)
roles deployment variants                      its parts, as documents
breaking schemadiff baseline                   what a change of a CRD breaks, compared with a commit
change exchange stage                          a set of files, shown, refused or written as a whole; tried on a copy first
"""
