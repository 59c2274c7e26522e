"""The common part of servers over HTTP: who may ask, how much they may send, and how long they may take."""
