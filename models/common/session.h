// Session: one run of a program, which calls its model for one input after the other, eagerly or
// compiled.
#pragma once

#include <iosfwd>
#include <optional>

#include "models/common/cli.h"
#include "models/common/forward.h"
#include "models/common/plan.h"
#include "models/common/progress.h"
#include "models/common/sizes.h"

namespace models {

/// The options with the program's parameters by name, so that reports speak the model's words.
tensor::CompileOptions with_names(Program& program, tensor::CompileOptions options);

class Session {
 public:
  /// For so many images, or one batch of saved inputs. The model has its weights. What --tune found
  /// is told in `notes`.
  Session(Program& program, const Options& options, std::int64_t images, std::ostream& notes);

  /// The next image (or batch) takes so many forward passes.
  void begin(std::int64_t passes);
  /// One forward pass; with --hidden-states, its intermediate results are among the outputs. Or
  /// what is made of its outputs (is_pass), which only --device and --eager concern.
  tensor::nn::StateDict forward(const tensor::nn::StateDict& inputs);
  /// Has the plan hold these sizes.
  void fill(const std::vector<InputSize>& sizes);
  /// What --report, --profile and --verify ask for, of the first forward pass. False if a group is
  /// not as exact as it must be.
  bool inspect(std::ostream& out) const;

  Progress& progress() { return progress_; }

 private:
  /// The model as a function: traceable, where nothing is observed but the hidden states.
  tensor::nn::StateDict run(const tensor::nn::StateDict& inputs, const Observer& observe) const;
  tensor::nn::StateDict finish(const tensor::nn::StateDict& inputs);
  NamedExecutable compile(const tensor::nn::StateDict& inputs, const tensor::Sharing& sharing);
  tensor::CompileOptions compile_options(const tensor::nn::StateDict& inputs);
  NamedExecutable plan(const tensor::nn::StateDict& inputs, const tensor::Sharing& sharing);
  const PlanKey& key();
  void advance(std::int64_t steps);

  /// A forward pass to look at again.
  struct Pass {
    NamedExecutable executable;
    std::vector<tensor::Tensor> arguments;
  };

  Program& program_;
  const Options& options_;
  std::ostream& notes_;
  bool is_tuned_ = false;
  std::optional<std::map<std::string, float>> scales_;  // once something is compiled
  Progress progress_;
  std::int64_t passes_ = 1, done_ = 0, told_ = 0;  // of this image: steps of all passes, of one
  PlanKey key_;                                    // once it is known
  std::optional<Pass> first_;
  CompiledForward compiled_, finishing_;
};

}  // namespace models
