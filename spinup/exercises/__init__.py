"""Exercises: files that students work on, and checks that name mistakes."""
