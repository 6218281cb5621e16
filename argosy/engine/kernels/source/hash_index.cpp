// An open-addressing hash table from 64-bit ids to row slots, with batched operations on arrays of ids.
//
//   entries   | 17 → 2 | empty | 4 → 0 | 9 → 1 | empty | …      a power of two, at most 3/4 full, linear probing
//   slots     0 1 2 …                                          of erased ids are reused, last in first out
//
// Tables are larger than the caches: the cache lines of the next few ids are prefetched. Not thread-safe; the caller
// holds a lock.
// SPDX-License-Identifier: Apache-2.0
#include <new>
#include <vector>

#include "common.h"

namespace {

constexpr int64_t kEmpty = -1, kAhead = 16, kLeastEntries = 1024;

struct Entry {
  int64_t id, slot = kEmpty;
};

// The finaliser of splitmix64: distributes consecutive ids over the whole table.
inline uint64_t mixed(int64_t id) {
  uint64_t x = static_cast<uint64_t>(id);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct Index {
  std::vector<Entry> entries = std::vector<Entry>(kLeastEntries);
  std::vector<int64_t> free_slots;
  int64_t size = 0, high = 0;  // high: all slots that were ever allocated are below

  size_t home(int64_t id) const { return mixed(id) & (entries.size() - 1); }
  size_t next(size_t at) const { return (at + 1) & (entries.size() - 1); }
  void ask_for(int64_t id) const { __builtin_prefetch(&entries[home(id)]); }

  // The entry of the id, or the empty entry where it would be inserted.
  size_t place(int64_t id) const {
    size_t at = home(id);
    while (entries[at].slot != kEmpty && entries[at].id != id) at = next(at);
    return at;
  }

  // Reserves space for `more` ids; the only allocation, so that a failure leaves the table unchanged.
  void reserve(int64_t more) {
    size_t wanted = entries.size();
    while (static_cast<size_t>(size + more) * 4 > wanted * 3) wanted *= 2;
    if (wanted == entries.size()) return;
    std::vector<Entry> old(wanted);
    old.swap(entries);
    for (const Entry& entry : old)
      if (entry.slot != kEmpty) entries[place(entry.id)] = entry;
  }

  int64_t take_slot() {
    if (free_slots.empty()) return high++;
    const int64_t slot = free_slots.back();
    free_slots.pop_back();
    return slot;
  }

  // Backward-shift deletion: moves the following entries back, so that no probe ends too early.
  void erase_at(size_t hole) {
    for (size_t at = next(hole); entries[at].slot != kEmpty; at = next(at)) {
      const size_t away = (at - home(entries[at].id)) & (entries.size() - 1);
      const size_t back = (at - hole) & (entries.size() - 1);
      if (away < back) continue;
      entries[hole] = entries[at];
      hole = at;
    }
    entries[hole].slot = kEmpty;
  }
};

template <class Body>
void for_each_id(const Index& index, int64_t count, const int64_t* ids, const Body& body) {
  for (int64_t i = 0; i < std::min(kAhead, count); ++i) index.ask_for(ids[i]);
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) index.ask_for(ids[i + kAhead]);
    body(i);
  }
}

}  // namespace

// Null if out of memory.
ARGOSY_API void* argosy_index_new() {
  try {
    return new Index;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

ARGOSY_API void argosy_index_delete(Index* index) { delete index; }

ARGOSY_API int64_t argosy_index_size(const Index* index) { return index->size; }

ARGOSY_API int64_t argosy_index_high(const Index* index) { return index->high; }

ARGOSY_API int64_t argosy_index_bytes(const Index* index) {
  return index->entries.capacity() * sizeof(Entry) + index->free_slots.capacity() * sizeof(int64_t);
}

// slots[i]: that of ids[i], or -1.
ARGOSY_API void argosy_index_find(const int64_t* ids, int64_t* slots, const Index* index, int64_t count) {
  for_each_id(*index, count, ids, [=](int64_t i) { slots[i] = index->entries[index->place(ids[i])].slot; });
}

// As find, but unknown ids get a slot; fresh[0 … result-1] are their first positions. -1: out of memory.
ARGOSY_API int64_t argosy_index_insert(const int64_t* ids, int64_t* slots, int64_t* fresh, Index* index,
                                       int64_t count) {
  try {
    index->reserve(count);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  int64_t inserted = 0;
  for_each_id(*index, count, ids, [=, &inserted](int64_t i) {
    Entry& entry = index->entries[index->place(ids[i])];
    if (entry.slot == kEmpty) {
      entry = {ids[i], index->take_slot()};
      ++index->size;
      fresh[inserted++] = i;
    }
    slots[i] = entry.slot;
  });
  return inserted;
}

// The number of ids that were present; their slots are reused. -1: out of memory.
ARGOSY_API int64_t argosy_index_erase(const int64_t* ids, Index* index, int64_t count) {
  const int64_t before = index->size;
  try {
    index->free_slots.reserve(index->free_slots.size() + count);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  for_each_id(*index, count, ids, [=](int64_t i) {
    const size_t at = index->place(ids[i]);
    if (index->entries[at].slot == kEmpty) return;
    index->free_slots.push_back(index->entries[at].slot);
    index->erase_at(at);
    --index->size;
  });
  return before - index->size;
}
