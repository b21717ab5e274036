#include "src/stages.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>

#include "src/runtime/describe.h"
#include "tensor/text.h"

namespace tensor {
namespace {

constexpr std::array<std::string_view, 6> kWords = {"graph",    "dot",    "plan",
                                                    "schedule", "source", "time"};

std::string folder_of_sources() {
  const char* folder = std::getenv("TENSOR_DUMP_FOLDER");
  return folder && *folder ? folder : "tensor_dump";
}

void write_source(const std::filesystem::path& folder, int number, const std::string& about,
                  const detail::Kernels::Source& source) {
  TextWriter name;
  name << std::setfill('0') << std::setw(3) << number << '_' << source.name << ".cu";
  const std::filesystem::path path = folder / name.str();
  Classic<std::ofstream> file(path);
  file << about << source.text;
  if (!file.flush())
    fail("TENSOR_DUMP", "cannot write ", path.string(), ": name a folder that can be written ",
         "with TENSOR_DUMP_FOLDER, or leave \"source\" out");
}

}  // namespace

Stages::Stages(bool on_gpu) : on_gpu_(on_gpu) {
  const char* wanted = std::getenv("TENSOR_DUMP");
  TextReader words(wanted ? wanted : "");
  for (std::string word; std::getline(words, word, ',');) {
    if (std::find(kWords.begin(), kWords.end(), word) == kWords.end())
      fail("TENSOR_DUMP", "got \"", word,
           "\", need graph, dot, plan, schedule, source or time, or ",
           "several with commas between them");
    dump_.push_back(word);
  }
}

bool Stages::wants(std::string_view what) const {
  return std::find(dump_.begin(), dump_.end(), what) != dump_.end();
}

Graph Stages::pass(const Pass& pass, const Graph& graph) const {
  Graph result = run(pass.name, [&] { return pass.run(graph); });
  if (wants("graph")) verify(result, pass.name);
  dump("after " + std::string(pass.name), result);
  return result;
}

void Stages::dump(std::string_view title, const Graph& graph) const {
  if (wants("graph")) std::cerr << "-- " << title << '\n' << graph;
}

void Stages::dump(const LaidOutGraph& laid, const FusionPlan& plan,
                  const detail::Target& target) const {
  if (wants("dot")) std::cerr << to_dot(laid.graph);
  if (wants("plan")) std::cerr << "-- plan\n" << detail::plan_text(laid, plan, target);
}

void Stages::dump(const LaidOutGraph& laid, const FusionPlan& plan, const detail::Target& target,
                  const detail::Kernels& kernels) const {
  if (wants("schedule"))
    std::cerr << "-- schedules\n" << detail::schedule_text(laid, plan, target, kernels);
  if (!wants("source")) return;
  const std::filesystem::path folder = folder_of_sources();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  int number = 0;
  for (std::size_t g = 0; g < plan.groups.size(); ++g)
    for (const detail::Kernels::Source& source : kernels.sources(g)) {
      const Group& group = plan.groups[g];
      TextWriter about;
      about << "// group:    " << g << ", " << detail::operators_of(laid.graph, group)
            << "\n// place:    " << detail::place_of(laid.graph, group)
            << "\n// family:   " << target.offers->name(group.family)
            << "\n// schedule: " << (group.schedule.empty() ? "one way only" : group.schedule)
            << "\n// Compiles with NVRTC and the option -default-device.\n";
      write_source(folder, number++, about.str(), source);
    }
}

}  // namespace tensor
