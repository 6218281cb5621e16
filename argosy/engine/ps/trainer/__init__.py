"""A trainer's side of a job with parameter servers."""
