"""The builder: the `kubewright` command, which creates projects and generates their files.

cli, cli_*          the subcommands; `terminal` has their shared options and questions
scaffold            `init` and `create`: new files from templates, and edits of existing ones;
                    `removal` undoes them for `delete`
overlays            which overlay `deploy` renders; `records` has what it applied, `deletions` what
                    `undeploy` and `uninstall` do; `installations`, `namespaces` and
                    `cluster` read what is in the cluster
manifests           `manifests`, `helm` and `build-installer`: documents from what code declares
compat              what a change of a CRD breaks for users, compared with a commit
api_docs            `docs`: an API reference in Markdown
project, names      [tool.kubewright] of pyproject.toml; which names are valid
changeset           the files that a command changes: shown, checked and written
complete            adds config/ to a change set and formats it, before anything is written
program, git        run other programs, with a timeout
"""
