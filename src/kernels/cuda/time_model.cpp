// The files of the time models' constants, and which GPU has which.
#include "src/kernels/cuda/time_model.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor::cuda {
namespace {

constexpr std::string_view kTypical = "typical.txt";

std::string in_lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = lower_case(c);
  return result;
}

// A line without its comment, and where that begins.
std::string_view content_of(std::string_view line) { return line.substr(0, line.find('#')); }

// Calls line(text) for each line of a text.
template <class F>
void for_lines(std::string_view text, F&& line) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

using M = TimeModel;
constexpr TimeParameter kParameters[] = {
    {"rates.clock_share", [](M& m) -> double& { return m.rates.clock_share; }},
    {"rates.tensor_share", [](M& m) -> double& { return m.rates.tensor_share; }},
    {"rates.mma_share", [](M& m) -> double& { return m.rates.mma_share; }},
    {"rates.mma_share_beside_wgmma",
     [](M& m) -> double& { return m.rates.mma_share_beside_wgmma; }},
    {"rates.mma_share_beside_tcgen05",
     [](M& m) -> double& { return m.rates.mma_share_beside_tcgen05; }},
    {"rates.f32_share", [](M& m) -> double& { return m.rates.f32_share; }},
    {"rates.memory_share", [](M& m) -> double& { return m.rates.memory_share; }},
    {"rates.l2_share", [](M& m) -> double& { return m.rates.l2_share; }},
    {"rates.cached_share", [](M& m) -> double& { return m.rates.cached_share; }},
    {"rates.launch_us", [](M& m) -> double& { return m.rates.launch_us; }},
    {"rates.overlapped_launch_us", [](M& m) -> double& { return m.rates.overlapped_launch_us; }},
    {"rates.arrival", [](M& m) -> double& { return m.rates.arrival; }},
    {"rates.overlapped_arrival", [](M& m) -> double& { return m.rates.overlapped_arrival; }},
    {"rates.host_gbps", [](M& m) -> double& { return m.rates.host_gbps; }},
    {"rates.synchronize_us", [](M& m) -> double& { return m.rates.synchronize_us; }},
    {"gemm_sm90.arrival", [](M& m) -> double& { return m.gemm_sm90.arrival; }},
    {"gemm_sm90.shared_arrival", [](M& m) -> double& { return m.gemm_sm90.shared_arrival; }},
    {"gemm_sm90.stage_clocks", [](M& m) -> double& { return m.gemm_sm90.stage_clocks; }},
    {"gemm_sm90.box_rate", [](M& m) -> double& { return m.gemm_sm90.box_rate; }},
    {"gemm_sm90.turn_addend_rate", [](M& m) -> double& { return m.gemm_sm90.turn_addend_rate; }},
    {"gemm_sm90.addend_rate", [](M& m) -> double& { return m.gemm_sm90.addend_rate; }},
    {"gemm_sm90.small_addend_rate", [](M& m) -> double& { return m.gemm_sm90.small_addend_rate; }},
    {"gemm_sm90.pair_rate", [](M& m) -> double& { return m.gemm_sm90.pair_rate; }},
    {"gemm_sm90.most_pair_rate", [](M& m) -> double& { return m.gemm_sm90.most_pair_rate; }},
    {"gemm_sm90.operations", [](M& m) -> double& { return m.gemm_sm90.operations; }},
    {"gemm_sm90.operation_rate", [](M& m) -> double& { return m.gemm_sm90.operation_rate; }},
    {"gemm_sm90.norm_clocks", [](M& m) -> double& { return m.gemm_sm90.norm_clocks; }},
    {"gemm_sm90.row_sum_clocks", [](M& m) -> double& { return m.gemm_sm90.row_sum_clocks; }},
    {"gemm_sm90.turn_norm", [](M& m) -> double& { return m.gemm_sm90.turn_norm; }},
    {"gemm_sm90.exchange_clocks", [](M& m) -> double& { return m.gemm_sm90.exchange_clocks; }},
    {"gemm_sm90.exchange_rate", [](M& m) -> double& { return m.gemm_sm90.exchange_rate; }},
    {"gemm_sm90.fill_us", [](M& m) -> double& { return m.gemm_sm90.fill_us; }},
    {"gemm_sm90.beside", [](M& m) -> double& { return m.gemm_sm90.beside; }},
    {"gemm_tiles.latency_clocks", [](M& m) -> double& { return m.gemm_tiles.latency_clocks; }},
    {"gemm_tiles.start_clocks", [](M& m) -> double& { return m.gemm_tiles.start_clocks; }},
    {"gemm_tiles.operands_beside", [](M& m) -> double& { return m.gemm_tiles.operands_beside; }},
    {"gemm_tiles.operations", [](M& m) -> double& { return m.gemm_tiles.operations; }},
    {"gemm_tiles.operation_rate", [](M& m) -> double& { return m.gemm_tiles.operation_rate; }},
    {"gemm_tiles.store_rate", [](M& m) -> double& { return m.gemm_tiles.store_rate; }},
    {"gemm_tiles.second_us", [](M& m) -> double& { return m.gemm_tiles.second_us; }},
    {"gemm_plain.instructions", [](M& m) -> double& { return m.gemm_plain.instructions; }},
    {"gemm_plain.shared_rate", [](M& m) -> double& { return m.gemm_plain.shared_rate; }},
    {"gemm_plain.step_clocks", [](M& m) -> double& { return m.gemm_plain.step_clocks; }},
    {"gemm_plain.crowd", [](M& m) -> double& { return m.gemm_plain.crowd; }},
    {"gemm_plain.start_clocks", [](M& m) -> double& { return m.gemm_plain.start_clocks; }},
    {"attention_sm90.operations", [](M& m) -> double& { return m.attention_sm90.operations; }},
    {"attention_sm90.operation_rate",
     [](M& m) -> double& { return m.attention_sm90.operation_rate; }},
    {"attention_sm90.chain_clocks", [](M& m) -> double& { return m.attention_sm90.chain_clocks; }},
    {"attention_sm90.group_clocks", [](M& m) -> double& { return m.attention_sm90.group_clocks; }},
    {"attention_sm90.group_multiply",
     [](M& m) -> double& { return m.attention_sm90.group_multiply; }},
    {"attention_sm90.arrival", [](M& m) -> double& { return m.attention_sm90.arrival; }},
    {"attention_sm90.exposed", [](M& m) -> double& { return m.attention_sm90.exposed; }},
    {"attention_sm90.query_clocks", [](M& m) -> double& { return m.attention_sm90.query_clocks; }},
    {"attention_sm90.alone_clocks", [](M& m) -> double& { return m.attention_sm90.alone_clocks; }},
    {"attention_sm90.arrival_beside",
     [](M& m) -> double& { return m.attention_sm90.arrival_beside; }},
    {"attention_sm90.exchange_clocks",
     [](M& m) -> double& { return m.attention_sm90.exchange_clocks; }},
    {"attention_sm90.exchange_rate",
     [](M& m) -> double& { return m.attention_sm90.exchange_rate; }},
    {"attention_sm90.cluster_clocks",
     [](M& m) -> double& { return m.attention_sm90.cluster_clocks; }},
    {"attention_sm90.only_block_clocks",
     [](M& m) -> double& { return m.attention_sm90.only_block_clocks; }},
    {"attention_sm90.crowd_us", [](M& m) -> double& { return m.attention_sm90.crowd_us; }},
    {"attention_sm90.pair_us", [](M& m) -> double& { return m.attention_sm90.pair_us; }},
    {"attention_sm90.fill_us", [](M& m) -> double& { return m.attention_sm90.fill_us; }},
    {"attention_mma.operations", [](M& m) -> double& { return m.attention_mma.operations; }},
    {"attention_mma.weight_operations",
     [](M& m) -> double& { return m.attention_mma.weight_operations; }},
    {"attention_mma.stored_operations",
     [](M& m) -> double& { return m.attention_mma.stored_operations; }},
    {"attention_mma.between_clocks",
     [](M& m) -> double& { return m.attention_mma.between_clocks; }},
    {"attention_mma.start_clocks", [](M& m) -> double& { return m.attention_mma.start_clocks; }},
    {"attention_mma.exposed_clocks",
     [](M& m) -> double& { return m.attention_mma.exposed_clocks; }},
    {"attention_mma.slab_clocks", [](M& m) -> double& { return m.attention_mma.slab_clocks; }},
    {"attention_mma.store_rate", [](M& m) -> double& { return m.attention_mma.store_rate; }},
    {"attention_plain.operations", [](M& m) -> double& { return m.attention_plain.operations; }},
    {"attention_plain.step_clocks", [](M& m) -> double& { return m.attention_plain.step_clocks; }},
    {"attention_plain.start_clocks",
     [](M& m) -> double& { return m.attention_plain.start_clocks; }},
    {"conv_tiles.latency_us", [](M& m) -> double& { return m.conv_tiles.latency_us; }},
    {"conv_tiles.cache_share", [](M& m) -> double& { return m.conv_tiles.cache_share; }},
    {"conv_tiles.fill_us", [](M& m) -> double& { return m.conv_tiles.fill_us; }},
    {"conv_tiles.later_fill", [](M& m) -> double& { return m.conv_tiles.later_fill; }},
    {"conv_tiles.add_us", [](M& m) -> double& { return m.conv_tiles.add_us; }},
    {"conv_tiles.add_gbps", [](M& m) -> double& { return m.conv_tiles.add_gbps; }},
    {"conv_tiles.overlap", [](M& m) -> double& { return m.conv_tiles.overlap; }},
    {"conv_tiles.overlap_of_one", [](M& m) -> double& { return m.conv_tiles.overlap_of_one; }},
    {"conv_tiles.packing_us", [](M& m) -> double& { return m.conv_tiles.packing_us; }},
    {"conv_tiles.share_128x128", [](M& m) -> double& { return m.conv_tiles.share_128x128; }},
    {"conv_tiles.share_128x64", [](M& m) -> double& { return m.conv_tiles.share_128x64; }},
    {"conv_tiles.share_64x64", [](M& m) -> double& { return m.conv_tiles.share_64x64; }},
    {"conv_tiles.share_128x32", [](M& m) -> double& { return m.conv_tiles.share_128x32; }},
    {"conv_tiles.share_32x64", [](M& m) -> double& { return m.conv_tiles.share_32x64; }},
    {"conv_tiles.share_at_least", [](M& m) -> double& { return m.conv_tiles.share_at_least; }},
    {"conv_tiles.share_of_none", [](M& m) -> double& { return m.conv_tiles.share_of_none; }},
    {"conv_tiles.share_of_intensity",
     [](M& m) -> double& { return m.conv_tiles.share_of_intensity; }},
    {"conv_tiles.plain_share_64", [](M& m) -> double& { return m.conv_tiles.plain_share_64; }},
    {"conv_tiles.plain_share_128", [](M& m) -> double& { return m.conv_tiles.plain_share_128; }},
    {"conv_tiles.direct_share", [](M& m) -> double& { return m.conv_tiles.direct_share; }},
    {"conv_tiles.direct_share_f64", [](M& m) -> double& { return m.conv_tiles.direct_share_f64; }},
    {"conv_tiles.direct_us", [](M& m) -> double& { return m.conv_tiles.direct_us; }},
    {"conv_tiles.direct_step_us", [](M& m) -> double& { return m.conv_tiles.direct_step_us; }},
    {"conv_tiles.direct_tap_us", [](M& m) -> double& { return m.conv_tiles.direct_tap_us; }},
    {"conv_tiles.depthwise_share", [](M& m) -> double& { return m.conv_tiles.depthwise_share; }},
    {"conv_tiles.depthwise_us", [](M& m) -> double& { return m.conv_tiles.depthwise_us; }},
    {"conv_tiles.depthwise_row_us", [](M& m) -> double& { return m.conv_tiles.depthwise_row_us; }},
    {"conv_sm90.sums", [](M& m) -> double& { return m.conv_sm90.sums; }},
    {"conv_sm90.cache_share", [](M& m) -> double& { return m.conv_sm90.cache_share; }},
    {"conv_sm90.ahead_us", [](M& m) -> double& { return m.conv_sm90.ahead_us; }},
    {"conv_sm90.round_us", [](M& m) -> double& { return m.conv_sm90.round_us; }},
    {"conv_sm90.cluster_us", [](M& m) -> double& { return m.conv_sm90.cluster_us; }},
    {"conv_sm90.cluster_gbps", [](M& m) -> double& { return m.conv_sm90.cluster_gbps; }},
    {"conv_sm90.write_share", [](M& m) -> double& { return m.conv_sm90.write_share; }},
    {"conv_sm90.together", [](M& m) -> double& { return m.conv_sm90.together; }},
    {"conv_sm90.memory_share", [](M& m) -> double& { return m.conv_sm90.memory_share; }},
    {"conv_sm90.small_share", [](M& m) -> double& { return m.conv_sm90.small_share; }},
    {"conv_sm90.overlap", [](M& m) -> double& { return m.conv_sm90.overlap; }},
    {"conv_sm90.packing_us", [](M& m) -> double& { return m.conv_sm90.packing_us; }},
    {"conv_sm90.packing_gbps", [](M& m) -> double& { return m.conv_sm90.packing_gbps; }},
    {"conv_sm90.cluster_reach", [](M& m) -> double& { return m.conv_sm90.cluster_reach; }},
    {"generated.latency_us", [](M& m) -> double& { return m.generated.latency_us; }},
    {"generated.fold_us", [](M& m) -> double& { return m.generated.fold_us; }},
    {"generated.scattered", [](M& m) -> double& { return m.generated.scattered; }},
    {"generated.merging_us", [](M& m) -> double& { return m.generated.merging_us; }},
    {"generated.scan_us", [](M& m) -> double& { return m.generated.scan_us; }},
};

const TimeParameter* parameter_of(std::string_view name) {
  const auto found = std::find_if(std::begin(kParameters), std::end(kParameters),
                                  [&](const TimeParameter& p) { return p.name == name; });
  return found == std::end(kParameters) ? nullptr : &*found;
}

}  // namespace

std::span<const TimeParameter> time_parameters() { return kParameters; }

TimeModel parse_time_model(std::string_view text, std::string_view file) {
  TimeModel model;
  std::set<std::string_view> known;
  int number = 0;
  for_lines(text, [&](std::string_view line) {
    ++number;
    TextReader words{std::string(content_of(line))};
    std::string name, rest;
    if (!(words >> name)) return;
    const TimeParameter* parameter = parameter_of(name);
    double value = 0;
    if (!parameter || !(words >> value) || !(value > 0) || words >> rest)
      fail(file, "got \"", content_of(line), "\" in line ", number,
           ", need the name of a constant (src/kernels/cuda/time_model.h) and "
           "a number above 0");
    if (!known.insert(parameter->name).second)
      fail(file, "got ", name, " again in line ", number, ": each constant has one line");
    parameter->of(model) = value;
  });
  for (const TimeParameter& parameter : time_parameters())
    if (!known.contains(parameter.name))
      fail(file, "got no ", parameter.name, ", need a line for each constant: typical.txt has all");
  return model;
}

std::string time_model_text(TimeModel model, std::string_view like) {
  TextWriter text;
  text.precision(6);
  for_lines(like, [&](std::string_view line) {
    TextReader words{std::string(content_of(line))};
    std::string name;
    const TimeParameter* parameter = words >> name ? parameter_of(name) : nullptr;
    if (!parameter) {
      text << line << '\n';
      return;
    }
    text << name << ' ' << parameter->of(model);
    if (const std::size_t comment = line.find('#'); comment != std::string_view::npos)
      text << "  " << line.substr(comment);
    text << '\n';
  });
  return text.str();
}

const TimeModel& time_model_of(std::string_view gpu) {
  static const std::map<std::string, TimeModel, std::less<>> models = [] {
    std::map<std::string, TimeModel, std::less<>> all;
    for (const auto& [name, text] : time_model_files())
      all.emplace(name, parse_time_model(text, name));
    return all;
  }();
  TextReader words(in_lower_case(gpu));
  for (std::string word; words >> word;)
    if (const auto own = models.find(word + ".txt"); own != models.end()) return own->second;
  return models.find(kTypical)->second;
}

}  // namespace tensor::cuda
