"""Sparse tables: rows of floats by 64-bit ids, created on first access, updated row by row, larger than memory.

spec             a table's specification: row size, initializer, optimizer, rows in memory; initial values
row_optimizers   the optimizers, over gathered rows
storage          id ─▶ slot ─▶ record [value | optimizer's slots | count], version, last use; evicts to disk
spill            the records that do not fit into memory: RocksDB
persistence      files: segments of snapshots, Paddle's text format
table            SparseTable: all of it behind one lock; merge_rows: sums gradients of rows
"""

# SPDX-License-Identifier: Apache-2.0
