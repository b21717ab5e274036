// Bindings: what a name of `call` does with tensors and attributes, and how attributes are read.
#pragma once

#include <string_view>
#include <vector>

#include "tensor/ops.h"

namespace tensor {

using In = const std::vector<Tensor>&;
using Out = std::vector<Tensor>;

struct Binding {
  std::string_view name;
  int min_inputs, max_inputs;
  std::vector<std::string_view> attrs;  // the names it takes
  Out (*invoke)(In, const Attrs&);
};

/// Those of NumPy's names that are no elementwise operators without attributes.
std::vector<Binding> array_bindings();
/// And of PyTorch's.
std::vector<Binding> neural_bindings();

/// An input that may be left out.
inline Tensor optional_input(In in, std::size_t i) { return i < in.size() ? in[i] : Tensor(); }
/// The attribute `axis`: the axes of a reduction, or one axis.
Axes reduced_axes(const Attrs& attrs);
int one_axis(const Attrs& attrs, std::int64_t fallback);
/// An axis by an attribute's name.
int named_axis(const Attrs& attrs, std::string_view name);
int named_axis(const Attrs& attrs, std::string_view name, std::int64_t fallback);
/// One number for both, or height and width.
Pair pair_attribute(const Attrs& attrs, std::string_view name, Pair fallback);

template <Tensor (*f)(const Tensor&, int)>
Out call_along_axis(In in, const Attrs& attrs) {
  return {f(in[0], one_axis(attrs, -1))};
}

}  // namespace tensor
