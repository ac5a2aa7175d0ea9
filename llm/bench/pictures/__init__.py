"""Pictures that are lessons: each trains what it shows, and writes PNG, SVG and its numbers as JSON."""
