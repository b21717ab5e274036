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
  const ImageSteps s = image_steps(laid, conv.image);
  const Layout& l = laid.layouts[at(conv.image)];
  return laid.graph.type(conv.image).dtype == conv.dtype && s.channel == 1 &&
         conv.channels % kChunk == 0 && s.image % kChunk == 0 && s.row % kChunk == 0 &&
         s.column % kChunk == 0 && l.offset % kChunk == 0;
}

// Channels that a packed pixel has when a tap is a row of pixels, 0 when it is not: pixels that a
// window begins with must lie at multiples of 16 bytes.
std::int64_t row_channels(const Convolution& conv) {
  if (conv.dilation.w != 1 || conv.taps.w == 1) return 0;
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
               const std::string& function, const std::string& more, std::int64_t threads,
               const Machine& machine) {
  const ImageSteps s = image_steps(laid, conv.image);
  const DType from = laid.graph.type(conv.image).dtype;
  TextWriter text;
  text << "#include \"conv_plain.h\"\nusing namespace tensor::device;\nstruct Problem {\n"
       << "  using From = " << device_type(from) << ";\n  using To = " << device_type(conv.dtype)
       << ";\n"
       << constant_text("k", conv.size, "Height", "Width") << constant_text("kFrom", conv.channels)
       << constant_text("kImageStep", s.image) << constant_text("kChannelStep", s.channel)
       << constant_text("kRowStep", s.row) << constant_text("kColumnStep", s.column) << more
       << "};\nextern \"C\" __global__ __launch_bounds__(256) void KERNEL(const Problem::From* "
          "image,\n    Problem::To* packed) {\n  "
       << function << "<Problem>(image, packed);\n}\n";
  Call call;
  call.source.text = text.str();
  call.launch.grid = {static_cast<unsigned>(ceil_div(threads, 256))};
  call.launch.block = {256};
  call.launch.overlaps_previous = true;
  call.arguments = {operand_pointer(laid, group, conv.image),
                    Pointer{Pointer::Base::scratch, 0, 0}};
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
  p.channels = p.pixel_channels = packed.channels;
  if (few > 0) {
    p.channels = round_up(conv.taps.w * few, kChunk);
    p.size.w = conv.out_size.w;
    p.steps.column = conv.stride.w * few;
    p.taps.w = p.stride.w = p.dilation.w = 1;
    p.padding = 0;
  }
  p.before = pack_call(
      laid, group, conv, "pack_image",
      constant_text("kImages", conv.images) +
          constant_text("kOut", packed.size, "Height", "Width") +
          constant_text("kChannels", packed.channels) +
          constant_text("kPad", packed.padding, "Y", "X"),
      conv.images * packed.size.h * packed.size.w * ceil_div(packed.channels, kChunk), machine);
}

// The problem on a matrix of windows.
void pack_patches(TensorProblem& p, const LaidOutGraph& laid, const Group& group,
                  const Convolution& conv, const Machine& machine) {
  const std::int64_t row = patch_row(conv);
  p.before = pack_call(laid, group, conv, "pack_patches",
                       window_text(conv, p) + constant_text("kRow", row),
                       conv.pixels() * (row / kChunk), machine);
  p.are_patches = true;
  p.channels = row;
  p.size = conv.out_size;
  p.taps = p.stride = p.dilation = 1;
  p.padding = 0;
  p.steps = {conv.out_size.h * conv.out_size.w * row, 1, conv.out_size.w * row, row};
}

}  // namespace

std::string constant_text(const char* name, const Pair& pair, const char* h, const char* w) {
  return constant_text((name + std::string(h)).c_str(), pair.h) +
         constant_text((name + std::string(w)).c_str(), pair.w);
}

std::string window_text(const Convolution& conv, const TensorProblem& p) {
  return constant_text("kTap", p.taps, "Rows", "Columns") +
         constant_text("kStride", p.stride, "Y", "X") + constant_text("kPad", p.padding, "Y", "X") +
         constant_text("kDilation", p.dilation, "Y", "X") +
         constant_text("kOut", conv.out_size, "Height", "Width") +
         constant_text("kPixels", conv.pixels()) + constant_text("kOutputs", conv.outputs);
}

std::string problem_text(const Convolution& conv, const TensorProblem& p) {
  return "  using Element = " + std::string(device_type(conv.dtype)) + ";\n" +
         constant_text("k", p.size, "Height", "Width") + constant_text("kChannels", p.channels) +
         constant_text("kImageStep", p.steps.image) +
         constant_text("kChannelStep", p.steps.channel) + constant_text("kRowStep", p.steps.row) +
         constant_text("kColumnStep", p.steps.column) + window_text(conv, p);
}

TensorProblem tensor_problem(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                             const Machine& machine) {
  TensorProblem p;
  p.channels = p.pixel_channels = conv.channels;
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

struct ConvKernel {
  std::string header, structs, run;     // as of ConvLaunch
  std::vector<std::string> parameters;  // before those of the epilogue
  std::string bounds;
};

// `is_last`: with the epilogue; else sums of a part are stored.
std::string text_of(const ConvKernel& kernel, const Convolution& conv, const ConvEpilogue& epilogue,
                    bool is_last) {
  const std::string sums =
      "PartialSums<" + std::to_string(conv.pixels()) + ", " + std::to_string(conv.outputs) + ">";
  std::vector<std::string> parameters = kernel.parameters;
  if (is_last)
    parameters.insert(parameters.end(), epilogue.parameters.begin(), epilogue.parameters.end());
  else
    parameters.emplace_back("float* sums");
  TextWriter text;
  text << "#include \"" << kernel.header << "\"\nusing namespace tensor::device;\n"
       << kernel.structs
       << (is_last ? epilogue.text + "using E = Epilogue;\n" : "using E = " + sums + ";\n")
       << "extern \"C\" __global__ __launch_bounds__(" << kernel.bounds << ") void KERNEL(\n    "
       << joined(parameters, ",\n    ")
       << ") {\n  const int part = " << (is_last ? "0" : "static_cast<int>(blockIdx.y)")
       << ";\n  const E epilogue{" << (is_last ? joined(epilogue.names, ", ") : "sums, part")
       << "};\n  " << kernel.run << "\n}\n";
  return text.str();
}

// What adds up the parts, as the last kernel.
ConvKernel adding_parts(const Convolution& conv, int parts) {
  return {"conv_tile.h",
          "",
          "finish_partial_sums<" + std::to_string(conv.pixels()) + ", " +
              std::to_string(conv.outputs) + ", " + std::to_string(parts) + ">(sums, epilogue);",
          {"const float* sums"},
          "256"};
}

}  // namespace

std::string conv_name(const char* how, std::string_view operands, const Convolution& conv) {
  return std::string(conv.is_transposed ? "conv_transpose_" : "conv_") + how + "_" +
         std::string(operands) + (conv.dtype == f64 ? "_f64_" : "_f32_") +
         std::to_string(conv.taps.h) + "x" + std::to_string(conv.taps.w);
}

void add_calls(Lowered& lowered, const ConvLaunch& launch, const Convolution& conv,
               const ConvEpilogue& epilogue, const std::string& what, const Machine& machine) {
  const bool has_parts = launch.parts > 1;
  const std::int64_t sums_at = round_up(lowered.scratch_bytes, 1024);
  Call call;
  call.source.text =
      text_of({launch.header, launch.text, launch.run, launch.parameters,
               std::to_string(launch.threads) + ", " + std::to_string(launch.resident)},
              conv, epilogue, !has_parts);
  call.launch.grid = {static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.parts)};
  call.launch.block = {static_cast<unsigned>(launch.threads)};
  call.launch.shared_bytes = static_cast<unsigned>(launch.shared_bytes);
  call.launch.cluster = launch.cluster;
  call.launch.overlaps_previous = true;
  call.arguments = launch.arguments;
  const Pointer partial{Pointer::Base::scratch, 0, sums_at};
  const std::string last = epilogue.name.empty() ? "" : "_" + epilogue.name;
  if (has_parts) {
    call.arguments.emplace_back(partial);
    name_kernel(call, machine, what + "_part");
    lowered.description = description_of(call);
    lowered.calls.push_back(std::move(call));
    lowered.scratch_bytes =
        sums_at + launch.parts * conv.pixels() * conv.outputs * std::int64_t{sizeof(float)};
    call = {};
    call.source.text = text_of(adding_parts(conv, launch.parts), conv, epilogue, true);
    const std::int64_t threads = conv.pixels() * ceil_div(conv.outputs, kChunk);
    call.launch.grid = {static_cast<unsigned>(ceil_div(threads, 256))};
    call.launch.block = {256};
    call.launch.overlaps_previous = true;
    call.arguments = {partial};
  }
  call.arguments.insert(call.arguments.end(), epilogue.arguments.begin(), epilogue.arguments.end());
  name_kernel(call, machine,
              (has_parts ? "add_parts_f32_p" + std::to_string(launch.parts) : what) + last);
  if (!has_parts) lowered.description = description_of(call);
  lowered.calls.push_back(std::move(call));
}

}  // namespace tensor::cuda
