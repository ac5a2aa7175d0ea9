"""Puts the process that imports it into its own process group.

The process from which a grid forks its runs imports it first. So a signal to the grid's group, such as Ctrl-C or the
SIGHUP of a closed terminal, does not end that process: without it the grid would not know whether its runs still train.
"""
import os

os.setpgid(0, 0)
