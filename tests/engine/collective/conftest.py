"""The ranks of these tests."""

# SPDX-License-Identifier: Apache-2.0
from tests.ranks import ranks

__all__ = ["ranks"]
