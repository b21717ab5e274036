// What the tests of the documentation are made of; tests/docs/snippets.awk writes the tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <type_traits>

#include "tensor/tensor.h"

namespace docs {

struct Output {
  std::string text;
  bool good = true;
};

/// What the code writes to std::cout; not good if it throws.
Output printed(const std::function<void()>& code);
/// What the commands write, in an empty folder with models/ and examples/ and the programs on the
/// PATH; not good unless all of them succeed.
Output shell(const std::string& commands);

void expect_success(const Output& got);
void expect_equal(const Output& got, const std::string& want);
/// Equal but for numbers, the width of columns and lines of dashes.
void expect_like(const Output& got, const std::string& want);
/// The lines stand in this file of the repository, one after the other.
void expect_quoted(const std::string& file, const std::string& lines);

/// The text of an error stands in the sources, in parts where it has an ellipsis for what differs.
void expect_thrown(const std::string& text);

/// As NumPy prints, on one line: "[[0 1] [2 3]]".
std::string on_one_line(const std::string& text);

inline std::string text_of(const tensor::Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}
inline std::string text_of(bool value) { return value ? "True" : "False"; }
template <class T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

/// A row of a table: the value of its expression or, where it has none (an assignment), of `a`.
template <class Row>
void expect_row(const std::string& want) {
  Row row;
  std::string got;
  if constexpr (std::is_void_v<decltype(row())>)
    row(), got = text_of(row.a);
  else
    got = text_of(row());
  EXPECT_EQ(on_one_line(got), on_one_line(want));
}

}  // namespace docs
