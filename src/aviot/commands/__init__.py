"""Commands whose options fill a file of their own."""
