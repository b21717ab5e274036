// What the benchmark programs share: workloads by name, the command line, and the counters.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensor/compile.h"

namespace bench {

/// A function to time, with everything it needs.
struct Workload {
  tensor::TensorFunction function;
  std::vector<tensor::Tensor> inputs;
  double flops = 0;  // of one call; products and convolutions only
  std::vector<std::pair<std::string, tensor::Tensor>> weights = {};
};

/// Named after what it computes, "matmul/197x768x3072" or "vit-base-patch16-224". `batch` is part
/// of the benchmark's name unless 0.
struct Case {
  std::string name;
  std::function<Workload(tensor::DType)> make;
  int batch = 0;
};

struct Options {
  int threads = 0;     // 0: one a core
  int batch = 1;       // of the models
  bool eager = false;  // time the eager run of the models, too
  bool verify = false, report = false;
  tensor::Device device = {};
  std::vector<tensor::Device> devices = {};  // several, of which `device` is the first
  tensor::Divide divide = tensor::Divide::batch;
  bool narrow_residuals = false;  // of models in bf16 and f16
  bool copies = false;            // on GPUs: of calls with operands on the host
  bool calibrate = false;         // models in i8 by scales for their inputs
};

/// Takes what --help lists out of the arguments, Google Benchmark its own; UserError for others.
Options parse(int& argc, char** argv);

/// Adds "NAME/cpu/TYPE/compiled", or ".../narrow-residuals", ".../calibrated", or ".../eager" for
/// the call outside of compile(). On "cuda" the time is the GPU's, without copies to and from it;
/// of several, named "NAME/cuda-x2/TYPE/...", or "NAME/cuda-x2-products/TYPE/...", of the slowest;
/// with `copies` (".../copies") that of calls whose inputs and outputs are on the host. With
/// `verify` every group is compared with the eager operators first; UserError, while it runs, if
/// one is wrong. With `report` standard error has the executable's report (docs/report.md).
void add(const Case& c, tensor::DType dtype, bool eager, const Options& options);

/// main() of a program: parses, lets `add_all` register the benchmarks, runs them.
int run(int argc, char** argv, const std::function<void(const Options&)>& add_all);

}  // namespace bench
