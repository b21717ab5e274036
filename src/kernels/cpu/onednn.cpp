#ifdef TENSOR_WITH_ONEDNN
#include "src/kernels/cpu/onednn.h"

#include <algorithm>

namespace tensor::cpu {
namespace {

using dnnl::algorithm;

struct Eltwise {
  algorithm kind;
  float alpha = 0, beta = 0;
};

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
    case Op::exp:
      return Eltwise{algorithm::eltwise_exp};
    case Op::abs:
      return Eltwise{algorithm::eltwise_abs};
    case Op::sqrt:
      return Eltwise{algorithm::eltwise_sqrt};
    case Op::square:
      return Eltwise{algorithm::eltwise_square};
    case Op::negative:
      return Eltwise{algorithm::eltwise_linear, -1};
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
      return Eltwise{algorithm::eltwise_linear, number};
    case Op::divide:
      return Eltwise{algorithm::eltwise_linear, 1 / number};
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
    case Op::maximum:
      return algorithm::binary_max;
    case Op::minimum:
      return algorithm::binary_min;
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
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type onednn_type(DType dtype) {
  if (dtype == f32) return dnnl::memory::data_type::f32;
  if (dtype == bf16) return dnnl::memory::data_type::bf16;
  internal_error("onednn", "no memory type for ", dtype);
}

bool onednn_supports(DType dtype) { return dtype == f32 || dtype == bf16; }

dnnl::memory::desc describe(DType dtype, const Shape& shape, const Strides& strides) {
  return {dnnl::memory::dims(shape.begin(), shape.end()), onednn_type(dtype),
          dnnl::memory::dims(strides.begin(), strides.end())};
}

bool has_post_ops(const std::vector<EpilogueStep>& steps) {
  return std::all_of(steps.begin(), steps.end(), [](const EpilogueStep& step) {
    if (step.op == Op::astype) return true;  // results are float32 until they are stored
    return step.operand >= 0 ? binary(step.op).has_value() : eltwise(step).has_value();
  });
}

std::optional<PostOps> post_ops_of(
    const std::vector<EpilogueStep>& steps, const Group& group,
    const std::function<std::optional<dnnl::memory::desc>(ValueId)>& operand_desc) {
  PostOps result;
  for (const EpilogueStep& step : steps) {
    if (step.op == Op::astype) continue;
    if (step.operand < 0) {
      const Eltwise function = *eltwise(step);
      result.ops.append_eltwise(1, function.kind, function.alpha, function.beta);
      continue;
    }
    const auto desc = operand_desc(step.operand);
    if (!desc) return std::nullopt;
    const int id = DNNL_ARG_ATTR_MULTIPLE_POST_OP(result.ops.len()) | DNNL_ARG_SRC_1;
    result.ops.append_binary(*binary(step.op), *desc);
    const auto operand =
        std::find(group.reads.begin(), group.reads.end(), step.operand) - group.reads.begin();
    result.arguments.push_back({id, static_cast<std::size_t>(operand), *desc});
  }
  return result;
}

OnednnKernel::OnednnKernel(dnnl::primitive primitive, std::vector<Argument> arguments,
                           dnnl::memory::desc scratchpad, std::string description)
    : primitive_(std::move(primitive)),
      arguments_(std::move(arguments)),
      scratchpad_(std::move(scratchpad)),
      description_(std::move(description)) {}

void OnednnKernel::run(std::span<std::byte* const> operands, std::byte* scratch) const {
  std::unordered_map<int, dnnl::memory> arguments = owned_;
  for (const Argument& a : arguments_)
    arguments.emplace(a.id, dnnl::memory(a.desc, cpu_engine(), operands[a.operand]));
  arguments.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(scratchpad_, cpu_engine(), scratch));
  dnnl::stream stream(cpu_engine());
  primitive_.execute(stream, arguments);
  stream.wait();
}

}  // namespace tensor::cpu
#endif
