"""From a program for one process to programs for trainers and parameter servers; transpiler and fleet use it."""
