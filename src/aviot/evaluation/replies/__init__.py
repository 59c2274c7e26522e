"""Reading a reply: which options it mentions, and what it says of them."""
