"""Public data sets in their original file formats: `sources.py` lists them, one file parses each format."""

# SPDX-License-Identifier: Apache-2.0
