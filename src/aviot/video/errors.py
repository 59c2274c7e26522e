"""The one error of this layer, and the words of others'."""


class VideoError(ValueError):
    """A video that cannot be read, or a wish that cannot be met; its message is a sentence for the user."""


class VideoTooLarge(VideoError):
    """A video whose decoder asks for more memory than there is."""


def reason(error: BaseException) -> str:
    """What went wrong, in the few words that the error has for it."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
