"""The app: the server with a page on which people drop videos, ask about them, and see where answers came from."""
