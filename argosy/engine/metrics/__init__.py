"""Measurements of a running job: records that processes write to the job directory, and their readers; no torch."""
