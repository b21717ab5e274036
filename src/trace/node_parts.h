// What nodes of graphs are made of so that they are copied without asking for memory: every pass
// copies all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensor {

/// A node's position in its graph, and the name of the one value it computes.
using ValueId = std::int32_t;
/// The same as an index of a vector.
constexpr std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

/// A list of values, as a vector; a few lie in itself.
class ValueIds {
 public:
  using value_type = ValueId;

  ValueIds() = default;
  ValueIds(std::initializer_list<ValueId> ids) { assign(ids.begin(), ids.end()); }
  ValueIds(const std::vector<ValueId>& ids) { assign(ids.begin(), ids.end()); }
  template <class I>
  ValueIds(I begin, I end) {
    assign(begin, end);
  }
  operator std::vector<ValueId>() const { return {begin(), end()}; }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const ValueId* begin() const { return is_long() ? many_.data() : few_.data(); }
  const ValueId* end() const { return begin() + size_; }
  ValueId* begin() { return is_long() ? many_.data() : few_.data(); }
  ValueId* end() { return begin() + size_; }
  const ValueId& operator[](std::size_t i) const { return begin()[i]; }
  ValueId& operator[](std::size_t i) { return begin()[i]; }
  ValueId front() const { return *begin(); }
  ValueId back() const { return end()[-1]; }
  void push_back(ValueId id) {
    if (size_ == kFew) many_.assign(few_.begin(), few_.end());
    if (size_ >= kFew)
      many_.push_back(id);
    else
      few_[size_] = id;
    ++size_;
  }
  friend bool operator==(const ValueIds& a, const ValueIds& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr std::size_t kFew = 4;

  bool is_long() const { return size_ > kFew; }
  template <class I>
  void assign(I begin, I end) {
    for (; begin != end; ++begin) push_back(*begin);
  }

  std::array<ValueId, kFew> few_{};
  std::vector<ValueId> many_;  // all of them, where they are more
  std::size_t size_ = 0;
};

/// A text that copies share.
class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string text) {
    if (!text.empty()) text_ = std::make_shared<const std::string>(std::move(text));
  }
  SharedText(const char* text) : SharedText(std::string(text)) {}

  const std::string& str() const {
    static const std::string none;
    return text_ ? *text_ : none;
  }
  operator const std::string&() const { return str(); }
  operator std::string_view() const { return str(); }
  bool empty() const { return !text_; }
  friend bool operator==(const SharedText& a, std::string_view b) { return a.str() == b; }
  friend std::ostream& operator<<(std::ostream& out, const SharedText& text) {
    return out << text.str();
  }

 private:
  std::shared_ptr<const std::string> text_;
};

}  // namespace tensor
