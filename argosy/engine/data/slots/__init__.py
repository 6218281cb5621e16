"""Records of slots: the text of a data generator as arrays by name, for training with parameter servers.

file ─▶ pipe_command (a process) ─▶ lines of slots ─▶ Records ─▶ batches {name: array}
read.py                            parse.py          records.py  batches.py
"""

# SPDX-License-Identifier: Apache-2.0
