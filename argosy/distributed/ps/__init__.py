"""Split a single-process program into programs for trainers and parameter servers, for the transpiler and fleet."""
