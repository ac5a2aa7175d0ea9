"""Exercises: the students' files, and checks that name mistakes."""
