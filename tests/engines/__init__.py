"""Jobs on real engines: Slurm, MPI, ssh, Ray, TorchX; `make test-engines`."""

# SPDX-License-Identifier: Apache-2.0
