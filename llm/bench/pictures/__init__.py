"""Pictures for the documentation: each runs its own training, then writes PNG, SVG and the numbers as JSON."""
