"""A parameter server: what it keeps, and what it does with each kind of message."""
