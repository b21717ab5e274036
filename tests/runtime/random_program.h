// A random program on tensors: grown forward from real values, so that every one is valid. Whole
// ones stay small enough that float32 is exact.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "tensor/tensor.h"
#include "tests/runtime/random_functions.h"

namespace random_program {

using tn::Shape;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

constexpr std::int64_t kExtents[] = {1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64};

// One operator of a program: from the values so far to the next.
using Instruction = std::function<Tensor(const Tensors&)>;

inline bool fits_bf16(const Tensor& x) {
  return tn::all((x.astype(tn::bf16).astype(x.dtype()) == x) | tn::isnan(x)).item<bool>();
}

enum class Numbers {
  whole,   // so small that float32 is exact
  narrow,  // whole ones, almost all of them so small that bf16 is exact
  real,
  steady,  // real, and no function with a step, where a small error would become a large one
};

class Program {
 public:
  Program(std::uint64_t seed, Numbers numbers);

  const Tensors& inputs() const { return inputs_; }
  Tensors run(const Tensors& in, const std::vector<std::size_t>& outputs) const;
  const std::vector<std::size_t>& outputs() const { return outputs_; }
  std::size_t size() const { return values_.size(); }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  std::int64_t extent() { return kExtents[pick(static_cast<int>(std::size(kExtents)))]; }

  Shape any_shape();
  Tensor fresh(const Shape& shape);
  std::size_t any();  // a value, often a recent one
  // `bound` is the largest magnitude the value can have; it keeps integer graphs exact.
  void add_value(Tensor value, double bound);
  void append(Instruction instruction, double bound);

  void grow();  // by one of these
  void unary();
  void binary();
  // A value, or a constant, that broadcasts with `a`: some axes dropped or made 1.
  Instruction partner(std::size_t a);
  void view();
  void reduction();
  void product();
  void movement();
  void neural();
  void image();      // a value as images of a few channels, and what convolutional networks do
  void smooth();     // functions without steps, so that a last bit stays a last bit
  void counting();   // exact on whole numbers
  void rewriting();  // what must not matter

  std::mt19937_64 random_;
  const Numbers numbers_;
  const bool whole_, steady_;
  Tensors inputs_, values_;
  std::vector<double> bounds_;
  std::vector<Instruction> instructions_;
  std::vector<std::size_t> outputs_;
};

}  // namespace random_program
