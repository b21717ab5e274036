// report: where the time of an executable goes; profile: the same as a Chrome trace.
#include <algorithm>
#include <fstream>
#include <iomanip>
#include <map>
#include <ostream>

#include "src/core/median.h"
#include "src/kernels/work.h"
#include "src/runtime/describe.h"
#include "src/runtime/eight_bit_error.h"
#include "src/runtime/program.h"
#include "tensor/text.h"

namespace tensor {
namespace {

using detail::Program;
// Microseconds of every step, the median of `repeats` runs after one warm-up.
std::vector<double> step_times(const detail::PartOfCall& part, int repeats) {
  const auto runs = part.time(std::max(repeats, 1));
  std::vector<double> medians;
  for (std::size_t step = 0; step < part.program->engine->steps().size(); ++step) {
    std::vector<double> list;
    for (const auto& run : runs)
      if (step < run.size()) list.push_back(run[step]);
    medians.push_back(median(std::move(list)));
  }
  return medians;
}

double apart_us(const Program& program, const Group& group, const Wiring& wires) {
  double total = 0;
  for (const ValueId id : group.nodes)
    total += program.target.offers->cost(program.laid, make_group(program.laid.graph, wires, {id}))
                 .microseconds;
  return total;
}

struct Row {
  int count = 0;
  double us = 0, roofline = 0, estimate = 0, apart = 0, gflop = 0, megabytes = 0, added = 0;
  std::string operators, where, kernel;
  std::string scales = {};  // "static" or "dynamic", of the rows of a product of bytes
};

std::vector<Row> rows_of(const Program& program, const std::vector<double>& times,
                         const std::vector<double>& added) {
  const Wiring wires = wiring(program.laid.graph);
  const Structures structures(program.laid.graph);
  std::vector<Row> rows;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < program.engine->steps().size(); ++i) {
    const detail::Step& step = program.engine->steps()[i];
    if (step.group < 0) {
      rows.push_back({1, times[i], 0, 0, 0, 0, 0, 0, "copy to output", "", step.description});
      continue;
    }
    const Group& group = program.plan.groups[static_cast<std::size_t>(step.group)];
    const auto [place, is_new] = known.try_emplace(structures.of(group), rows.size());
    const std::string where = detail::place_of(program.laid.graph, group);
    if (is_new)
      rows.push_back({0, 0, 0, 0, 0, 0, 0, 0, detail::operators_of(program.laid.graph, group),
                      where, step.description});
    Row& row = rows[place->second];
    const Work work = work_of(program.laid.graph, group);
    ++row.count;
    row.us += times[i];
    row.roofline += program.target.roofline_us(program.laid.graph, group);
    row.estimate += group.microseconds;
    row.apart += apart_us(program, group, wires);
    row.added = std::max(row.added, added[i]);
    if (const ValueId product = quantized_product(program, i); product >= 0)
      row.scales = is_by_one_scale(program.laid.graph, product) ? "static" : "dynamic";
    row.gflop += work.flops / 1e9;
    row.megabytes += work.bytes / 1e6;
    row.where = detail::merged_place(row.where, where);
  }
  return rows;
}

// The steps of a program, and its sum.
void write_table(std::ostream& out, const detail::PartOfCall& part, int repeats) {
  const Program& p = *part.program;
  const std::vector<Row> rows = rows_of(p, step_times(part, repeats), added_errors(p, part.inputs));
  Row total;
  for (const Row& row : rows) {
    total.us += row.us, total.roofline += row.roofline, total.gflop += row.gflop;
    total.megabytes += row.megabytes, total.count += row.count;
  }
  out << "   n        us     %  GFLOP      MB  roof%  fused / apart (est. us)  operators @ place "
         "[kernel]\n";
  const auto line = [&](const Row& row) {
    out << std::setw(4) << row.count << std::setw(10) << row.us << std::setw(6)
        << 100 * row.us / total.us << std::setw(7) << std::setprecision(2) << row.gflop
        << std::setprecision(1) << std::setw(8) << row.megabytes << std::setw(7)
        << 100 * row.roofline / row.us;
  };
  for (const Row& row : rows) {
    line(row);
    out << std::setw(12) << row.estimate << " / " << std::setw(8) << row.apart << "     "
        << row.operators << (row.where.empty() ? "" : " @ " + row.where) << " [" << row.kernel;
    if (!row.scales.empty()) out << "; " << row.scales << " eight bits";
    if (row.added > 0) out << " add " << 100 * row.added << " %";
    out << "]\n";
  }
  line(total);
  out << "  total; arena " << static_cast<double>(p.placement.memory.bytes) / 1e6
      << " MB (at least " << static_cast<double>(p.placement.memory.lower_bound) / 1e6 << "), "
      << p.target.name << ", peak rates " << p.target.peak_rates << "\n";
}

void write_memory(std::ostream& out, const Program& p) {
  const DeviceMemory memory = p.common->memory_of(p);
  const auto megabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  out << "      " << (p.target.device.is_cuda() ? "GPU memory " : "memory ")
      << megabytes(memory.total()) << " MB: weights " << megabytes(memory.weights) << ", arenas "
      << megabytes(memory.arena) << ", other " << megabytes(memory.other) << "; of these "
      << megabytes(memory.shared) << " shared\n";
}

// The steps of a program one after the other, as events of a process of its own.
void write_events(std::ostream& file, const detail::PartOfCall& part, std::size_t process) {
  const Program& p = *part.program;
  const std::vector<double> times = part.time(1).front();
  double begin = 0;
  for (std::size_t i = 0; i < times.size(); begin += times[i++]) {
    const detail::Step& step = p.engine->steps()[i];
    const Group* group =
        step.group < 0 ? nullptr : &p.plan.groups[static_cast<std::size_t>(step.group)];
    file << (process + i > 1 ? ",\n" : "") << "{\"ph\":\"X\",\"pid\":" << process
         << ",\"tid\":1,\"ts\":" << begin << ",\"dur\":" << times[i] << ",\"name\":\""
         << (group ? detail::operators_of(p.laid.graph, *group) : "copy to output")
         << "\",\"args\":{\"where\":\"" << (group ? detail::place_of(p.laid.graph, *group) : "")
         << "\",\"kernel\":\"" << step.description << "\"}}";
  }
}

}  // namespace

void Executable::report(std::ostream& to, const std::vector<Tensor>& inputs, int repeats) const {
  const Program& p = *program_;
  detail::check_inputs(p, inputs);
  TextWriter out;
  out << std::fixed << std::setprecision(1);
  const std::vector<detail::PartOfCall> parts = detail::parts_of(p, inputs);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Program& part = *parts[i].program;
    if (p.parts) out << part.target.device << ", " << p.parts->name_of(i) << "\n";
    if (i == 0) write_table(out, parts[i], repeats);
    write_memory(out, part);
  }
  if (p.parts) out << p.parts->about();
  to << out.str();
}

void Executable::profile(const std::string& path, const std::vector<Tensor>& inputs) const {
  detail::check_inputs(*program_, inputs);
  Classic<std::ofstream> file(path);
  if (!file)
    fail("profile", "cannot write ", path, ": check that the folder exists and is writable");
  const std::vector<detail::PartOfCall> parts = detail::parts_of(*program_, inputs);
  file << std::fixed << std::setprecision(3) << "{\"traceEvents\":[\n";
  for (std::size_t i = 0; i < parts.size(); ++i) write_events(file, parts[i], i + 1);
  file << "\n]}\n";
  if (!file.flush()) fail("profile", "cannot write all of ", path, ": is the disk full?");
}

}  // namespace tensor
