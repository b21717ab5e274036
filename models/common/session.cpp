// Running a model for the command line: eager or compiled, with its progress, and what can be told
// about a compiled run.
#include "models/common/session.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>

#include "models/common/calibration.h"
#include "models/common/list_images.h"
#include "models/common/text.h"
#include "models/common/tuning.h"
#include "tensor/text.h"

namespace models {

using tensor::nn::StateDict;

namespace {

std::vector<std::pair<std::string, tensor::Tensor>> names_of(Program& program) {
  std::vector<std::pair<std::string, tensor::Tensor>> names;
  for (const tensor::nn::Parameter& p : program.parameters()) names.emplace_back(p.name, *p.tensor);
  return names;
}

}  // namespace

tensor::CompileOptions with_names(Program& program, tensor::CompileOptions options) {
  options.names = names_of(program);
  return options;
}

Session::Session(Program& program, const Options& options, std::int64_t images, std::ostream& notes)
    : program_(program),
      options_(options),
      notes_(notes),
      progress_(images > 1 ? "images" : "layers", program.steps() * images, options.quiet),
      compiled_([this](const StateDict& inputs, const tensor::Sharing& sharing) {
        return options_.plan.empty() ? compile(inputs, sharing) : plan(inputs, sharing);
      }),
      finishing_([this](const StateDict& inputs, const tensor::Sharing& sharing) {
        return compile_named([this](const StateDict& in) { return program_.run(in, {}); }, inputs,
                             {.device = options_.devices().front(), .sharing = sharing});
      }) {}

void Session::begin(std::int64_t passes) { passes_ = passes, done_ = told_ = 0; }

StateDict Session::forward(const StateDict& inputs) {
  if (!is_pass(inputs)) return finish(inputs);
  program_.check(inputs);
  if (options_.eager)
    return run(inputs, [this](const std::string&, const tensor::Tensor&) { advance(1); });
  const NamedExecutable executable = compiled_.executable(inputs);
  if (options_.inspects() && !first_) first_ = Pass{executable, executable.arguments(inputs)};
  StateDict outputs = executable(inputs);
  advance(program_.steps());
  return outputs;
}

// On the host the plain operators are as fast, and need not be compiled.
StateDict Session::finish(const StateDict& inputs) {
  const bool is_compiled = options_.devices().front().is_cuda() && !options_.eager;
  return is_compiled ? finishing_.executable(inputs)(inputs) : program_.run(inputs, {});
}

StateDict Session::run(const StateDict& inputs, const Observer& observe) const {
  StateDict hidden;
  StateDict outputs =
      program_.run(inputs, [&](const std::string& name, const tensor::Tensor& value) {
        if (options_.hidden_states) hidden.emplace(name, value);
        if (observe) observe(name, value);
      });
  outputs.merge(hidden);
  return outputs;
}

// The bar expects one forward pass an image: the steps of several are told evenly.
void Session::advance(std::int64_t steps) {
  for (done_ += steps; told_ < done_ / passes_; ++told_) progress_.step();
}

// After calibration, and after tuning, the first time that --tune asks for it.
tensor::CompileOptions Session::compile_options(const StateDict& inputs) {
  tensor::CompileOptions how = models::compile_options(options_, names_of(program_));
  if (!options_.calibrate.empty()) {
    if (!scales_) progress_.clear(), scales_ = calibrated(program_, options_, how);
    how.scales = *scales_;
  }
  if (options_.tune.empty() || is_tuned_) return how;
  is_tuned_ = true;
  progress_.clear();
  return tuned([this](const StateDict& in) { return run(in, {}); }, inputs, how,
               tune_options(options_), options_.quiet, notes_);
}

NamedExecutable Session::compile(const StateDict& inputs, const tensor::Sharing& sharing) {
  using Clock = std::chrono::steady_clock;
  tensor::CompileOptions how = compile_options(inputs);
  how.sharing = sharing;
  const Clock::time_point start = Clock::now();
  NamedExecutable result =
      compile_named([this](const StateDict& in) { return run(in, {}); }, inputs, how);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (seconds > 1) {
    tensor::TextWriter note;
    note << program_.name() << ": compiled in " << std::fixed << std::setprecision(1) << seconds
         << " s for " << describe_inputs(inputs);
    progress_.note(note.str());
  }
  return result;
}

NamedExecutable Session::plan(const StateDict& inputs, const tensor::Sharing& sharing) {
  const bool is_to_tune = !options_.tune.empty() && !is_tuned_;
  return planned_or_made(options_.plan, key(), inputs, load_options(options_, sharing), is_to_tune,
                         [&] { return compile(inputs, sharing); });
}

void Session::fill(const std::vector<InputSize>& sizes) {
  if (std::filesystem::exists(options_.plan)) load_plan(options_.plan, key());  // or tells why not
  for (const InputSize& size : sizes) {
    try {
      const StateDict inputs = program_.blank(size);
      program_.check(inputs);
      compiled_.executable(inputs);
    } catch (const tensor::UserError& error) {
      tensor::fail("--sizes", describe(size), ": ", error.what());
    }
  }
}

const PlanKey& Session::key() {
  if (!key_.empty()) return key_;
  std::string text = options_.model;
  if (!options_.checkpoint.empty()) {
    tensor::Classic<std::ifstream> file(options_.checkpoint + "/config.json", std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::vector<std::string> examples = options_.calibrate.empty()
                                                ? std::vector<std::string>()
                                                : list_images({options_.calibrate}).files;
  key_ = plan_key(program_.name(), options_, examples, fingerprint(text, program_.parameters()));
  key_["hidden states"] = options_.hidden_states ? "yes" : "no";
  return key_;
}

bool Session::inspect(std::ostream& out) const {
  if (!first_) return true;  // nothing ran, and why was told
  return models::inspect(options_, first_->executable.executable, first_->arguments, out);
}

}  // namespace models
