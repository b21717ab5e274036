// trace: runs a function once on stand-ins for its inputs and returns the graph of what it did.
#pragma once

#include <vector>

#include "src/trace/graph.h"
#include "tensor/function.h"

namespace tensor {

/// The names of known constants (a model's parameters), for the notes on nodes. A node's note is
/// the module path of the parameter it reads; nodes without one take it from their inputs.
using ConstantNames = std::vector<std::pair<std::string, Tensor>>;

/// Throws UserError when the function asks for the values of a traced tensor (item, data, a mask as
/// index). The graph derives with `derived`.
Graph trace(const TensorFunction& function, const std::vector<TensorType>& inputs,
            const ConstantNames& names = {}, std::shared_ptr<DerivedConstants> derived = nullptr);

}  // namespace tensor
