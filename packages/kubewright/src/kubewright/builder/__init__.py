"""The builder: from a command to files.

commands    the options and their help; `main` runs one and turns failures into words
scaffold    `init`: a new project              api         `create api`: a new kind
names field edit template                      what both need: checked names, fields, edits of Python, templates
manifests   `manifests`: config/ from the types, the controllers and pyproject.toml (`project`)
roles deployment variants                      its parts, as documents
breaking schemadiff baseline                   what a change of a CRD breaks, compared with a commit
change stage                                   a set of files, shown, refused or written as a whole; tried on a copy first
"""
