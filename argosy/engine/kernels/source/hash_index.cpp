// Rows by id: an open-addressing hash table from 64-bit ids to slots, for whole arrays of ids at a time.
//
//   entries   | 17 → 2 | empty | 4 → 0 | 9 → 1 | empty | …      a power of two, at most 3/4 full, linear probing
//   slots     0 1 2 …                                          of erased ids are given out again, the last one first
//
// Tables are larger than the caches: a few ids ahead of the one that is looked up, the line of memory where it should
// be is asked for. One thread at a time; the caller holds a lock.
// SPDX-License-Identifier: Apache-2.0
#include <new>
#include <vector>

#include "common.h"

namespace {

constexpr int64_t kEmpty = -1, kAhead = 16, kLeastEntries = 1024;

struct Entry {
  int64_t id, slot = kEmpty;
};

// The finaliser of splitmix64: ids that follow each other are spread over the whole table.
inline uint64_t mixed(int64_t id) {
  uint64_t x = static_cast<uint64_t>(id);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct Index {
  std::vector<Entry> entries = std::vector<Entry>(kLeastEntries);
  std::vector<int64_t> free_slots;
  int64_t size = 0, high = 0;  // high: all slots that were ever given out are below

  size_t home(int64_t id) const { return mixed(id) & (entries.size() - 1); }
  size_t next(size_t at) const { return (at + 1) & (entries.size() - 1); }
  void ask_for(int64_t id) const { __builtin_prefetch(&entries[home(id)]); }

  // Where the id is, or the empty entry where it would be.
  size_t place(int64_t id) const {
    size_t at = home(id);
    while (entries[at].slot != kEmpty && entries[at].id != id) at = next(at);
    return at;
  }

  // Room for `more` ids: memory is found here, and nowhere else, so that a failure leaves all as it was.
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

  // Moves what follows back over the hole, so that no probe ends too early.
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

// Null if there is no memory.
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
ARGOSY_API void argosy_index_find(const Index* index, int64_t count, const int64_t* ids, int64_t* slots) {
  for_each_id(*index, count, ids, [=](int64_t i) { slots[i] = index->entries[index->place(ids[i])].slot; });
}

// As find, but unknown ids get a slot; fresh[0 … result-1] are the positions at which they first stand. -1: no memory.
ARGOSY_API int64_t argosy_index_insert(Index* index, int64_t count, const int64_t* ids, int64_t* slots,
                                       int64_t* fresh) {
  try {
    index->reserve(count);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  int64_t found = 0;
  for_each_id(*index, count, ids, [=, &found](int64_t i) {
    Entry& entry = index->entries[index->place(ids[i])];
    if (entry.slot == kEmpty) {
      entry = {ids[i], index->take_slot()};
      ++index->size;
      fresh[found++] = i;
    }
    slots[i] = entry.slot;
  });
  return found;
}

// The number of ids that were there; their slots are given out again. -1: no memory.
ARGOSY_API int64_t argosy_index_erase(Index* index, int64_t count, const int64_t* ids) {
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
