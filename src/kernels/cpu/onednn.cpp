#include "src/kernels/cpu/onednn.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "src/core/storage.h"
#include "src/kernels/cpu/onednn_threads.h"
#include "src/trace/derived.h"
#include "tensor/creation.h"
#include "tensor/io.h"

namespace tensor::cpu {
namespace {

using dnnl::algorithm;

struct Eltwise {
  algorithm kind;
  float alpha = 0, beta = 0;
};

// value times number. Any other 0 than -0, added by eltwise_linear, would make 0 of -0.
Eltwise times(float number) { return {algorithm::eltwise_linear, number, -0.0f}; }

// Of oneDNN's functions those that keep NaN. Its exp makes infinity of it, its maximum and minimum
// (also clip) their second operand. So does relu, without which no convolutional network is fast:
// docs/differences.md tells of it.
std::optional<Eltwise> unary(Op op) {
  switch (op) {
    case Op::relu:
      return Eltwise{algorithm::eltwise_relu};
    case Op::gelu:
      return Eltwise{algorithm::eltwise_gelu_erf};
    case Op::gelu_tanh:
      return Eltwise{algorithm::eltwise_gelu_tanh};
    case Op::silu:
      return Eltwise{algorithm::eltwise_swish, 1};
    case Op::sigmoid:
      return Eltwise{algorithm::eltwise_logistic};
    case Op::tanh:
      return Eltwise{algorithm::eltwise_tanh};
    case Op::abs:
      return Eltwise{algorithm::eltwise_abs};
    case Op::sqrt:
      return Eltwise{algorithm::eltwise_sqrt};
    case Op::square:
      return Eltwise{algorithm::eltwise_square};
    case Op::negative:
      return times(-1);
    default:
      return std::nullopt;
  }
}

// value op number as an elementwise function of value.
std::optional<Eltwise> with_number(Op op, float number) {
  switch (op) {
    case Op::add:
      return Eltwise{algorithm::eltwise_linear, 1, number};
    case Op::subtract:
      return Eltwise{algorithm::eltwise_linear, 1, -number};
    case Op::multiply:
      return times(number);
    case Op::divide:
      if (!std::isnormal(1 / number)) return std::nullopt;
      return times(1 / number);
    default:
      return std::nullopt;
  }
}

std::optional<algorithm> binary(Op op) {
  switch (op) {
    case Op::add:
      return algorithm::binary_add;
    case Op::subtract:
      return algorithm::binary_sub;
    case Op::multiply:
      return algorithm::binary_mul;
    case Op::divide:
      return algorithm::binary_div;
    default:
      return std::nullopt;
  }
}

std::optional<Eltwise> eltwise(const EpilogueStep& step) {
  if (const auto function = unary(step.op)) return function;
  return with_number(step.op, static_cast<float>(step.number));
}

}  // namespace

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine = [] {
    // On AMX oneDNN 2.6.3 writes beyond results (jit_1x1 with 36 rows), and fails to make some
    // convolutions. Its environment variables still decide where they are set.
    if (!std::getenv("DNNL_MAX_CPU_ISA") && !std::getenv("ONEDNN_MAX_CPU_ISA"))
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

dnnl::memory::data_type onednn_type(DType dtype) {
  if (dtype == f32) return dnnl::memory::data_type::f32;
  if (dtype == bf16) return dnnl::memory::data_type::bf16;
  internal_error("onednn", "no memory type for ", dtype);
}

bool onednn_supports(DType dtype) { return dtype == f32 || dtype == bf16; }

bool onednn_multiplies_bf16() {
  cpu_engine();  // first of all calls: it bounds the instruction set
  constexpr auto kBf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kBf16) == kBf16;
}

Strides with_outer_units(const Shape& shape, Strides strides) {
  std::int64_t reach = 1;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] > 1) reach = std::max(reach, strides[axis] * shape[axis]);
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] == 1) strides[axis] = reach;
  return strides;
}

dnnl::memory::desc describe(DType dtype, const Shape& shape, const Strides& strides) {
  return {dnnl::memory::dims(shape.begin(), shape.end()), onednn_type(dtype),
          dnnl::memory::dims(strides.begin(), strides.end())};
}

Tensor packed(const Graph& graph, ValueId constant, const dnnl::memory::desc& given,
              const dnnl::memory::desc& wanted) {
  const Tensor& value = graph[constant].constant;
  std::string what = "onednn ";
  for (const auto* desc : {&given, &wanted})
    what.append(reinterpret_cast<const char*>(&desc->data), sizeof desc->data);
  return derived(graph, what, {value}, [&] {
    const Tensor result = empty({static_cast<std::int64_t>(wanted.get_size())}, u8);
    dnnl::memory from(given, cpu_engine(), detail::stored(value).first()),
        to(wanted, cpu_engine(), detail::stored(result).first());
    const int threads = thread_limit();
    run_with_pool([&] {
      const ThreadLimit limit(threads);
      dnnl::stream stream(cpu_engine());
      dnnl::reorder(from, to).execute(stream, from, to);
      stream.wait();
    });
    forget_pages(value);
    return result;
  });
}

bool is_describable(const Shape& shape, const Strides& strides) {
  std::vector<int> axes;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1) axes.push_back(axis);
  std::sort(axes.begin(), axes.end(), [&](int a, int b) { return strides[a] < strides[b]; });
  std::int64_t reach = 1;  // how far the inner axes go
  for (const int axis : axes) {
    if (strides[axis] < reach) return false;
    reach = strides[axis] * shape[axis];
  }
  return true;
}

bool counts_in_32_bits(const Graph& graph, const Group& group) {
  const auto counts = [&](ValueId id) {
    return num_elements(graph.type(id).shape) <= std::numeric_limits<std::int32_t>::max();
  };
  return std::all_of(group.reads.begin(), group.reads.end(), counts) &&
         std::all_of(group.writes.begin(), group.writes.end(), counts);
}

bool has_post_ops(const std::vector<EpilogueStep>& steps) {
  constexpr std::size_t kMost = 32;  // that oneDNN 2.6 takes
  if (steps.size() > kMost) return false;
  int linear = 0;
  for (const EpilogueStep& step : steps) {
    if (step.op == Op::astype) continue;  // results are float32 until they are stored
    if (step.operand >= 0) {
      if (!binary(step.op)) return false;
      continue;
    }
    const auto function = eltwise(step);
    if (!function) return false;
    linear += function->kind == algorithm::eltwise_linear;
  }
  return linear < 2;  // oneDNN 2.6 computes all of them with the numbers of one
}

PostOps post_ops_of(const std::vector<EpilogueStep>& steps,
                    const std::function<Argument(ValueId)>& operand_argument,
                    const dnnl::post_ops& first) {
  PostOps result{first, {}};
  for (const EpilogueStep& step : steps) {
    if (step.op == Op::astype) continue;
    if (step.operand < 0) {
      const Eltwise function = *eltwise(step);
      result.ops.append_eltwise(1, function.kind, function.alpha, function.beta);
      continue;
    }
    Argument argument = operand_argument(step.operand);
    argument.id = DNNL_ARG_ATTR_MULTIPLE_POST_OP(result.ops.len()) | DNNL_ARG_SRC_1;
    result.ops.append_binary(*binary(step.op), argument.desc);
    result.arguments.push_back(std::move(argument));
  }
  return result;
}

OnednnKernel::OnednnKernel(dnnl::primitive primitive, std::vector<Argument> arguments,
                           dnnl::memory::desc scratchpad, std::string description)
    : primitive_(std::move(primitive)),
      arguments_(std::move(arguments)),
      scratchpad_(std::move(scratchpad)),
      description_(std::move(description)),
      threads_(thread_limit()) {}

void OnednnKernel::own(int id, const Tensor& weights, const dnnl::memory::desc& desc) {
  owned_.emplace(id, dnnl::memory(desc, cpu_engine(), detail::stored(weights).first()));
  constants_.push_back(weights);
}

void OnednnKernel::reserve(Packing& packing, const Strides& in_scratch) {
  packing.offset = packed_bytes_;
  const Shape& shape = packing.from.shape;
  std::int64_t reach = 1;  // results may have gaps, and operands that must lie like them
  for (int axis = 0; axis < shape.rank(); ++axis) reach += (shape[axis] - 1) * in_scratch[axis];
  const auto bytes = static_cast<std::size_t>(reach * item_size(packing.dtype));
  packed_bytes_ += (bytes + 63) / 64 * 64;
  packing.copy = {packing.from.shape, packing.from.strides, packing.to, item_size(packing.dtype)};
}

void OnednnKernel::pack_first(std::vector<Packing> packings) {
  packings_ = std::move(packings);
  for (Packing& p : packings_) reserve(p, p.to);
}

void OnednnKernel::add_to(Packing packing) {
  packing.copy = {packing.from.shape, packing.from.strides, packing.to, item_size(packing.dtype)};
  summand_ = std::move(packing);
}

void OnednnKernel::unpack_last(Packing packing) {
  reserve(packing, packing.from.strides);
  unpacking_ = std::move(packing);
}

std::unique_ptr<OnednnKernel::Call> OnednnKernel::new_call() const {
  auto call = std::make_unique<Call>();
  call->stream = dnnl::stream(cpu_engine());
  const auto add = [&](int id, const dnnl::memory::desc& desc) {
    call->memories.push_back({desc, cpu_engine(), DNNL_MEMORY_NONE});
    call->arguments.push_back({id, call->memories.back().get()});
  };
  for (const Argument& a : arguments_) add(a.id, a.desc);
  add(DNNL_ARG_SCRATCHPAD, scratchpad_);
  for (const auto& [id, memory] : owned_) call->arguments.push_back({id, memory.get()});
  return call;
}

void OnednnKernel::run(std::span<std::byte* const> operands, std::byte* scratch) const {
  run_with_pool([&] { run_here(operands, scratch); });
}

void OnednnKernel::run_here(std::span<std::byte* const> operands, std::byte* scratch) const {
  const ThreadLimit limit(threads_);
  for (const Packing& p : packings_) p.copy.run(operands[p.operand], scratch + p.offset, threads_);
  std::byte* result = nullptr;
  const auto address = [&](const Argument& a) -> std::byte* {
    if (a.packing >= 0) return scratch + packings_[static_cast<std::size_t>(a.packing)].offset;
    if (a.id != DNNL_ARG_DST) return operands[a.operand];
    return result = unpacking_ ? scratch + unpacking_->offset : operands[a.operand];
  };
  const auto call = calls_.take([&] { return new_call(); });
  for (std::size_t i = 0; i < arguments_.size(); ++i)
    call->memories[i].set_data_handle(address(arguments_[i]));
  call->memories.back().set_data_handle(scratch + packed_bytes_);
  if (summand_) summand_->copy.run(operands[summand_->operand], result, threads_);
  // The C function: the C++ one would allocate a table of arguments first.
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(primitive_.get(), call->stream.get(),
                             static_cast<int>(call->arguments.size()), call->arguments.data()),
      "could not execute a primitive");
  call->stream.wait();
  if (unpacking_)
    unpacking_->copy.run(scratch + unpacking_->offset, operands[unpacking_->operand], threads_);
}

}  // namespace tensor::cpu
