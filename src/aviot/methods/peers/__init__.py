"""Published methods of other authors, written from their specification and checked against their own arrays."""
