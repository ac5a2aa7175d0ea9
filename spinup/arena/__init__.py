"""Players against each other: who they are, the games between them, the tournament, and how it is shown."""
