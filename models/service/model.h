// Model: a checkpoint folder, a plan file or an ONNX file behind one interface, of named tensors
// and, where it is one of vit, detr, setr and depth, of pictures. What serves models to others (the
// C ABI, Triton, demo-server) is built on it.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "models/common/cli.h"
#include "models/common/forward.h"
#include "models/service/join.h"
#include "models/service/ports.h"
#include "tensor/interop.h"

namespace models::service {

/// What a model is opened with.
struct OpenOptions {
  tensor::Device device = {};
  std::string dtype = "f32";
  int threads = 0;  // 0: one a core
  Takes takes = Takes::images;
  std::string program;  // vit, detr, setr or depth, where config.json does not say
  std::int64_t max_pixels = std::int64_t{1} << 26;
  std::int64_t max_batch = 1;          // so many rows run together at most
  std::vector<std::string> arguments;  // the program's own options: {"--top", "3"}

  /// Sets "device", "dtype", "threads", "input" (image or tensor), "program", "max_pixels",
  /// "max_batch" or, by any other name, an option of the program. UserError on a value that they
  /// cannot have.
  void set(const std::string& name, const std::string& value);
};

/// What a model sees in a picture, or why there is no answer.
struct Seen {
  ImageResult result = {};
  std::exception_ptr error = nullptr;
};

/// What all kinds of files come to.
struct Opened {
  std::unique_ptr<Program> program = nullptr;  // of a checkpoint
  Ports ports = {};                            // of a checkpoint without what `probe` finds out
  CompiledForward::Compile compile;
  Batches batches = {};
};

class Model {
 public:
  /// A checkpoint folder, a plan file or an ONNX file, or a folder that holds model.tensor (a plan)
  /// or model.onnx. UserError, as of their readers, on anything else.
  static std::unique_ptr<Model> open(const std::string& path, const OpenOptions& options = {});
  /// A plan, whose bytes must stay as long as the model, or an ONNX file.
  static std::unique_ptr<Model> parse(std::span<const std::byte> bytes, const std::string& name,
                                      const OpenOptions& options = {});
  Model(Opened opened, OpenOptions options);

  /// For a checkpoint, two sizes are compiled at the first call, to see what depends on them.
  const Ports& ports();
  /// The names of the inputs that are not optional, for which nothing is compiled.
  std::vector<std::string> needed_inputs() const;
  /// What looks at pictures, or nullptr.
  const Program* program() const { return opened_.program.get(); }
  /// How many rows run together.
  const Batches& batches() const { return opened_.batches; }
  const OpenOptions& options() const { return options_; }

  // Any number of threads may call these.

  /// UserError on inputs that are not the model's, by name, type and shape. Outputs are on the
  /// model's GPU where an input is, otherwise on the host.
  tensor::nn::StateDict run(const tensor::nn::StateDict& inputs);
  /// Hands the run to a stream of the model's GPU, where the outputs are: tensor/interop.h.
  tensor::nn::StateDict enqueue(const tensor::nn::StateDict& inputs, tensor::CudaStream stream);
  /// Each of these calls, those that are alike together where the model has batches.
  std::vector<Outcome> run_each(const std::vector<tensor::nn::StateDict>& calls);

  /// UserError on bytes that are no picture, and on a model without a program.
  Seen look(std::span<const std::byte> picture);
  /// The same of pixels, u8 (rows, columns, 3) in RGB.
  Seen look(const tensor::Tensor& image);
  /// Each of them: decoded and prepared in threads of their own, while all forward passes run in
  /// this one, together where they are of one size.
  std::vector<Seen> look_each(const std::vector<std::span<const std::byte>>& pictures);

  /// Compiles the usual size for every batch, and runs each once.
  void warm_up();

 private:
  void probe();
  void check_call(const tensor::nn::StateDict& inputs) const;
  tensor::nn::StateDict compiled(const tensor::nn::StateDict& inputs);
  tensor::nn::StateDict pass(const tensor::nn::StateDict& inputs, const Forward& forward);
  tensor::Tensor decoded(std::span<const std::byte> picture) const;
  Seen see(const std::function<tensor::Tensor()>& image, const Forward& forward);

  OpenOptions options_;
  Opened opened_;
  std::once_flag probed_;
  Ports ports_;
  CompiledForward compiled_, finishing_;
};

/// {"findings": [...]}, as the programs print it with --json.
std::string json_of(const ImageResult& result, const Program& program);

}  // namespace models::service
