"""Second stages inside the decoder, of methods whose first stage acts on projected tokens."""
