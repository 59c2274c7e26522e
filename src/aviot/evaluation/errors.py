"""Errors about items."""


class ItemError(ValueError):
    """A record that cannot be used as an item; the message says why and what to change."""
