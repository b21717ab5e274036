// Kernels one at a time on a GPU: products, attention and its weights by the schedules
// that the model of their family likes best, so that its order can be checked, and convolutions as
// compile() runs them. Weights come from memory: every launch of a graph reads another copy of
// them.
//   --schedules=N   of each problem (6)
//   --dtype=TYPE    f16 (the default), bf16 or f32, or i8: products alone, without norms
// The usual options of Google Benchmark choose among the names.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <iostream>
#include <memory>
#include <random>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/commit.h"
#include "src/kernels/cuda/attention/plain.h"
#include "src/kernels/cuda/attention/sm90.h"
#include "src/kernels/cuda/attention/softmax_mma.h"
#include "src/kernels/cuda/driver/graph.h"
#include "src/kernels/cuda/driver/load.h"
#include "src/kernels/cuda/gemm/mma.h"
#include "src/kernels/cuda/gemm/sm90.h"
#include "src/trace/passes/quantize.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tensor/text.h"

namespace tensor::cuda {
namespace {

using Tensors = std::vector<Tensor>;

struct Problem {
  std::string name;
  LaidOutGraph laid;
  Group group;
  double flops = 0;
};

Problem traced(std::string name, const TensorFunction& f, const std::vector<TensorType>& inputs,
               double flops) {
  Problem p{std::move(name), lay_out(trace(f, inputs)), {}, flops};
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < p.laid.graph.size(); ++id)
    if (is_compute(p.laid.graph, id)) nodes.push_back(id);
  p.group = make_group(p.laid.graph, wiring(p.laid.graph), nodes);
  return p;
}

// The name of a product.
std::string name_of(std::int64_t tokens, std::int64_t features, std::int64_t depth,
                    const std::string& epilogue) {
  TextWriter name;
  name << "gemm/" << tokens << 'x' << features << 'x' << depth << '/' << epilogue;
  return name.str();
}

// Of rows and weights in eight bits, with "plain", "bias", "gelu" or "residual" after it.
Problem product_of_bytes(std::int64_t tokens, std::int64_t features, std::int64_t depth,
                         const std::string& epilogue) {
  const Tensor strips = empty({ceil_div(features, kByteColumns), ceil_div(depth, kByteWord),
                               kByteColumns, kByteWord},
                              i8),
               scales = empty({features}, f32), bias = empty({features}, f32);
  const bool adds = epilogue == "residual";
  std::vector<TensorType> inputs = {{{tokens, depth}, i8}, {{tokens, 1}, f32}};
  if (adds) inputs.push_back({{tokens, features}, f32});
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor product = apply_op(Op::quantized_matmul, {in[0], strips, scales, in[1]});
    if (epilogue == "plain") return {product.astype(f16)};
    if (adds) return {product + bias + in[2]};
    return {(epilogue == "gelu" ? gelu(product + bias) : product + bias).astype(f16)};
  };
  return traced(name_of(tokens, features, depth, epilogue), f, inputs,
                2. * static_cast<double>(tokens * features) * static_cast<double>(depth));
}

// tokens x features x depth, with "plain", "bias", "gelu" or "residual" after it; after "norm_" of
// rows that are normalised by sums of them, after "sums_" with sums of the results' rows, after
// "narrow_" with the residual and its sum in `dtype`, as cuBLAS has them.
Problem product(DType dtype, std::int64_t tokens, std::int64_t features, std::int64_t depth,
                const std::string& epilogue) {
  const Tensor w = transpose(empty({features, depth}, dtype)), bias = empty({features}, f32);
  const Tensor scale = empty({depth}, f32), shift = empty({depth}, f32);
  const bool is_normalized = epilogue.starts_with("norm_"), sums_rows = epilogue == "sums_residual";
  const bool is_narrow = epilogue == "narrow_residual";
  const bool adds = epilogue.ends_with("residual");
  std::vector<TensorType> inputs = {{{tokens, depth}, dtype}};
  if (adds) inputs.push_back({{tokens, features}, is_narrow ? dtype : f32});
  if (is_normalized) inputs.push_back({{depth / kSummed, tokens, 2}, f32});
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    if (epilogue == "plain") return {matmul(in[0], w)};
    const Attrs attrs{{"eps", 1e-6}};
    const Tensor rows =
        is_normalized ? apply_op(Op::layer_norm, {in[0].astype(f32), scale, shift, in[1]}, attrs)
                            .astype(dtype)
                      : in[0];
    const Tensor product = matmul(rows, w).astype(f32) + bias;
    if (!adds) return {(epilogue.ends_with("gelu") ? gelu(product) : product).astype(dtype)};
    const Tensor sum = product + in[1].astype(f32);
    if (is_narrow) return {sum.astype(dtype)};
    if (!sums_rows) return {sum};
    const Tensor rounded = sum.astype(dtype);
    return {sum, rounded, apply_op(Op::row_sums, {rounded})};
  };
  return traced(name_of(tokens, features, depth, epilogue), f, inputs,
                2. * static_cast<double>(tokens * features) * static_cast<double>(depth));
}

struct Heads {
  std::int64_t batch, heads, queries, keys, depth;
};

Tensor weights_of(const Tensor& queries, const Tensor& keys) {
  const Tensor q = queries.transpose({0, 2, 1, 3}), k = keys.transpose({0, 2, 3, 1});
  const double scale = 1 / std::sqrt(static_cast<double>(q.shape().back()));
  return softmax(matmul(q, k).astype(f32) * scale, -1).astype(queries.dtype());
}

Problem of_heads(const char* kind, DType dtype, const Heads& h, const TensorFunction& f,
                 int products) {
  TextWriter name;
  name << kind << "/b" << h.batch << "xh" << h.heads << 'x' << h.queries << 'x' << h.keys << "xd"
       << h.depth;
  const TensorType q{{h.batch, h.queries, h.heads, h.depth}, dtype},
      k{{h.batch, h.keys, h.heads, h.depth}, dtype};
  std::vector<TensorType> inputs = {q, k};
  if (products > 1) inputs.push_back(k);
  return traced(name.str(), f, inputs,
                2. * products * static_cast<double>(h.batch * h.heads * h.queries) *
                    static_cast<double>(h.keys * h.depth));
}

Problem attention(DType dtype, const Heads& h) {
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor v = in[2].transpose({0, 2, 1, 3});
    const Tensor sums = matmul(weights_of(in[0], in[1]), v).astype(f32).astype(dtype);
    return {reshape(transpose(sums, {0, 2, 1, 3}), {h.batch, h.queries, h.heads * h.depth})};
  };
  return of_heads("attention", dtype, h, f, 2);
}

Problem attention_weights(DType dtype, const Heads& h) {
  const TensorFunction f = [](const Tensors& in) -> Tensors { return {weights_of(in[0], in[1])}; };
  return of_heads("softmax", dtype, h, f, 1);
}

// Channels of an image, kernel and stride, with bias and relu after it.
Problem convolution(DType dtype, std::int64_t from, std::int64_t to, std::int64_t height,
                    std::int64_t width, std::int64_t side, std::int64_t stride) {
  const Tensor w = empty({to, from, side, side}, dtype), bias = empty({to, 1, 1}, f32);
  const Conv2dOptions options{stride, side / 2};
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    return {relu(conv2d(in[0], w, {}, options).astype(f32) + bias).astype(dtype)};
  };
  TextWriter name;
  name << "conv/" << from << 'x' << height << 'x' << width << '/' << to << 'x' << side << 'x'
       << side << 's' << stride;
  const std::int64_t pixels =
      ((height - 1) / stride + 1) * ((width - 1) / stride + 1);  // of the result
  return traced(name.str(), f, {{{1, from, height, width}, dtype}},
                2. * static_cast<double>(pixels * to) * static_cast<double>(from * side * side));
}

void add_attention(std::vector<Problem>& all, DType dtype) {
  for (const Heads& heads :
       {Heads{1, 12, 197, 197, 64}, Heads{64, 12, 197, 197, 64}, Heads{64, 16, 197, 197, 64},
        Heads{1, 16, 257, 257, 80}, Heads{64, 16, 257, 257, 80}, Heads{1, 16, 576, 576, 64},
        Heads{1, 8, 1050, 1050, 32}, Heads{1, 8, 100, 1050, 32}})
    all.push_back(attention(dtype, heads));
  if (dtype == f32) return;
  for (const Heads& heads : {Heads{1, 12, 197, 197, 64}, Heads{64, 12, 197, 197, 64},
                             Heads{1, 16, 576, 576, 64}, Heads{1, 8, 1050, 1050, 32}})
    all.push_back(attention_weights(dtype, heads));
}

std::vector<Problem> problems(DType dtype) {
  std::vector<Problem> all;
  const auto add = [&](std::int64_t tokens, std::int64_t features, std::int64_t depth,
                       const char* epilogue) {
    const bool has_sums = std::string_view(epilogue).find('_') != std::string_view::npos;
    if (dtype == f16 || dtype == bf16 || (dtype == f32 && !has_sums))
      all.push_back(product(dtype, tokens, features, depth, epilogue));
    else if (!has_sums)
      all.push_back(product_of_bytes(tokens, features, depth, epilogue));
  };
  for (const std::int64_t width : {768, 1024}) {
    add(197, 3 * width, width, "bias"), add(197, 3 * width, width, "norm_bias");
    add(197, width, width, "residual"), add(197, width, width, "sums_residual");
    add(197, 4 * width, width, "gelu"), add(197, 4 * width, width, "norm_gelu");
    add(197, width, 4 * width, "residual"), add(197, width, 4 * width, "sums_residual");
  }
  add(257, 3840, 1280, "bias"), add(257, 1280, 1280, "residual");
  add(257, 3840, 1280, "norm_bias"), add(257, 5120, 1280, "norm_gelu");
  add(257, 5120, 1280, "gelu"), add(257, 1280, 5120, "residual");
  add(257, 1280, 5120, "sums_residual");
  add(576, 3072, 1024, "norm_bias"), add(576, 4096, 1024, "norm_gelu");
  add(576, 4096, 1024, "gelu"), add(576, 1024, 4096, "residual");
  add(576, 1024, 4096, "sums_residual"), add(576, 1024, 1024, "sums_residual");
  add(1050, 2048, 256, "gelu"), add(1050, 256, 2048, "residual"), add(1050, 256, 256, "residual");
  add(12608, 2304, 768, "bias"), add(12608, 768, 768, "residual");
  add(12608, 3072, 768, "bias"), add(12608, 3072, 768, "gelu"), add(12608, 768, 3072, "residual");
  add(12608, 3072, 1024, "bias"), add(12608, 1024, 1024, "residual");
  add(12608, 4096, 1024, "gelu"), add(12608, 1024, 4096, "residual");
  add(16448, 3840, 1280, "bias"), add(16448, 1280, 1280, "residual");
  add(16448, 5120, 1280, "gelu"), add(16448, 1280, 5120, "residual");
  for (const std::int64_t depth : {768, 3072}) add(12608, 768, depth, "narrow_residual");
  for (const std::int64_t depth : {1024, 4096}) add(12608, 1024, depth, "narrow_residual");
  for (const std::int64_t depth : {1280, 5120}) add(16448, 1280, depth, "narrow_residual");
  add(8192, 8192, 8192, "plain");
  if (dtype == i8) return all;
  add_attention(all, dtype);
  all.push_back(convolution(dtype, 64, 64, 200, 334, 3, 1));
  all.push_back(convolution(dtype, 64, 256, 200, 334, 1, 1));
  all.push_back(convolution(dtype, 128, 128, 100, 167, 3, 1));
  all.push_back(convolution(dtype, 256, 256, 50, 84, 3, 1));
  all.push_back(convolution(dtype, 1024, 512, 50, 84, 1, 1));
  all.push_back(convolution(dtype, 512, 512, 25, 42, 3, 1));
  all.push_back(convolution(dtype, 512, 1024, 100, 167, 1, 2));
  all.push_back(convolution(dtype, 1024, 256, 24, 24, 3, 1));
  all.push_back(convolution(dtype, 256, 256, 192, 192, 3, 1));
  return all;
}

struct Candidate {
  const Problem* problem;
  std::string schedule;
  Lowered lowered;
  double model_us = 0;
};

// The best by the model, each kind of schedule (stages and sizes aside) at most twice, so that
// different ones are among them.
template <class Schedule>
std::vector<Schedule> different(const std::vector<Schedule>& sorted, std::size_t most,
                                int (*kind)(const Schedule&)) {
  std::vector<Schedule> chosen;
  std::vector<int> kinds;
  for (const Schedule& s : sorted) {
    if (chosen.size() == most) break;
    if (std::count(kinds.begin(), kinds.end(), kind(s)) >= 2) continue;
    kinds.push_back(kind(s));
    chosen.push_back(s);
  }
  return chosen;
}

std::vector<Candidate> candidates_of(const Problem& p, std::size_t most, const Machine& machine) {
  std::vector<Candidate> all;
  const auto gemm_kind = [](const GemmSchedule& s) {
    return (s.swapped ? 1 : 0) + (s.takes_turns ? 2 : 0) + 4 * s.groups + 16 * s.splits +
           256 * s.shares;
  };
  const auto attention_kind = [](const AttentionSchedule& s) { return s.groups + 16 * s.block; };
  auto gemm = match_product(p.laid.graph, p.group);
  if (!gemm) gemm = match_normalized_product(p.laid.graph, p.group);
  if (gemm) {
    const DType dtype = gemm->dtype;
    const GemmProblem problem =
        gemm_problem(p.laid.graph, p.group, with_merged_rows(std::move(*gemm)));
    if (dtype == f32) {
      auto plain = gemm_tile_schedules(problem, Multiplier::plain, machine);
      plain.resize(std::min(plain.size(), most));
      for (const TileSchedule& s : plain)
        all.push_back({&p, s.name(), lower_gemm_plain(p.laid, p.group, machine, s),
                       model_gemm_tiles(problem, s, Multiplier::plain, machine).total});
      return all;
    }
    auto chosen = different<GemmSchedule>(gemm_sm90_schedules(problem, machine), most, gemm_kind);
    GemmSchedule late = chosen.front();
    late.launches_first = false;
    chosen.push_back(late);
    for (const GemmSchedule& s : chosen)
      all.push_back({&p, s.name(problem.tile_k()), lower_gemm_sm90(p.laid, p.group, machine, s),
                     model_gemm_sm90(problem, s, machine).total});
    return all;
  }
  const auto soft_kind = [](const SoftmaxSchedule& s) { return s.warps + 16 * s.block; };
  if (const auto weights = softmax_problem(p.laid.graph, p.group)) {
    for (const SoftmaxSchedule& s :
         different<SoftmaxSchedule>(softmax_mma_schedules(*weights, machine), most, soft_kind))
      all.push_back({&p, s.name(), lower_softmax_mma(p.laid, p.group, machine, s),
                     model_softmax_mma(*weights, s, machine).total});
    return all;
  }
  const auto attended = attention_problem(p.laid.graph, p.group);
  if (!attended) {
    Families families(cuda_families(), machine);
    Group group = p.group;
    const GroupCost cost = families.cost(p.laid, group);
    group.family = cost.family;
    Lowered lowered = families.build(p.laid, group);
    const std::string name = lowered.description;
    all.push_back({&p, name, std::move(lowered), cost.microseconds - machine.launch_us});
    return all;
  }
  const AttentionProblem& problem = *attended;
  if (problem.item_bytes == 4) {
    auto plain = attention_plain_schedules(problem, machine);
    plain.resize(std::min(plain.size(), most));
    for (const AttentionPlainSchedule& s : plain)
      all.push_back({&p, s.name(), lower_attention_plain(p.laid, p.group, machine, s),
                     model_attention_plain(problem, s, machine).total});
    return all;
  }
  for (const AttentionSchedule& s : different<AttentionSchedule>(
           attention_sm90_schedules(problem, machine), most, attention_kind))
    all.push_back({&p, s.name(), lower_attention_sm90(p.laid, p.group, machine, s),
                   model_attention_sm90(problem, s, machine).total});
  return all;
}

// Random numbers, since zeros would be multiplied faster: bytes, 16-bit floats, or float32 by its
// upper half, these with a sign and a size from 1/4 to 1. A million of them again and again: to
// draw all would take longer than what is measured.
std::vector<std::byte> random_pattern(std::int64_t bytes, DType dtype) {
  constexpr std::int64_t kPeriod = 1'000'003;  // no row's length, so that no two rows are the same
  const bool has_long_fractions = dtype == f16;
  std::vector<std::uint16_t> drawn(static_cast<std::size_t>(std::min(kPeriod, bytes / 2 + 1)));
  std::mt19937 random(1);
  for (std::uint16_t& bits : drawn)
    bits = static_cast<std::uint16_t>(dtype == i8          ? random()
                                      : has_long_fractions ? (random() & 0x83ff) | 0x3800
                                                           : (random() & 0x80ff) | 0x3e80);
  std::vector<std::byte> pattern(static_cast<std::size_t>(bytes));
  const std::span<const std::byte> period = std::as_bytes(std::span(drawn));
  for (std::size_t at = 0; at < pattern.size(); at += period.size())
    std::copy_n(period.begin(), std::min(period.size(), pattern.size() - at),
                pattern.begin() + static_cast<std::ptrdiff_t>(at));
  return pattern;
}

// Operands of one candidate: constants as many times as it takes to leave the cache.
class Memory {
 public:
  Memory(Device& device, const Candidate& c)
      : scratch_(device, std::max<std::int64_t>(c.lowered.scratch_bytes, 1024)) {
    const Graph& graph = c.problem->laid.graph;
    std::int64_t of_constants = 0;
    for (const ValueId id : c.problem->group.reads)
      if (graph.is_constant(id)) of_constants += bytes(graph.type(id));
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    copies_ = static_cast<int>(
        std::clamp<std::int64_t>(kMost / std::max<std::int64_t>(of_constants, 1), 4, 24));
    std::vector<ValueId> operands = c.problem->group.reads;
    operands.insert(operands.end(), c.problem->group.writes.begin(), c.problem->group.writes.end());
    for (const ValueId id : operands)
      operands_.push_back(filled(device, graph.type(id), graph.is_constant(id) ? copies_ : 1));
    for (const Lowered::Packed& packed : c.lowered.packed) {
      Tensors constants;
      for (const int operand : packed.operands) {
        const TensorType& type = graph.type(operands[static_cast<std::size_t>(operand)]);
        constants.push_back(empty(type.shape, type.dtype));
      }
      packed_.push_back(filled(device, packed.pack(constants).type(), copies_));
    }
  }

  int copies() const { return copies_; }
  Address at(const Pointer& pointer, int copy) const {
    if (pointer.base == Pointer::Base::scratch) return scratch_.address();
    const auto& all = pointer.base == Pointer::Base::packed ? packed_ : operands_;
    const auto& list = all.at(static_cast<std::size_t>(pointer.index));
    return list[static_cast<std::size_t>(copy) % list.size()].address();
  }

 private:
  using Copies = std::deque<Buffer>;
  static std::int64_t bytes(const TensorType& type) {
    return num_elements(type.shape) * item_size(type.dtype);
  }
  static Copies filled(Device& device, const TensorType& type, int copies) {
    const std::vector<std::byte> pattern = random_pattern(bytes(type), type.dtype);
    Copies list;
    for (int copy = 0; copy < copies; ++copy)
      list.emplace_back(device, bytes(type)).upload(pattern);
    return list;
  }

  int copies_ = 1;
  Buffer scratch_;
  std::deque<Copies> operands_, packed_;
};

void time(benchmark::State& state, const Candidate& c, Device& device,
          const std::vector<std::shared_ptr<Kernel>>& kernels) {
  const Memory memory(device, c);
  Stream stream(device);
  const LaunchGraph graph(device, [&](Stream& to) {
    bool follows = false;
    for (int copy = 0; copy < memory.copies(); ++copy)
      for (std::size_t i = 0; i < kernels.size(); ++i, follows = true)
        start(
            to, *kernels[i], c.lowered.calls[i],
            [&](const Pointer& pointer) { return memory.at(pointer, copy); }, follows);
  });
  Event begin(device), end(device);
  const auto run = [&] {
    begin.record(stream);
    graph.start(stream);
    end.record(stream);
    stream.synchronize();
    return end.microseconds_since(begin) / memory.copies();
  };
  for (int i = 0; i < 3; ++i) run();
  std::vector<double> times;
  for (int i = 0; i < 11; ++i) times.push_back(run());
  std::nth_element(times.begin(), times.begin() + 5, times.end());
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(times[5] * 1e-6);
  state.counters["us"] = times[5];
  state.counters["model_us"] = machine_of(device.info()).launch_us + c.model_us;
  state.counters["TFLOP/s"] = c.problem->flops / times[5] / 1e6;
  state.counters["registers"] = kernels.back()->registers();
}

// Of names: what it does not find need not be compiled.
std::regex filter() {
  const std::string text = benchmark::GetBenchmarkFilter();
  try {
    return std::regex(text.starts_with('-') ? "" : text);  // '-': all but those
  } catch (const std::regex_error& error) {
    fail("cuda_kernels", "--benchmark_filter=", text, " is no regular expression: ", error.what());
  }
}

// Why these kernels cannot run here, empty if they can.
std::string no_hopper() {
  try {
    const DeviceInfo& info = Device::get().info();
    return info.capability == 90 ? "" : info.name + " is not of the Hopper architecture (sm_90)";
  } catch (const UserError& error) {
    return error.what();
  }
}

// Takes "--name=VALUE" out of the arguments; what comes after the equals sign, or the default.
std::string option(int& argc, char** argv, const std::string& name, std::string value) {
  const auto it = std::find_if(argv + 1, argv + argc, [&](const char* argument) {
    return std::string_view(argument).starts_with(name + "=");
  });
  if (it == argv + argc) return value;
  value = *it + name.size() + 1;
  std::rotate(it, it + 1, argv + argc--);
  return value;
}

int run(int argc, char** argv) {
  const int most = std::max(1, std::atoi(option(argc, argv, "--schedules", "6").c_str()));
  const DType dtype = parse_dtype(option(argc, argv, "--dtype", "f16"));
  if (dtype != f16 && dtype != bf16 && dtype != f32 && dtype != i8)
    fail("cuda_kernels", "got --dtype=", dtype, ", need f16, bf16, f32 or i8");
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("commit", bench::commit());
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (const std::string reason = no_hopper(); !reason.empty()) {
    std::cout << "SKIPPED: " << reason << '\n';
    return 0;
  }
  Device& device = Device::get();
  const Machine machine = machine_of(device.info());
  const std::vector<Problem> all = problems(dtype);
  const std::regex wanted = filter();
  std::deque<Candidate> candidates;
  for (const Problem& p : all)
    for (Candidate& c : candidates_of(p, static_cast<std::size_t>(most), machine))
      if (std::regex_search(p.name + "/" + c.schedule, wanted)) candidates.push_back(std::move(c));
  std::vector<const Call*> calls;
  for (const Candidate& c : candidates)
    for (const Call& call : c.lowered.calls) calls.push_back(&call);
  const auto kernels = load_kernels(device, calls);
  auto next = kernels.begin();
  for (const Candidate& c : candidates) {
    const std::vector<std::shared_ptr<Kernel>> own(next, next + std::ssize(c.lowered.calls));
    next += std::ssize(c.lowered.calls);
    const std::string name = c.problem->name + "/" + c.schedule;
    benchmark::RegisterBenchmark(
        name.c_str(), [&c, &device, own](benchmark::State& state) { time(state, c, device, own); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace tensor::cuda

int main(int argc, char** argv) {
  try {
    return tensor::cuda::run(argc, argv);
  } catch (const tensor::UserError& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
