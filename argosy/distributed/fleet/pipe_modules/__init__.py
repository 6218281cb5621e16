"""A folder for PYTHONPATH: there `import paddle` gives Argosy, in the pipe commands of a script that says so too."""

# SPDX-License-Identifier: Apache-2.0
