"""The laboratory beside AVIOT: the procedural world, the training of the bundled demo model, and `aviot reproduce`.

It uses the public names of `aviot`; `aviot` never imports it, except for the `reproduce` command, which asks for it.
"""
