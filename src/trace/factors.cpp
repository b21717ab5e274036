#include "src/trace/factors.h"

#include <algorithm>

namespace tensor {
namespace {

// The factors of a list one by one, also those that are cut meanwhile.
class FactorWalk {
 public:
  FactorWalk(const Factors& factors, const Factors::List& list)
      : factors_(factors), left_(list.rbegin(), list.rend()) {}

  bool is_done() const { return left_.empty(); }
  Factors::Id first() {
    const Factors::List parts = factors_.resolved({left_.back()});
    left_.pop_back();
    left_.insert(left_.end(), parts.rbegin(), parts.rend());
    return left_.back();
  }
  void pass() { left_.pop_back(); }

 private:
  const Factors& factors_;
  Factors::List left_;  // the first last
};

}  // namespace

Factors::List Factors::add(std::int64_t extent) {
  if (extent <= 1) return {};
  factors_.push_back({extent});
  return {static_cast<Id>(factors_.size()) - 1};
}

Factors::Id Factors::root(Id factor) const {
  while (factors_[index(factor)].same_as >= 0) factor = factors_[index(factor)].same_as;
  return factor;
}

Factors::List Factors::resolved(const List& list) const {
  List result;
  for (const Id id : list) {
    const Factor& factor = factors_[index(root(id))];
    if (factor.parts.empty()) {
      result.push_back(root(id));
      continue;
    }
    const List parts = resolved(factor.parts);
    result.insert(result.end(), parts.begin(), parts.end());
  }
  return result;
}

std::int64_t Factors::size(const List& list) const {
  std::int64_t product = 1;
  for (const Id factor : list) product *= size(factor);
  return product;
}

void Factors::block(const List& list) {
  for (const Id factor : resolved(list)) factors_[index(factor)].is_blocked = true;
}

// Into so many times the rest.
void Factors::cut(Id factor, std::int64_t outer) {
  List parts = add(outer);
  const List inner = add(size(factor) / outer);
  parts.insert(parts.end(), inner.begin(), inner.end());
  if (is_blocked(factor)) block(parts);
  factors_[index(factor)].parts = parts;
}

void Factors::unite(const List& a, const List& b) {
  FactorWalk left(*this, a), right(*this, b);
  // What was passed on each side since both had come equally far.
  std::int64_t passed_left = 1, passed_right = 1;
  while (!left.is_done() && !right.is_done()) {
    const Id one = left.first(), other = right.first();
    if (passed_left != passed_right ||
        (size(one) % size(other) != 0 && size(other) % size(one) != 0)) {
      const bool is_left = passed_left * size(one) <= passed_right * size(other);
      block({is_left ? one : other});
      (is_left ? passed_left : passed_right) *= size(is_left ? one : other);
      (is_left ? left : right).pass();
      continue;
    }
    if (size(one) > size(other)) {
      cut(one, size(other));
    } else if (size(one) < size(other)) {
      cut(other, size(one));
    } else {
      if (one != other) {
        if (is_blocked(one)) block({other});
        factors_[index(one)].same_as = other;
      }
      left.pass(), right.pass();
    }
  }
  for (FactorWalk* rest : {&left, &right})
    for (; !rest->is_done(); rest->pass()) block({rest->first()});
}

}  // namespace tensor
