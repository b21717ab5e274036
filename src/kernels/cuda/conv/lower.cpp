// How convolutions are lowered whatever multiplies: the form of image and weights, and the texts of
// their kernels.
#include <algorithm>

#include "src/core/rounding.h"
#include "src/kernels/cuda/conv/conv.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor::cuda {
namespace {

constexpr std::int64_t kPatchStep = 64;  // of a row, so that all kernels can multiply it

bool lies_ready(const LaidOutGraph& laid, const Convolution& conv) {
  return laid.graph.type(conv.image).dtype == conv.dtype && lies_in_chunks(laid, conv);
}

// Channels that a packed pixel has when a tap is a row of pixels, 0 when it is not: pixels that a
// window begins with must lie at multiples of 16 bytes.
std::int64_t row_channels(const Convolution& conv) {
  if (conv.groups > 1 || conv.dilation.w != 1 || conv.taps.w == 1) return 0;
  if (conv.channels <= 4 && conv.stride.w % 2 == 0) return 4;
  return conv.channels <= 8 ? 8 : 0;
}

struct PackedImage {
  Pair size = 1, padding = 0;
  std::int64_t channels = 8;
};

PackedImage packed_image(const Convolution& conv) {
  const std::int64_t few = row_channels(conv);
  if (few == 0) return {conv.size, 0, round_up(conv.channels, kChunk)};
  const std::int64_t row = round_up(conv.taps.w * few, kChunk) / few;
  return {{(conv.out_size.h - 1) * conv.stride.h + (conv.taps.h - 1) * conv.dilation.h + 1,
           round_up((conv.out_size.w - 1) * conv.stride.w + row, kChunk / few)},
          conv.padding,
          few};
}

std::int64_t patch_row(const Convolution& conv) { return round_up(conv.depth(), kPatchStep); }

std::int64_t packed_bytes(const Graph& graph, const Convolution& conv) {
  const PackedImage packed = packed_image(conv);
  const std::int64_t elements = reads_patches(graph, conv)
                                    ? conv.pixels() * patch_row(conv)
                                    : conv.images * packed.size.h * packed.size.w * packed.channels;
  return elements * item_size(conv.dtype);
}

// A call of `function` from templates/conv_plain.h by so many threads, on the image as it lies.
Call pack_call(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
               const std::string& function, const std::function<void(Extents&)>& add_more,
               std::int64_t threads, const Machine& machine) {
  const ImageSteps s = image_steps(laid, conv.image);
  const DType from = laid.graph.type(conv.image).dtype;
  Extents numbers = numbers_of_threads(threads, machine);
  numbers.text("using From = " + std::string(device_type(from)) + ";");
  numbers.text("using To = " + std::string(device_type(conv.dtype)) + ";");
  numbers.numbers("k", conv.size, "Height", "Width");
  numbers.number("kFrom", conv.channels);
  numbers.number("kImageStep", s.image);
  numbers.number("kChannelStep", s.channel);
  numbers.number("kRowStep", s.row);
  numbers.number("kColumnStep", s.column);
  add_more(numbers);
  TextWriter text;
  text << "#include \"conv_plain.h\"\nusing namespace tensor::device;\n"
       << numbers.struct_text()
       << "extern \"C\" __global__ __launch_bounds__(256) void KERNEL(const Problem::From* "
          "image,\n    Problem::To* packed"
       << numbers.last_parameter() << ") {\n"
       << numbers.object_text() << "  " << function << "(problem, image, packed);\n}\n";
  Call call;
  call.source.text = text.str();
  call.launch.grid = {static_cast<unsigned>(ceil_div(threads, 256))};
  call.launch.block = {256};
  call.launch.overlaps_previous = true;
  call.arguments = {operand_pointer(laid, group, conv.image),
                    Pointer{Pointer::Base::scratch, 0, 0}};
  numbers.add_argument(call.arguments);
  name_kernel(call, machine,
              function + "_" + std::string(name(from)) + "_" + std::string(name(conv.dtype)));
  return call;
}

// The problem on an image that is packed with all channels of a pixel, or a row of the window, next
// to each other.
void pack_image(TensorProblem& p, const LaidOutGraph& laid, const Group& group,
                const Convolution& conv, const Machine& machine) {
  const PackedImage packed = packed_image(conv);
  const std::int64_t row = packed.size.w * packed.channels, few = row_channels(conv);
  p.steps = {packed.size.h * row, 1, row, packed.channels};
  p.size = packed.size;
  p.channels = p.pixel_channels = conv.groups == 1 ? packed.channels : conv.group_channels;
  if (few > 0) {
    p.channels = round_up(conv.taps.w * few, kChunk);
    p.size.w = conv.out_size.w;
    p.steps.column = conv.stride.w * few;
    p.taps.w = p.stride.w = p.dilation.w = 1;
    p.padding = 0;
  }
  const std::int64_t of_thread = std::min(packed.channels, kChunk);
  const std::int64_t groups = packed.channels / of_thread;
  p.before = pack_call(
      laid, group, conv, "pack_image",
      [&](Extents& numbers) {
        numbers.divisors("kOut", packed.size, "Height", "Width");
        numbers.number("kChannels", packed.channels);
        numbers.constant("kPacked", of_thread);
        numbers.divisor("kGroups", groups);
        numbers.numbers("kPad", packed.padding, "Y", "X");
      },
      conv.images * packed.size.h * packed.size.w * groups, machine);
}

// The problem on a matrix of windows.
void pack_patches(TensorProblem& p, const LaidOutGraph& laid, const Group& group,
                  const Convolution& conv, const Machine& machine) {
  const std::int64_t row = patch_row(conv);
  p.before = pack_call(
      laid, group, conv, "pack_patches",
      [&](Extents& numbers) {
        add_window(numbers, conv, p);
        numbers.number("kRow", row);
        numbers.divisor("kGroups", row / kChunk);
      },
      conv.pixels() * (row / kChunk), machine);
  p.are_patches = true;
  p.channels = row;
  p.size = conv.out_size;
  p.taps = p.stride = p.dilation = 1;
  p.padding = 0;
  p.steps = {conv.out_size.h * conv.out_size.w * row, 1, conv.out_size.w * row, row};
}

}  // namespace

bool lies_in_chunks(const LaidOutGraph& laid, const Convolution& conv) {
  const ImageSteps s = image_steps(laid, conv.image);
  const Layout& l = laid.layouts[at(conv.image)];
  const auto is_whole = [chunk = chunk_of(laid.graph.type(conv.image).dtype)](std::int64_t n) {
    return n % chunk == 0;
  };
  return s.channel == 1 && is_whole(conv.channels) && is_whole(s.image) && is_whole(s.row) &&
         is_whole(s.column) && is_whole(l.offset);
}

Extents numbers_of_threads(std::int64_t threads, const Machine& machine) {
  const bool is_far = threads > INT32_MAX / 2;
  Extents numbers(machine.any_extent && !is_far);
  numbers.flag("kIsFar", is_far);
  numbers.number("kThreads", threads);
  return numbers;
}

void add_window(Extents& numbers, const Convolution& conv, const TensorProblem& p) {
  numbers.divisor("kTapColumns", p.taps.w);
  numbers.divisor("kTaps", p.taps.h * p.taps.w);
  numbers.divisors("kStride", p.stride, "Y", "X");
  numbers.numbers("kPad", p.padding, "Y", "X");
  numbers.numbers("kDilation", p.dilation, "Y", "X");
  numbers.divisor("kOutWidth", conv.out_size.w);
  numbers.divisor("kOutArea", conv.out_size.h * conv.out_size.w);
  numbers.number("kPixels", conv.pixels());
  numbers.divisor("kOutputs", conv.outputs);
}

void add_groups(Extents& numbers, const Convolution& conv, const TensorProblem& p) {
  numbers.flag("kHasGroups", conv.groups > 1);
  numbers.divisor("kGroupOutputs", conv.group_outputs);
  numbers.number("kGroupChannels", p.channels);
}

void add_problem(Extents& numbers, const Convolution& conv, const TensorProblem& p) {
  numbers.text("using Element = " + std::string(device_type(conv.dtype)) + ";");
  numbers.numbers("k", p.size, "Height", "Width");
  numbers.divisor("kChannels", p.channels);
  numbers.number("kImageStep", p.steps.image);
  numbers.number("kChannelStep", p.steps.channel);
  numbers.number("kRowStep", p.steps.row);
  numbers.number("kColumnStep", p.steps.column);
  add_window(numbers, conv, p);
}

TensorProblem tensor_problem(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                             const Machine& machine) {
  TensorProblem p;
  p.channels = p.pixel_channels = conv.group_channels;
  p.size = conv.size, p.taps = conv.taps, p.stride = conv.stride, p.padding = conv.padding,
  p.dilation = conv.dilation;
  p.steps = image_steps(laid, conv.image);
  p.image = operand_pointer(laid, group, conv.image);
  if (lies_ready(laid, conv)) return p;
  if (reads_patches(laid.graph, conv))
    pack_patches(p, laid, group, conv, machine);
  else
    pack_image(p, laid, group, conv, machine);
  p.image = {Pointer::Base::scratch, 0, 0};
  p.scratch_bytes = packed_bytes(laid.graph, conv);
  return p;
}

bool reads_patches(const Graph& graph, const Convolution& conv) {
  if (conv.groups > 1) return false;
  const auto is_apart = [](std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
    return stride > (taps - 1) * dilation;
  };
  return (graph.type(conv.image).dtype != conv.dtype || conv.channels % kChunk != 0) &&
         conv.taps.h * conv.taps.w > 1 && is_apart(conv.taps.h, conv.stride.h, conv.dilation.h) &&
         is_apart(conv.taps.w, conv.stride.w, conv.dilation.w);
}

double packing_bytes(const Graph& graph, const Convolution& conv) {
  const bool is_ready = graph.type(conv.image).dtype == conv.dtype && conv.channels % kChunk == 0;
  return is_ready ? 0 : 2. * static_cast<double>(packed_bytes(graph, conv));
}

std::int64_t product_depth(const Graph& graph, const Convolution& conv) {
  return reads_patches(graph, conv) ? patch_row(conv) : conv.depth();
}

namespace {

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

// Where sums of parts lie: behind what there is of scratch.
std::int64_t partial_at(const Lowered& lowered) { return round_up(lowered.scratch_bytes, 1024); }

// A kernel whose problem has all its members: sums of parts are stored, unless there is an
// epilogue.
std::string text_of(const ConvLaunch& launch, const std::string& bounds,
                    const ConvEpilogue* epilogue) {
  std::vector<std::string> parameters = launch.parameters;
  if (epilogue)
    parameters.insert(parameters.end(), epilogue->parameters.begin(), epilogue->parameters.end());
  else
    parameters.emplace_back("float* sums");
  const Extents& numbers = launch.problem;
  TextWriter text;
  text << "#include \"" << launch.header << "\"\nusing namespace tensor::device;\n"
       << numbers.struct_text() << launch.text
       << (epilogue ? epilogue->text + "using E = Epilogue;\n"
                    : "using E = PartialSums<Problem>;\n")
       << "extern \"C\" __global__ __launch_bounds__(" << bounds << ") void KERNEL(\n    "
       << joined(parameters, ",\n    ") << numbers.last_parameter() << ") {\n"
       << numbers.object_text()
       << "  const int part = " << (epilogue ? "0" : "static_cast<int>(blockIdx.y)")
       << ";\n  const E epilogue{"
       << (epilogue ? numbers.member_value(!epilogue->names.empty()) + joined(epilogue->names, ", ")
                    : "problem, sums, part")
       << "};\n  " << launch.run << "\n}\n";
  return text.str();
}

// What adds up the parts, as the last kernel.
ConvLaunch adding_parts(const Convolution& conv, int parts, const Pointer& sums,
                        const Machine& machine) {
  const std::int64_t groups = ceil_div(conv.outputs, kChunk), threads = conv.pixels() * groups;
  ConvLaunch launch;
  launch.header = "conv_tile.h";
  launch.problem = numbers_of_threads(threads, machine);
  launch.problem.number("kPixels", conv.pixels());
  launch.problem.number("kOutputs", conv.outputs);
  launch.problem.divisor("kGroups", groups);
  launch.problem.flag("kWholeOutputs", conv.outputs % kChunk == 0);
  launch.run = "finish_partial_sums<" + std::to_string(parts) + ">(problem, sums, epilogue);";
  launch.parameters = {"const float* sums"};
  launch.arguments = {sums};
  launch.blocks = ceil_div(threads, launch.threads);
  return launch;
}

void add_call(Lowered& lowered, const ConvLaunch& launch, const std::string& bounds,
              const ConvEpilogue* epilogue, const std::string& what, const Machine& machine) {
  Call call;
  call.source.text = text_of(launch, bounds, epilogue);
  call.launch.grid = {static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.parts)};
  call.launch.block = {static_cast<unsigned>(launch.threads)};
  call.launch.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
  call.launch.cluster = launch.cluster;
  call.launch.overlaps_previous = true;
  call.arguments = launch.arguments;
  if (epilogue)
    call.arguments.insert(call.arguments.end(), epilogue->arguments.begin(),
                          epilogue->arguments.end());
  else
    call.arguments.emplace_back(Pointer{Pointer::Base::scratch, 0, partial_at(lowered)});
  launch.problem.add_argument(call.arguments);
  name_kernel(call, machine, what);
  lowered.calls.push_back(std::move(call));
}

}  // namespace

std::string conv_name(const char* how, std::string_view operands, const Convolution& conv,
                      const Machine& machine) {
  return std::string("conv_") + how + "_" + std::string(operands) +
         (conv.dtype == f64 ? "_f64" : "_f32") + (conv.groups > 1 ? "_groups" : "") +
         (machine.any_extent
              ? ""
              : "_" + std::to_string(conv.taps.h) + "x" + std::to_string(conv.taps.w));
}

void add_calls(Lowered& lowered, ConvLaunch launch, const LaidOutGraph& laid, const Group& group,
               const Convolution& conv, const std::string& what, const Machine& machine) {
  const std::string bounds =
      std::to_string(launch.threads) + ", " + std::to_string(launch.resident);
  std::string name = what;
  ConvLaunch adding;
  ConvLaunch* last = &launch;
  if (launch.parts > 1) {
    launch.problem.flag("kWholeOutputs", conv.outputs % kChunk == 0);
    const Pointer sums{Pointer::Base::scratch, 0, partial_at(lowered)};
    add_call(lowered, launch, bounds, nullptr, what + "_part", machine);
    lowered.description = description_of(lowered.calls.back());
    lowered.scratch_bytes =
        sums.bytes + launch.parts * conv.pixels() * conv.outputs * std::int64_t{sizeof(float)};
    adding = adding_parts(conv, launch.parts, sums, machine);
    name = "add_parts_f32_p" + std::to_string(launch.parts);
    last = &adding;
  }
  const ConvEpilogue epilogue = conv_epilogue(laid, group, conv, last->problem);
  if (!epilogue.name.empty()) name += "_" + epilogue.name;
  add_call(lowered, *last, last == &launch ? bounds : std::to_string(last->threads), &epilogue,
           name, machine);
  if (last == &launch) lowered.description = description_of(lowered.calls.back());
}

}  // namespace tensor::cuda
