"""The provenance explorer: what a model looked at, as a page, as figures and as data. Sits on top of `models`."""
