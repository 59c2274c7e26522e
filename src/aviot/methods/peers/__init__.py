"""Published methods for video tokens, one module each, and the pieces that several of them share."""
