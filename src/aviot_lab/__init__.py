"""Research code beside AVIOT: the procedural world, the training of the bundled demo model, and `aviot reproduce`.

It uses public names of `aviot` only; `aviot` does not need it, except for the `reproduce` command.
"""
