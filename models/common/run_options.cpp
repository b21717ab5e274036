#include "models/common/run_options.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <locale>

#include "models/common/report.h"
#include "models/common/text.h"
#include "models/common/tuning.h"
#include "models/common/validators.h"

namespace models {

void declare_run(CLI::App& app, RunOptions& o) {
  constexpr std::int64_t kMostThreads = 1024;
  app.add_option("--device", o.device,
                 "where to compute: cpu (the default), cuda or cuda:1, or cuda:0,cuda:1 for GPUs "
                 "that divide a batch of saved inputs among them")
      ->type_name("NAME");
  app.add_option("--divide", o.divide,
                 "what several GPUs divide among them: batch (the default), or products, so that "
                 "all of them compute each image together, by NCCL")
      ->type_name("WHAT");
  app.add_flag("--eager", o.eager,
               "run the plain reference operators one by one instead of the compiled model");
  app.add_option("--dtype", o.dtype,
                 "what products are computed in: f32 (the default), bf16, i8 (eight bits), or on a "
                 "GPU f16, or tf32")
      ->type_name("TYPE");
  app.add_flag("--narrow-residuals", o.narrow_residuals,
               "with --dtype bf16 or f16: store the residual stream in it, too; less exact, faster "
               "on a GPU with many images");
  app.add_option(
         "--exclude", o.exclude,
         "with --dtype i8: what stays wider, by the names that --report has, where * stands "
         "for any text (layers.11.*,classifier)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
  app.add_option("--threads", o.threads, "how many threads compute (one a core)")
      ->check(whole_number(1, kMostThreads))
      ->type_name("N");
  app.add_option("--tune", o.tune,
                 "before the first forward pass measure for so long (300ms, 60s, 5m, or until "
                 "Ctrl-C) which kernels and fusions are fast for its input size, and use them from "
                 "now on")
      ->type_name("TIME");
  app.add_option("--tune-goal", o.tune_goal,
                 "end --tune as soon as the kernels of a forward pass, added up, take no longer "
                 "than this (0.28ms)")
      ->type_name("TIME");
  app.add_option(
         "--tune-log", o.tune_log,
         "where --tune keeps its measurements, and where plans without it take them from, "
         "instead of the user's own log (those that ship with the library count beside either)")
      ->type_name("FILE");
  app.add_flag("--report", o.report,
               "tell where the time of the first forward pass goes (on stderr with --json)");
  app.add_option("--profile", o.profile,
                 "write the first forward pass as a Chrome trace, for https://ui.perfetto.dev")
      ->type_name("FILE.json");
  app.add_flag("--verify", o.verify,
               "compare every kernel of the first forward pass with the reference operators (on "
               "stderr with --json); exit code 1 if one is out of its bound");
  app.add_flag("--quiet", o.quiet, "no progress bar, no notes");
}

std::vector<tensor::Device> RunOptions::devices() const {
  std::vector<tensor::Device> result;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = device.find(',', begin);
    result.emplace_back(std::string_view(device).substr(begin, end - begin));
  }
  return result;
}

void check_run(const RunOptions& o) {
  using tensor::fail;
  const std::vector<tensor::Device> devices = o.devices();
  const bool on_gpu = devices.front().is_cuda();
  const bool is_for_gpu = o.dtype == "f16" || o.dtype == "tf32";
  const bool is_known =
      o.dtype == "f32" || o.dtype == "bf16" || o.dtype == "i8" || (on_gpu && is_for_gpu);
  if (!is_known)
    fail("--dtype", "got \"", o.dtype, "\", need f32, bf16",
         on_gpu ? ", i8, f16 or tf32" : " or i8",
         is_for_gpu ? "; " + o.dtype + " is for --device cuda" : "");
  if (o.narrow_residuals && o.dtype != "bf16" && o.dtype != "f16")
    fail("--narrow-residuals", "needs --dtype bf16", on_gpu ? " or f16" : "", ", got ", o.dtype);
  if (!o.exclude.empty() && o.dtype != "i8") fail("--exclude", "needs --dtype i8, got ", o.dtype);
  if (!o.calibrate.empty() && o.dtype != "i8")
    fail("--calibrate", "needs --dtype i8, got ", o.dtype);
  if (o.threads && on_gpu) fail("--threads", "is for the cpu, but --device is ", o.device);
  const std::string dtype = "--dtype " + o.dtype;
  const std::pair<const char*, bool> compiled_only[] = {
      {dtype.c_str(), o.dtype != "f32"},    {"--device", on_gpu},
      {"--threads", o.threads.has_value()}, {"--plan", !o.plan.empty()},
      {"--sizes", !o.sizes.empty()},        {"--tune", !o.tune.empty()},
      {"--tune-log", !o.tune_log.empty()},  {"--report", o.report},
      {"--profile", !o.profile.empty()},    {"--verify", o.verify}};
  if (o.divide != "batch" && o.divide != "products")
    fail("--divide", "got \"", o.divide, "\", need batch or products");
  if (o.divide == "products" && devices.size() < 2)
    fail("--divide", "is for several GPUs, got --device ", o.device, ": name them, cuda:0,cuda:1");
  if (o.divide == "products" && !o.plan.empty())
    fail("--plan", "holds whole products, but --divide products shares them: leave one of them ",
         "out");
  if (devices.size() > 1 && !o.tune.empty())
    fail("--tune", "is for one device, got --device ", o.device,
         ": what is measured on a GPU counts ",
         "for all of its model. Tune there with a batch as large as the part of one");
  for (const auto& [option, given] : compiled_only) {
    if (given && o.eager)
      fail(option, "is for compiled models: leave out --eager, which runs the reference operators ",
           "on one thread");
    if (given && o.info) fail(option, "needs a run, but --info only prints sizes");
  }
  if (!o.tune.empty()) parse_duration("--tune", o.tune);
  if (!o.tune_goal.empty()) parse_duration("--tune-goal", o.tune_goal);
  if (!o.tune_goal.empty() && o.tune.empty())
    fail("--tune-goal", "ends --tune early: need --tune with the time that it may take, too");
}

tensor::CompileOptions compile_options(const RunOptions& o,
                                       std::vector<std::pair<std::string, tensor::Tensor>> names) {
  const bool is_tf32 = o.dtype == "tf32";
  const std::vector<tensor::Device> devices = o.devices();
  const bool is_one = devices.size() == 1;
  tensor::CompileOptions how{
      .device = is_one ? devices.front() : tensor::Device(),
      .devices = is_one ? std::vector<tensor::Device>() : devices,
      .divide = o.divide == "products" ? tensor::Divide::products : tensor::Divide::batch,
      .dtype = tensor::parse_dtype(is_tf32 ? "f32" : o.dtype),
      .exclude = o.exclude,
      .threads = static_cast<int>(o.threads.value_or(0)),
      .tf32 = is_tf32,
      .narrow_residuals = o.narrow_residuals,
      .names = std::move(names)};
  if (!o.tune_log.empty())
    how.tune_logs = std::vector<std::string>{tensor::kShippedLogs, o.tune_log};
  return how;
}

tensor::LoadOptions load_options(const RunOptions& o, const tensor::Sharing& sharing) {
  tensor::CompileOptions how = compile_options(o, {});
  return {.device = how.device,
          .devices = std::move(how.devices),
          .threads = how.threads,
          .sharing = sharing};
}

tensor::TuneOptions tune_options(const RunOptions& o) {
  constexpr double kMicro = 1e6;
  tensor::TuneOptions tuning;
  tuning.seconds = parse_duration("--tune", o.tune);
  tuning.log = o.tune_log;
  if (!o.tune_goal.empty()) tuning.goal_us = kMicro * parse_duration("--tune-goal", o.tune_goal);
  return tuning;
}

bool inspect(const RunOptions& o, const tensor::Executable& executable,
             const std::vector<tensor::Tensor>& arguments, std::ostream& out) {
  if (o.report) executable.report(out, arguments);
  if (!o.profile.empty()) executable.profile(o.profile, arguments);
  return !o.verify || print_checks(out, tensor::verify(executable, arguments));
}

bool is_answered(CLI::App& app, const std::vector<std::string>& arguments, std::ostream& out) {
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    return false;
  } catch (const CLI::CallForHelp&) {
    out << app.help();
  } catch (const CLI::CallForVersion& version) {
    out << version.what() << "\n";
  }
  return true;
}

void flush(std::ostream& out) {
  const bool was_good = out.good();
  if (was_good) errno = 0;
  out.clear();  // what still waits fails again, and tells why
  out.flush();
  if (!was_good || !out)
    tensor::fail("standard output", "cannot be written: ", std::strerror(errno ? errno : EIO));
}

std::string complaint(const std::string& program, std::string_view what) {
  const std::string line = one_line(what), start = program + ": ";
  return line.starts_with(start) ? line : start + line;
}

int run_main(const std::string& program, std::ostream& out, std::ostream& err,
             const std::function<int()>& body) {
  for (std::ostream* stream : {&out, &err}) stream->imbue(std::locale::classic());  // for programs
  try {
    const int code = body();
    flush(out);
    return code;
  } catch (const CLI::ParseError& error) {
    err << program << ": " << one_line(error.what()) << " (see " << program << " --help)\n";
    return 1;
  } catch (const tensor::UserError& error) {
    err << complaint(program, error.what()) << "\n";
    return 1;
  } catch (const std::exception& error) {
    err << complaint(program, error.what()) << "\n";
    return 2;
  }
}

}  // namespace models
