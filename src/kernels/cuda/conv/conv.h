// Convolutions with what is fused to them: what a group computes, and the texts that all of their
// kernels are made from.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/kernels/cuda/family.h"
#include "src/kernels/cuda/gemm/sm90.h"
#include "src/kernels/cuda/generated/expression.h"
#include "src/kernels/cuda/generated/extents.h"
#include "tensor/ops.h"

namespace tensor::cuda {

/// A convolution, elementwise operators on its result, and maybe a conversion of its image.
struct Convolution {
  ValueId node = -1;
  ValueId image = -1, weight = -1, bias = -1;  // what the group reads; the bias may be missing
  ValueId scales = -1;                         // of sums of bytes, for each output
  std::vector<ValueId> elementwise;            // ascending
  ElementCode code;                            // of one element, from the variable `sum`
  DType dtype = f32;                           // of the operands; the image may be stored otherwise
  bool is_constant = false;                    // the weight
  bool is_tf32 = false;                        // operands of f32 may be rounded to tf32
  std::int64_t images = 1, channels = 1, outputs = 1, groups = 1;
  std::int64_t group_channels = 1, group_outputs = 1;  // of the last group maybe fewer
  std::int64_t merged = 1;  // groups of the weight that are one here, see merged_groups
  Pair size = 1, out_size = 1, taps = 1, stride = 1, padding = 0, dilation = 1;

  std::int64_t pixels() const { return images * out_size.h * out_size.w; }
  std::int64_t depth() const { return group_channels * taps.h * taps.w; }
};

/// The same with as few groups made one as it takes for a group's channels and outputs to be
/// multiples of these, or all: weights are zeros between channels and outputs of other groups.
/// `last`: how many the last one has, as many or, where the kernel sees zeros beyond the image's
/// channels, maybe fewer. nullopt where the weight is no constant. A convolution without groups is
/// itself.
enum class LastGroup { whole, any };
std::optional<Convolution> merged_groups(const Convolution& conv, std::int64_t channels,
                                         std::int64_t outputs, LastGroup last);

/// nullopt when the group is anything else, or has an operator that no text is known for.
std::optional<Convolution> match_convolution(const Graph& graph, const Group& group);

/// The struct Epilogue of templates/conv_tile.h, whose members are read and written operands.
struct ConvEpilogue {
  std::string name;                     // "bias_relu"
  std::string text;                     // of the struct
  std::vector<std::string> parameters;  // of the kernel, its members in order: "const float* r0"
  std::vector<std::string> names;       // of the parameters alone
  std::vector<Argument> arguments;
};
/// Its numbers are added to those of the kernel's problem.
ConvEpilogue conv_epilogue(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                           Extents& numbers);

/// Where an image's elements lie: steps between neighbours of each axis.
struct ImageSteps {
  std::int64_t image = 0, channel = 0, row = 0, column = 0;
};

/// A problem as the Tensor Core kernels take it: channels last, their number a multiple of 8. Where
/// an image has few channels, a tap is a whole row of the window: its pixels lie next to each
/// other.
struct TensorProblem {
  std::int64_t channels = 8;
  Pair size = 1, taps = 1, stride = 1, padding = 0, dilation = 1;
  ImageSteps steps;
  Pointer image;               // an operand, or scratch
  std::optional<Call> before;  // what packs the image
  std::int64_t scratch_bytes = 0;
  std::int64_t pixel_channels = 8;  // that a pixel has in a packed row of weights
  bool are_patches = false;         // a pixel has all of a window
};
TensorProblem tensor_problem(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                             const Machine& machine);
/// Whether windows do not overlap and have to be packed anyway: then they become rows of a matrix.
bool reads_patches(const Graph& graph, const Convolution& conv);
/// The depth of the product, with what fills up the rows of such a matrix.
std::int64_t product_depth(const Graph& graph, const Convolution& conv);
/// What is written and read again to pack an image, in bytes; 0 where nothing is packed as far as
/// the graph tells.
double packing_bytes(const Graph& graph, const Convolution& conv);

/// The form in which a kernel wants weights: a matrix, dense.
struct WeightForm {
  std::int64_t rows = 1, row = 1;             // and the elements of one
  std::function<Tensor(const Tensor&)> pack;  // on the host
  // The same for templates/conv_plain.h's pack_weights: along the depth lie groups of `group`
  // elements, each with `taps` times `channels`.
  std::int64_t group = 1, taps = 1, channels = 1;
  bool are_patches = false, is_turned = false;
  std::int64_t merged = 1;
  bool is_wide = false;  // constants are kept in float32
};
/// [output, tap, channel], channels filled up to a multiple of `channel_step` and rows to one of
/// `row_step` elements.
WeightForm outputs_as_rows(const Convolution& conv, const TensorProblem& problem,
                           std::int64_t channel_step, std::int64_t row_step);
/// The same of the strips in which a graph has bytes (src/ops/eight_bits.h), not filled up.
WeightForm bytes_as_rows(const Convolution& conv);
/// [tap, channel, output], rows of `row` outputs.
WeightForm outputs_as_columns(const Convolution& conv, std::int64_t row);
/// Where weights lie in this form: constants are brought into it once, others by a kernel that is
/// added in front, in scratch behind what there is.
Pointer add_weights(Lowered& lowered, const LaidOutGraph& laid, const Group& group,
                    const Convolution& conv, const WeightForm& form, const Machine& machine);
/// What such a kernel reads and writes, in bytes; 0 for constants.
double weight_packing_bytes(const Graph& graph, const Convolution& conv);

/// What the kernel of a convolution is launched from.
struct ConvLaunch {
  std::string header;                   // "conv_mma.h"
  Extents problem;                      // the struct Problem
  std::string text;                     // of the other structs that `run` names
  std::string run;                      // of problem, parameters, E, epilogue and part
  std::vector<std::string> parameters;  // before those of the epilogue
  std::vector<Argument> arguments;
  std::int64_t blocks = 1;
  int threads = 256, resident = 1;  // in a block; blocks of a multiprocessor
  std::int64_t shared_bytes = 0;
  int parts = 1;         // of the depth, each summed by blocks of its own
  unsigned cluster = 1;  // blocks that run together
};
/// "conv_mma_tf32_f32_3x3": how the kernel's name begins, before the tile (name_kernel); without
/// the window where the kernel takes any.
std::string conv_name(const char* how, std::string_view operands, const Convolution& conv,
                      const Machine& machine);
/// Adds the call, and with several parts the one that adds them up. `what` names them.
void add_calls(Lowered& lowered, ConvLaunch launch, const LaidOutGraph& laid, const Group& group,
               const Convolution& conv, const std::string& what, const Machine& machine);

/// Into how many parts the depth may be split.
inline constexpr int kConvParts[] = {1, 2, 3, 4, 6, 8};

/// Blocks with a tile each, of depth split in parts.
struct ConvTiles {
  int pixels = 128, outputs = 128, parts = 1;
  std::int64_t depth = 0;
  double tflops = 0;      // at which all multiprocessors together multiply such tiles
  int resident = 1;       // blocks of a multiprocessor
  double ahead_kib = 64;  // what is on its way to a block at any time
};
/// What all schedules of a convolution share.
struct ConvWork {
  std::int64_t pixels = 1, outputs = 1, depth = 1;  // the product's
  double item_bytes = 2;                            // of an operand
  double flops = 0, bytes = 0;     // bytes read and written once, and again what packing takes
  std::int64_t group_outputs = 0;  // all that a tile may have; 0: any
  int packings = 0;                // kernels that bring operands into another form
  double packing_bytes = 0;        // of `bytes`
  EpilogueWork epilogue = {};
};
ConvWork conv_work(const Graph& graph, const Group& group, const Convolution& conv);
/// Bytes a nanosecond at which the convolution's operands and results come and go: what the kernels
/// just before wrote is still in the second-level cache if it is small.
double conv_gbps(const ConvWork& work, const Machine& machine);
/// Microseconds: what the multiprocessors multiply, what comes to them from the second-level cache,
/// and what goes to memory. A second kernel adds up parts.
TimeParts model_conv_tiles(const ConvWork& work, const ConvTiles& tiles, const Machine& machine);
/// A schedule's features that follow from its tiles and what the analytic model takes them for.
Features features_of(const ConvWork& work, const ConvTiles& tiles, const TimeParts& time,
                     const Machine& machine);

/// A way to run convolutions: the time it would take, nullopt where it cannot, and its kernels.
struct ConvWay {
  std::optional<double> (*estimate)(const Graph& graph, const Group& group, const Convolution& conv,
                                    const Machine& machine);
  /// Kernels by the group's schedule, which is one of its space, or, without one, by the fastest.
  Lowered (*lower)(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                   const Machine& machine);
  /// Of what it can run: one sketch, all that may be tried; null where there is nothing to choose.
  Space (*space)(const Graph& graph, const Group& group, const Convolution& conv,
                 const Machine& machine) = nullptr;
  std::string_view sketch = {};
};
extern const ConvWay kConvSm90, kConvMma, kConvTiled, kConvDepthwise, kConvDirect;

/// A tile of templates/conv_sm90.h.
struct ConvSm90Schedule {
  int groups = 2, outputs = 128, stages = 3, resident = 2, parts = 1;

  int pixels() const { return 64 * groups; }
  int threads() const { return 128 * groups; }
  std::int64_t shared_bytes() const;
  /// Blocks that fit on a multiprocessor: `resident`, for which registers are kept, or more.
  int blocks_that_fit(const DeviceInfo& device) const;
  /// Why the kernel cannot be built so, empty if it can.
  std::string impossible(const ConvWork& work, const Machine& machine) const;
  /// The same, or why nobody needs it.
  std::string fault(const ConvWork& work, const Machine& machine) const;
};
std::span<const ConvSm90Schedule> conv_sm90_schedules();
Lowered lower_conv_sm90(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                        const Machine& machine, const ConvSm90Schedule& schedule);

/// Adds the members of a problem that any kernel reads, but for the depth.
void add_problem(Extents& numbers, const Convolution& conv, const TensorProblem& problem);
/// Those by which a tile of outputs finds the channels of its group.
void add_groups(Extents& numbers, const Convolution& conv, const TensorProblem& problem);
/// Those of the window and the result.
void add_window(Extents& numbers, const Convolution& conv, const TensorProblem& problem);
/// The numbers of a kernel of so many threads, with kThreads and kIsFar: in the fixed form where an
/// int does not count them.
Extents numbers_of_threads(std::int64_t threads, const Machine& machine);
ImageSteps image_steps(const LaidOutGraph& laid, ValueId id);
/// Whether the image lies channels last, in chunks of channels that can be read at once.
bool lies_in_chunks(const LaidOutGraph& laid, const Convolution& conv);
Pointer operand_pointer(const LaidOutGraph& laid, const Group& group, ValueId id);

}  // namespace tensor::cuda
