"""The arena: players, games between them, tournaments, and displays of the results."""
