"""The lmms-eval plug-in, registered as the model `aviot`."""
