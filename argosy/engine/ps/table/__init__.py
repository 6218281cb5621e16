"""Sparse tables: rows of floats found by 64-bit ids, created on first touch, updated row by row, larger than memory.

spec       what a table is: size of a row, first values, optimizer, how much of it stays in memory
init       first values: a function of the id alone
rows       the optimizers, over rows that are gathered
index      id ─▶ slot
memory     slot ─▶ record [value | optimizer's slots | count], version, last use
spill      the records that memory has no room for: RocksDB
segments   snapshots: files of records that changed since the last one
text       Paddle's text format
merge      several trainers' gradients of rows into one
table      SparseTable: all of it behind one lock
"""

# SPDX-License-Identifier: Apache-2.0
