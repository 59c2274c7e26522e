"""What can be wrong with training data."""


class DataError(ValueError):
    """Training data that cannot be used; the message names the place, what was expected there, and a way out."""


class RecordError(DataError):
    """One record that cannot be used."""
