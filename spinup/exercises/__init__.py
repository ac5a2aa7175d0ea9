"""Exercises: what a student is given, and checks that name the mistake."""
