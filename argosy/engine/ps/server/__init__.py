"""A parameter server: its state, and a handler for each kind of request."""
