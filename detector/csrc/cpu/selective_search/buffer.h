// Memory that a thread keeps for its next image. To get the same megabytes from the system again for each
// image would take a fifth of the search.
#pragma once

#include <bit>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace detector::selective_search {

class KeptBlocks {
 public:
  static KeptBlocks& of_thread() {
    thread_local KeptBlocks blocks;
    return blocks;
  }

  ~KeptBlocks() {
    for (const auto& [_, block] : blocks_) {
      ::operator delete(block);
    }
  }

  void* take(size_t bytes) {
    for (auto& entry : blocks_) {
      if (entry.first == bytes) {
        void* const block = entry.second;
        std::swap(entry, blocks_.back());
        blocks_.pop_back();
        kept_ -= bytes;
        return block;
      }
    }
    return ::operator new(bytes);
  }

  void give(void* block, size_t bytes) {
    if (kept_ + bytes > kMost) {
      ::operator delete(block);
    } else {
      blocks_.emplace_back(bytes, block);
      kept_ += bytes;
    }
  }

 private:
  static constexpr size_t kMost = 32 << 20;
  std::vector<std::pair<size_t, void*>> blocks_;
  size_t kept_ = 0;
};

template <typename T>
struct KeepingAllocator {
  using value_type = T;

  KeepingAllocator() = default;
  template <typename U>
  KeepingAllocator(const KeepingAllocator<U>&) {}

  T* allocate(size_t n) {
    return static_cast<T*>(is_large(n) ? KeptBlocks::of_thread().take(rounded(n))
                                       : ::operator new(n * sizeof(T)));
  }
  void deallocate(T* block, size_t n) {
    if (is_large(n)) {
      KeptBlocks::of_thread().give(block, rounded(n));
    } else {
      ::operator delete(block);
    }
  }
  bool operator==(const KeepingAllocator&) const { return true; }

 private:
  static bool is_large(size_t n) { return n * sizeof(T) >= 1 << 15; }
  // To a power of two, so that images of several sizes find each other's blocks. The system gives no memory
  // for what is not written.
  static size_t rounded(size_t n) { return std::bit_ceil(n * sizeof(T)); }
};

template <typename T>
using Buffer = std::vector<T, KeepingAllocator<T>>;

}  // namespace detector::selective_search
