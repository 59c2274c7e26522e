"""What servers over HTTP share: who may ask, how much they may send, and how long they may take."""
