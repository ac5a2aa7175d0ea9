"""Exercises: the files that students get, and the checks that name a mistake."""
