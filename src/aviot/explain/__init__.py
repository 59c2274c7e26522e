"""The provenance explorer: the frames and patches behind an answer, as a page, as figures and as data."""
