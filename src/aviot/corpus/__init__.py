"""Questions over a whole corpus of videos, asked by several processes or machines."""
