"""The program: an fx graph that is recorded, verified, printed, saved and differentiated."""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.engine import version

version.check_torch(torch.__version__)
