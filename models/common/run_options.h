// Options of all programs that run a model, and how a program ends.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/compile.h"
#include "tensor/tune.h"

namespace CLI {
class App;
}

namespace models {

struct RunOptions {
  std::string device = "cpu", divide = "batch", dtype = "f32", profile, plan, sizes, calibrate,
              tune, tune_goal, tune_log;
  bool eager = false, report = false, verify = false, info = false, quiet = false;
  bool narrow_residuals = false;
  std::vector<std::string> exclude;
  std::optional<std::int64_t> threads;

  /// Those that --device names, at least one. UserError on what names none.
  std::vector<tensor::Device> devices() const;
  /// Whether something is asked of a compiled run besides its outputs.
  bool inspects() const { return report || verify || !profile.empty(); }
};

/// All of them but --info, --plan, --sizes and --calibrate.
void declare_run(CLI::App& app, RunOptions& options);
/// UserError on options that do not go together.
void check_run(const RunOptions& options);

/// With these parameters by name.
tensor::CompileOptions compile_options(const RunOptions& options,
                                       std::vector<std::pair<std::string, tensor::Tensor>> names);
/// How plans are loaded.
tensor::LoadOptions load_options(const RunOptions& options, const tensor::Sharing& sharing);
/// What --tune asks for.
tensor::TuneOptions tune_options(const RunOptions& options);

/// Reports, profiles and verifies a run as the options ask. False if a group is not as exact as it
/// must be.
bool inspect(const RunOptions& options, const tensor::Executable& executable,
             const std::vector<tensor::Tensor>& arguments, std::ostream& out);

/// Parses the arguments; whether they asked for --help or --version, which is printed.
bool is_answered(CLI::App& app, const std::vector<std::string>& arguments, std::ostream& out);
/// Prints what waits to be printed; UserError if it or anything before could not be.
void flush(std::ostream& out);
/// "vit: what is wrong", where the message may begin with the program's name already.
std::string complaint(const std::string& program, std::string_view what);
/// What the body returns, flushed; 1 for bad input, told in one line on `err`; 2 for a fault.
int run_main(const std::string& program, std::ostream& out, std::ostream& err,
             const std::function<int()>& body);

}  // namespace models
