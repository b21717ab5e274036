// The forms in which kernels want the weights of convolutions, and how weights come into them: on
// the host where they are constant, otherwise by a kernel in every run.
#include "src/kernels/host/weights.h"
#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/kernels/cuda/conv/conv.h"
#include "src/ops/eight_bits.h"
#include "tensor/text.h"

namespace tensor::cuda {
namespace {

Call pack_call(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
               const WeightForm& form, const Pointer& to, const Machine& machine) {
  constexpr std::int64_t kThreads = 256;
  const ImageSteps s = image_steps(laid, conv.weight);
  const DType dtype = laid.graph.type(conv.weight).dtype;
  const std::int64_t threads = form.rows * form.row;
  Extents numbers = numbers_of_threads(threads, machine);
  numbers.text("using Element = " + std::string(device_type(dtype)) + ";");
  numbers.divisor("kRow", form.row);
  numbers.number("kOutputs", conv.outputs);
  numbers.number("kChannels", conv.channels);
  numbers.divisor("kTapColumns", conv.taps.w);
  numbers.divisor("kTaps", conv.taps.h * conv.taps.w);
  numbers.number("kOutputStep", s.image);
  numbers.number("kChannelStep", s.channel);
  numbers.number("kTapRowStep", s.row);
  numbers.number("kTapColumnStep", s.column);
  numbers.divisor("kGroup", form.group);
  numbers.number("kGroupTaps", form.taps);
  numbers.divisor("kGroupChannels", form.channels);
  numbers.flag("kArePatches", form.are_patches);
  numbers.flag("kIsTurned", form.is_turned);
  TextWriter text;
  text << "#include \"conv_plain.h\"\nusing namespace tensor::device;\n"
       << numbers.struct_text() << "extern \"C\" __global__ __launch_bounds__(" << kThreads
       << ") void KERNEL(const Problem::Element* weights,\n    Problem::Element* packed"
       << numbers.last_parameter() << ") {\n"
       << numbers.object_text() << "  pack_weights(problem, weights, packed);\n}\n";
  Call call;
  call.source.text = text.str();
  call.launch.grid = {static_cast<unsigned>(ceil_div(threads, kThreads))};
  call.launch.block = {kThreads};
  call.launch.overlaps_previous = true;
  call.arguments = {operand_pointer(laid, group, conv.weight), to};
  numbers.add_argument(call.arguments);
  name_kernel(call, machine, "pack_weights_" + std::string(name(dtype)));
  return call;
}

// A matrix with rows of `row` elements, zeros behind its own.
Tensor rows_of(const Tensor& matrix, std::int64_t row) {
  return cpu::spread(matrix, {matrix.shape(0), row}, {row, 1}, tensor::threads());
}

// [outputs, channels of `merged` groups, ...]: zeros where a channel is of another group than the
// output, of which there are `each`.
Tensor with_groups_merged(const Tensor& given, std::int64_t merged, std::int64_t each) {
  if (merged == 1) return given;
  const std::int64_t many = ceil_div(given.shape(0), merged * each), channels = given.shape(1);
  const std::int64_t taps = given.shape(2) * given.shape(3);
  Shape shape = given.shape();
  shape[0] = many * merged * each;
  const Tensor w = pad(given, {{0, shape[0] - given.shape(0)}, {0, 0}, {0, 0}, {0, 0}});
  // A group's outputs and channels lie on the diagonal: every one starts a row and a column later.
  const Tensor split = reshape(w, {many, merged, each, channels * taps});
  const std::int64_t row = merged * channels * taps;
  const Tensor rows =
      cpu::spread(split, {many * merged * each, row},
                  {merged * each * row, each * row + channels * taps, row, 1}, tensor::threads());
  return reshape(rows(slice(0, given.shape(0))),
                 {given.shape(0), merged * channels, w.shape(2), w.shape(3)});
}

}  // namespace

std::optional<Convolution> merged_groups(const Convolution& conv, std::int64_t channels,
                                         std::int64_t outputs, LastGroup last) {
  if (conv.groups == 1) return conv;
  if (!conv.is_constant) return std::nullopt;
  const auto fits = [&](std::int64_t merged) {
    return (last == LastGroup::any || conv.groups % merged == 0) &&
           conv.group_channels * merged % channels == 0 &&
           conv.group_outputs * merged % outputs == 0;
  };
  Convolution fewer = conv;
  while (fewer.merged < conv.groups && !fits(fewer.merged)) ++fewer.merged;
  fewer.groups = ceil_div(conv.groups, fewer.merged);
  fewer.group_channels = conv.group_channels * fewer.merged;
  fewer.group_outputs = conv.group_outputs * fewer.merged;
  return fewer;
}

WeightForm outputs_as_rows(const Convolution& conv, const TensorProblem& p,
                           std::int64_t channel_step, std::int64_t row_step) {
  const auto whole = [merged = conv.merged, each = conv.group_outputs / conv.merged](
                         const Tensor& w) { return with_groups_merged(w, merged, each); };
  if (p.are_patches)
    return {conv.outputs,
            p.channels,
            [whole, outputs = conv.outputs, row = p.channels](const Tensor& given) {
              const Tensor w = whole(given);
              return rows_of(reshape(w, {outputs, w.size() / outputs}), row);
            },
            1,
            1,
            1,
            true,
            false,
            conv.merged};
  // Taps that are one to the kernel.
  const std::int64_t taps = conv.taps.h * conv.taps.w / (p.taps.h * p.taps.w);
  const std::int64_t groups = p.taps.h * p.taps.w, group = round_up(p.channels, channel_step);
  const std::int64_t row = round_up(groups * group, row_step);
  return {
      conv.outputs,
      row,
      [=, outputs = conv.outputs, channels = p.pixel_channels](const Tensor& given) {
        const Tensor w = whole(given);
        const Tensor x = reshape(transpose(w, {0, 2, 3, 1}), {outputs, groups, taps, w.shape(1)});
        return cpu::spread(x, {outputs, row}, {row, group, channels, 1}, tensor::threads());
      },
      group,
      taps,
      p.pixel_channels,
      false,
      false,
      conv.merged};
}

WeightForm bytes_as_rows(const Convolution& conv) {
  WeightForm form{conv.outputs, conv.depth(), {}};
  form.pack = [rows = form.rows, row = form.row](const Tensor& strips) {
    const Tensor lines =
        strips.transpose({0, 2, 1, 3}).reshape({strips.shape(0) * kByteColumns, -1});
    return lines(slice(0, rows), slice(0, row)).copy();
  };
  return form;
}

WeightForm outputs_as_columns(const Convolution& conv, std::int64_t row) {
  return {conv.depth(),
          row,
          [row, depth = conv.depth()](const Tensor& w) {
            const std::int64_t column = w.shape(1) * row;
            return cpu::spread(transpose(w, {2, 3, 1, 0}), {depth, row},
                               {w.shape(3) * column, column, row, 1}, tensor::threads());
          },
          conv.group_channels,
          1,
          conv.group_channels,
          false,
          true};
}

namespace {

// Equal for forms that are packed alike.
std::string text_of(const WeightForm& form) {
  TextWriter text;
  text << form.rows << " x " << form.row << " of " << form.group << " x " << form.taps << " x "
       << form.channels << (form.are_patches ? " patches" : "")
       << (form.is_turned ? " turned" : "");
  if (form.is_wide) text << " wide";
  if (form.merged > 1) text << " of " << form.merged << " groups";
  return text.str();
}

}  // namespace

Pointer add_weights(Lowered& lowered, const LaidOutGraph& laid, const Group& group,
                    const Convolution& conv, const WeightForm& form, const Machine& machine) {
  if (conv.is_constant) {
    lowered.packed.push_back({{operand_pointer(laid, group, conv.weight).index},
                              text_of(form),
                              [form](const std::vector<Tensor>& weights) {
                                return form.pack(form.is_wide ? weights[0].to(f32) : weights[0]);
                              }});
    return {Pointer::Base::packed, static_cast<int>(lowered.packed.size()) - 1, 0};
  }
  constexpr std::int64_t kAlignment = 1024;
  const Pointer to{Pointer::Base::scratch, 0, round_up(lowered.scratch_bytes, kAlignment)};
  lowered.scratch_bytes =
      to.bytes + form.rows * form.row * item_size(laid.graph.type(conv.weight).dtype);
  lowered.calls.push_back(pack_call(laid, group, conv, form, to, machine));
  return to;
}

double weight_packing_bytes(const Graph& graph, const Convolution& conv) {
  const TensorType& type = graph.type(conv.weight);
  return conv.is_constant
             ? 0
             : 2. * static_cast<double>(num_elements(type.shape) * item_size(type.dtype));
}

}  // namespace tensor::cuda
