"""AVIOT without trained parts: a method on single tokens by the transport of each frame's tokens onto the kept ones."""
