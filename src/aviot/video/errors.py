"""The one error of this layer."""


class VideoError(ValueError):
    """A video that cannot be read, or a wish that cannot be met; its message is a sentence for the user."""
