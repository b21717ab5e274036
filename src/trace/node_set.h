// NodeSet: some of the operators of a graph, by their place in an order, as bits.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace tensor {

class NodeSet {
 public:
  explicit NodeSet(int count = 0) : words_((static_cast<std::size_t>(count) + 63) / 64, 0) {}

  bool has(int i) const { return words_[word(i)] >> (i % 64) & 1; }
  void add(int i) { words_[word(i)] |= std::uint64_t{1} << (i % 64); }
  void add(const NodeSet& other) {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
  }
  void remove(const NodeSet& other) {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] &= ~other.words_[w];
  }
  friend NodeSet operator&(NodeSet a, const NodeSet& b) {
    for (std::size_t w = 0; w < a.words_.size(); ++w) a.words_[w] &= b.words_[w];
    return a;
  }
  bool contains(const NodeSet& other) const {
    for (std::size_t w = 0; w < words_.size(); ++w)
      if (other.words_[w] & ~words_[w]) return false;
    return true;
  }
  int size() const {
    int result = 0;
    for (const auto w : words_) result += __builtin_popcountll(w);
    return result;
  }
  /// The last member, -1 when there is none.
  int last() const {
    for (std::size_t w = words_.size(); w-- > 0;)
      if (words_[w] != 0) return static_cast<int>(w) * 64 + 63 - __builtin_clzll(words_[w]);
    return -1;
  }
  std::vector<int> members() const {
    std::vector<int> result;
    for (std::size_t w = 0; w < words_.size(); ++w)
      for (std::uint64_t rest = words_[w]; rest != 0; rest &= rest - 1)
        result.push_back(static_cast<int>(w) * 64 + __builtin_ctzll(rest));
    return result;
  }
  friend bool operator==(const NodeSet&, const NodeSet&) = default;

  struct Hash {
    std::size_t operator()(const NodeSet& set) const {
      std::uint64_t h = 1469598103934665603ull;
      for (const auto w : set.words_) h = (h ^ w) * 1099511628211ull, h ^= h >> 29;
      return h;
    }
  };

 private:
  static std::size_t word(int i) { return static_cast<std::size_t>(i) / 64; }
  std::vector<std::uint64_t> words_;
};

}  // namespace tensor
