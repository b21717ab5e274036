// Factors: which parts of which axes count the same, also where a reshape cuts axes or joins them.
#pragma once

#include <cstdint>
#include <vector>

namespace tensor {

/// The extent of an axis as a product of factors: of features that are heads times channels, two.
/// How an axis is cut shows when it is united with others.
class Factors {
 public:
  using Id = int;
  /// From the outermost to the innermost; none of an axis of extent 1.
  using List = std::vector<Id>;

  /// Of an axis that nothing is known of.
  List add(std::int64_t extent);
  /// Both count the same places in the same order, so their products are equal. What has no common
  /// factors is blocked.
  void unite(const List& a, const List& b);
  /// What depends on all of an axis cannot be cut: neither can its factors, known now or later.
  void block(const List& list);

  /// The same list by the factors that are known now.
  List resolved(const List& list) const;
  std::int64_t size(Id factor) const { return factors_[index(root(factor))].size; }
  std::int64_t size(const List& list) const;
  bool is_blocked(Id factor) const { return factors_[index(root(factor))].is_blocked; }

 private:
  struct Factor {
    std::int64_t size = 1;
    bool is_blocked = false;
    Id same_as = -1;  // one that counts the same
    List parts = {};  // it is their product, where it was cut
  };
  static std::size_t index(Id factor) { return static_cast<std::size_t>(factor); }
  Id root(Id factor) const;
  void cut(Id factor, std::int64_t outer);

  std::vector<Factor> factors_;
};

}  // namespace tensor
