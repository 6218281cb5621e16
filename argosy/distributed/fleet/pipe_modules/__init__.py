"""A folder for PYTHONPATH: makes `import paddle` load Argosy in the pipe commands of a script that does so itself."""

# SPDX-License-Identifier: Apache-2.0
