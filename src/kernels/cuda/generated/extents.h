// The numbers of a problem in the text of its kernel: as constants, so that the compiler knows them
// all, or as members of an argument, so that one text serves problems of any extents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/kernels/cuda/lowered.h"
#include "tensor/ops.h"

namespace tensor::cuda {

/// A struct of a kernel's text, and its object: Problem and `problem`, unless they have other
/// names. Texts name its members alike in both forms; what is divided by a divisor is from 0 to
/// 2^31 - 1.
class Extents {
 public:
  explicit Extents(bool are_any = false, std::string type = "Problem",
                   std::string object = "problem")
      : are_any_(are_any), type_(std::move(type)), object_(std::move(object)) {}
  bool are_any() const { return are_any_; }

  // ---- Members by name.

  /// What any form of the text depends on.
  void constant(const std::string& name, std::int64_t value);
  void flag(const std::string& name, bool value);
  /// "using Element = Half;".
  void text(const std::string& member) { members_ += "  " + member + "\n"; }
  /// "TYPE NAME(PARAMETERS)" of a function that returns `result`, in which numbers of the problem
  /// stand by themselves.
  void function(const std::string& head, const std::string& result);

  void number(const std::string& name, std::int64_t value);
  void choice(const std::string& name, bool value);
  void divisor(const std::string& name, std::int64_t value);
  /// Both extents, under the names name + h and name + w.
  void numbers(const std::string& name, const Pair& pair, const char* h, const char* w);
  void divisors(const std::string& name, const Pair& pair, const char* h, const char* w);

  // ---- Terms of generated expressions, each a number of its own.

  /// "768" or "(-3)", or "problem.n4".
  std::string term(std::int64_t value);
  /// The same of a float: "0.5f", or "problem.n4".
  std::string real(double value);
  /// "12u", or "problem.NAME": of one name there is one divisor.
  std::string divided_by(const std::string& name, std::int64_t value);

  // ---- What becomes of them.

  /// "struct Problem {...};\n"; empty without members.
  std::string struct_text() const;
  /// The kernel's parameter is "const __grid_constant__ Problem problem", empty where it needs
  /// none.
  std::string parameter() const;
  /// The same behind other parameters, ",\n    " before it.
  std::string last_parameter() const;
  /// Declares `problem` in the kernel's body where it is no parameter.
  std::string object_text() const;
  /// For structs whose functions have terms: "  const Problem& problem;\n", empty in the fixed
  /// form.
  std::string member_text() const;
  /// Initialises that member: "problem" and, if others follow, ", ".
  std::string member_value(bool others_follow) const;
  /// Behind the others, if it is a parameter.
  void add_argument(std::vector<Argument>& arguments) const;

 private:
  void declare(std::string_view type, const std::string& name);
  template <class T>
  void append(const T& value);
  std::string fresh() { return "n" + std::to_string(count_++); }
  std::vector<std::byte> argument() const;

  bool are_any_;
  std::string type_, object_;
  int count_ = 0;
  std::string members_;
  std::vector<std::pair<std::string, std::int64_t>> divisors_;  // of divided_by
  std::vector<std::byte> bytes_;
  std::size_t alignment_ = 1;
};

}  // namespace tensor::cuda
