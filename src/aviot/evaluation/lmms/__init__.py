"""The plug-in for lmms-eval: `lmms-eval --model aviot`."""
