// What a model takes and gives: names, types and shapes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensor/nn.h"
#include "tensor/onnx.h"
#include "tensor/plan.h"

namespace models::service {

/// One input or output of a model.
struct Port {
  std::string name;
  tensor::DType dtype = tensor::f32;
  std::optional<tensor::Shape> shape = {};  // -1: any extent; unset: of any rank
  bool is_optional = false;
};

struct Ports {
  std::vector<Port> inputs, outputs;
  /// Whether axis 0 of all of them counts rows that do not depend on each other.
  bool are_batched = false;
};

/// UserError unless these are the inputs of a call: by name, type, rank and fixed extents, and
/// where there are batches with equally many rows, at least one.
void check_inputs(const Ports& ports, const tensor::nn::StateDict& inputs);

/// Axes whose extents differ become -1. UserError, by `name`, where the ranks differ.
void widen(Port& port, const tensor::Shape& other, const std::string& name);

/// One size of a plan: what was said about it, and its executable.
struct PlannedSize {
  tensor::Plan::About about;
  tensor::Executable executable;
};
/// The ports of all sizes of a plan together; its name is for messages. Those of a plan without
/// names are input_0, output_0 and so on. UserError unless all sizes have the same names, types and
/// ranks.
Ports ports_of(const std::vector<PlannedSize>& sizes, const std::string& name);
/// Rows are independent where axis 0 is called "batch" or the like everywhere.
Ports ports_of(const tensor::OnnxModel& model);

}  // namespace models::service
