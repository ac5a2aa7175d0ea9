"""Small environments of this library: one file is one kind."""
