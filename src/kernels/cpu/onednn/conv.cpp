// The conv family: a convolution with its epilogue as a oneDNN primitive, channels last in and out.
// Whether it copies them to blocks of channels inside is a matter of its schedule (see Form).
// Constant weights are packed once, in the order that the primitive asks for.
#include <algorithm>
#include <map>

#include "src/kernels/cpu/families.h"
#include "src/kernels/cpu/onednn.h"
#include "src/kernels/cpu/onednn_threads.h"
#include "src/kernels/features.h"
#include "src/ops/pair.h"

namespace tensor::cpu {
namespace {

using dnnl::memory;

memory::dims both(const Pair& pair) { return {pair.h, pair.w}; }

Strides channels_last(const Shape& shape) { return strides_in_order(shape, {0, 2, 3, 1}); }

// Up to the strides of axes of extent 1, which mean nothing.
bool same_layout(const Shape& shape, const Strides& a, const Strides& b) {
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] > 1 && a[axis] != b[axis]) return false;
  return true;
}

// One number a channel: [C, 1, 1], [1, C, 1, 1].
bool is_per_channel(const Shape& operand, const Shape& result) {
  const int lead = result.rank() - operand.rank();
  for (int axis = 0; axis < operand.rank(); ++axis)
    if (operand[axis] != (axis + lead == 1 ? result[1] : 1)) return false;
  return lead <= 1;
}

// The number a channel as the primitive sees it.
memory::desc describe_channels(DType dtype, std::int64_t channels) {
  return describe(dtype, {1, channels, 1, 1}, {channels, 1, channels, channels});
}

// [outputs, inputs, h, w], or [groups, outputs, inputs, h, w] a group.
memory::desc describe_weights(const Graph& graph, const Node& node, const Layout& w) {
  const std::int64_t groups = node.attrs.integer("groups"), outputs = w.shape[0] / groups;
  Shape shape{outputs, w.shape[1], w.shape[2], w.shape[3]};
  Strides strides = w.strides;
  if (groups > 1) {
    shape.insert(0, groups);
    strides.insert(0, w.strides[0] * outputs);
  }
  return describe(graph.type(node.inputs[1]).dtype, shape, with_outer_units(shape, strides));
}

// What the primitive is made from. Constant weights leave their layout to the primitive.
struct Problem {
  memory::desc x, weights, bias, out;
  memory::dims stride, dilates, padding;
  dnnl::primitive_attr attributes;
};

Problem problem_of(const Graph& graph, const Anchored& anchored, const Layout& weights,
                   const dnnl::post_ops& post_ops) {
  const Node& node = graph[anchored.anchor];
  const auto pair = [&](std::string_view name) { return pair_of(node.attrs, name, 0, "conv"); };
  const auto image = [&](ValueId id, const Shape& shape) {
    return describe(graph.type(id).dtype, shape, channels_last(shape));
  };
  Problem p;
  p.x = image(node.inputs[0], graph.type(node.inputs[0]).shape);
  p.out = image(anchored.result, node.type.shape);
  p.weights = describe_weights(graph, node, weights);
  if (graph.is_constant(node.inputs[1]))
    p.weights = {p.weights.dims(), p.weights.data_type(), memory::format_tag::any};
  if (node.inputs.size() > 2)
    p.bias = describe(graph.type(node.inputs[2]).dtype, {node.type.shape[1]}, {1});
  const Pair dilation = pair("dilation");
  p.stride = both(pair("stride"));
  p.dilates = {dilation.h - 1, dilation.w - 1};
  p.padding = both(pair("padding"));
  p.attributes.set_post_ops(post_ops);
  p.attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return p;
}

using Convolution = dnnl::convolution_forward;

Convolution::primitive_desc primitive_desc_of(const Problem& p) {
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto method = dnnl::algorithm::convolution_direct;
  const auto desc = p.bias.data.ndims > 0
                        ? Convolution::desc(kind, method, p.x, p.weights, p.bias, p.out, p.stride,
                                            p.dilates, p.padding, p.padding)
                        : Convolution::desc(kind, method, p.x, p.weights, p.out, p.stride,
                                            p.dilates, p.padding, p.padding);
  return {desc, p.attributes, cpu_engine()};
}

// How the primitive sees the images: as they lie, copied to blocks of channels and back, or without
// those pixels that a kernel of size 1x1 never reads. A schedule names one of them and how many
// threads run the kernel.
enum class Form { channels_last, blocks_of_channels, nth_pixels };

constexpr std::pair<Form, std::string_view> kForms[] = {
    {Form::channels_last, "channels_last"},
    {Form::blocks_of_channels, "blocks_of_channels"},
    {Form::nth_pixels, "nth_pixels"}};

// An image whose channels are split in blocks: [N, C / block, block, H, W].
Layout in_blocks(const Layout& image, std::int64_t block) {
  const Shape& n = image.shape;
  const Strides& s = image.strides;
  return {{n[0], n[1] / block, block, n[2], n[3]},
          {s[0], block * s[1], s[1], s[2], s[3]},
          image.offset};
}
// Where its elements lie in oneDNN's nChw8c or nChw16c.
Strides strides_of_blocks(const Shape& image, std::int64_t block) {
  const std::int64_t channels = block * image[2] * image[3];
  return {image[1] / block * channels, channels, 1, block * image[3], block};
}
memory::desc describe_blocks(const memory::desc& image, std::int64_t block) {
  const auto tag = block == 16 ? memory::format_tag::nChw16c : memory::format_tag::nChw8c;
  return {image.dims(), image.data_type(), tag};
}

// The problem with images of that form.
Problem in_form(Problem p, Form form, std::int64_t block) {
  if (form == Form::blocks_of_channels) {
    p.x = describe_blocks(p.x, block);
    p.out = describe_blocks(p.out, block);
  } else if (form == Form::nth_pixels) {
    const memory::dims x = p.x.dims(), out = p.out.dims();
    p.x = memory::desc({x[0], x[1], out[2], out[3]}, p.x.data_type(), memory::format_tag::nhwc);
    p.stride = {1, 1};
  }
  return p;
}

// Whether oneDNN has what the function asks it for; it throws where it has not.
template <class Ask>
bool has(const Ask& ask) {
  try {
    ask();
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

// The forms that a convolution may have, the one of level 0 first. With AVX2 alone oneDNN 2.6.3
// takes twice as long for direct convolutions of images with channels last as for those with blocks
// of channels (3x3, 28 and 55 GFLOP/s a core), so that copying there and back pays; and has no
// strides for some of size 1x1.
struct Forms {
  std::vector<Form> all = {Form::channels_last};
  std::int64_t block = 8;  // channels: as many as a vector has numbers
};

// `name`: of the implementation that oneDNN would choose of images as they lie.
Forms forms_of(const Graph& graph, const Anchored& anchored, const Problem& usual,
               std::string_view name) {
  const Node& node = graph[anchored.anchor];
  const bool has_operands = std::any_of(anchored.steps.begin(), anchored.steps.end(),
                                        [](const EpilogueStep& s) { return s.operand >= 0; });
  Forms forms;
  if (node.op != Op::conv2d || has_operands || !graph.is_constant(node.inputs[1])) return forms;
  if (name.find("avx512") != std::string_view::npos) forms.block = 16;
  const Shape &weight = graph.type(node.inputs[1]).shape, &in = graph.type(node.inputs[0]).shape;
  if (weight[2] * weight[3] == 1 && usual.padding == memory::dims{0, 0} &&
      usual.stride != memory::dims{1, 1})
    forms.all.push_back(Form::nth_pixels);
  else if (in[1] % forms.block == 0 && node.type.shape[1] % forms.block == 0 &&
           node.attrs.integer("groups") == 1)
    forms.all.push_back(Form::blocks_of_channels);
  std::erase_if(forms.all, [&](Form form) {
    return !has([&] { primitive_desc_of(in_form(usual, form, forms.block)); });
  });
  if (name == "jit:avx2") std::reverse(forms.all.begin(), forms.all.end());
  return forms;
}

// What the schedule names, or level 0's.
Form form_of(const Forms& forms, const std::string& schedule) {
  if (schedule.empty()) return forms.all.front();
  const std::string sketch = Schedule::parse(schedule).sketch;
  for (const auto& [form, name] : kForms)
    if (name == sketch && std::count(forms.all.begin(), forms.all.end(), form) > 0) return form;
  return forms.all.front();
}

class ConvBuilder {
 public:
  ConvBuilder(const LaidOutGraph& laid, const Group& group, const Anchored& anchored)
      : laid_(laid), group_(group), anchored_(anchored), node_(laid.graph[anchored.anchor]) {}

  std::unique_ptr<Kernel> build() {
    const ValueId weight = node_.inputs[1], result = anchored_.result;
    const Shape& out_shape = node_.type.shape;
    arguments_.push_back(image(DNNL_ARG_SRC, node_.inputs[0]));
    if (!laid_.graph.is_constant(weight))
      arguments_.push_back({DNNL_ARG_WEIGHTS, operand(weight),
                            describe_weights(laid_.graph, node_, layout(weight))});
    if (node_.inputs.size() > 2) arguments_.push_back(vector(DNNL_ARG_BIAS, node_.inputs[2]));
    PostOps post = post_ops_of(anchored_.steps, [&](ValueId id) { return epilogue_operand(id); });
    arguments_.insert(arguments_.end(), post.arguments.begin(), post.arguments.end());
    Problem problem = problem_of(laid_.graph, anchored_, layout(weight), post.ops);
    const Forms forms =
        forms_of(laid_.graph, anchored_, problem, primitive_desc_of(problem).impl_info_str());
    const Form form = form_of(forms, group_.schedule);
    const std::int64_t block = forms.block;
    problem = in_form(std::move(problem), form, block);
    if (form != Form::channels_last) arguments_.front() = reshaped(form, block, problem);
    arguments_.push_back({DNNL_ARG_DST, group_.reads.size(), problem.out});

    auto kernel = kernel_of(primitive_desc_of(problem));
    kernel->pack_first(std::move(packings_));
    if (form == Form::blocks_of_channels)
      kernel->unpack_last(
          {group_.reads.size(),
           dtype(result),
           {in_blocks(layout(result), block).shape, strides_of_blocks(out_shape, block), 0},
           in_blocks(layout(result), block).strides});
    else if (!same_layout(out_shape, layout(result).strides, channels_last(out_shape)))
      kernel->unpack_last({group_.reads.size(),
                           dtype(result),
                           {out_shape, channels_last(out_shape), 0},
                           layout(result).strides});
    return kernel;
  }

 private:
  const Layout& layout(ValueId id) const { return laid_.layouts[at(id)]; }
  DType dtype(ValueId id) const { return laid_.graph.type(id).dtype; }
  std::size_t operand(ValueId id) const {
    return static_cast<std::size_t>(std::find(group_.reads.begin(), group_.reads.end(), id) -
                                    group_.reads.begin());
  }

  // The image as a copy of that form, in which the problem reads it.
  Argument reshaped(Form form, std::int64_t block, const Problem& problem) {
    const ValueId value = node_.inputs[0];
    const Pair stride = pair_of(node_.attrs, "stride", 0, "conv");
    Layout from = layout(value);
    Strides to;
    if (form == Form::blocks_of_channels) {
      to = strides_of_blocks(from.shape, block);
      from = in_blocks(from, block);
    } else {
      from.strides[2] *= stride.h, from.strides[3] *= stride.w;
      from.shape[2] = node_.type.shape[2], from.shape[3] = node_.type.shape[3];
      to = channels_last(from.shape);
    }
    int packing = arguments_.front().packing;
    if (packing < 0) {
      packing = static_cast<int>(packings_.size());
      packings_.emplace_back();
    }
    packings_[static_cast<std::size_t>(packing)] = {
        operand(value), dtype(value), {from.shape, from.strides, 0}, to};
    return {DNNL_ARG_SRC, operand(value), problem.x, packing};
  }

  // Through a copy unless the operand lies as the primitive wants it.
  Argument argument(int id, ValueId value, const Layout& from, const Strides& to) {
    int packing = -1;
    if (!same_layout(from.shape, from.strides, to)) {
      packings_.push_back({operand(value), dtype(value), {from.shape, from.strides, 0}, to});
      packing = static_cast<int>(packings_.size()) - 1;
    }
    return {id, operand(value), describe(dtype(value), from.shape, to), packing};
  }
  Argument image(int id, ValueId value) {
    return argument(id, value, layout(value), channels_last(layout(value).shape));
  }
  Argument vector(int id, ValueId value) {
    const Layout& from = layout(value);
    std::int64_t stride = 1;
    for (int axis = 0; axis < from.shape.rank(); ++axis)
      if (from.shape[axis] > 1) stride = from.strides[axis];
    return argument(id, value, {{num_elements(from.shape)}, {stride}, 0}, {1});
  }
  Argument epilogue_operand(ValueId id) {
    if (laid_.graph.type(id).shape == node_.type.shape) return image(0, id);
    Argument result = vector(0, id);
    result.desc = describe_channels(dtype(id), node_.type.shape[1]);
    return result;
  }

  std::unique_ptr<OnednnKernel> kernel_of(const Convolution::primitive_desc& desc) {
    auto kernel = std::make_unique<OnednnKernel>(Convolution(desc), std::move(arguments_),
                                                 desc.scratchpad_desc(),
                                                 std::string("onednn ") + desc.impl_info_str());
    const ValueId weight = node_.inputs[1];
    if (laid_.graph.is_constant(weight))
      kernel->own(DNNL_ARG_WEIGHTS,
                  packed(laid_.graph, weight, describe_weights(laid_.graph, node_, layout(weight)),
                         desc.weights_desc()),
                  desc.weights_desc());
    return kernel;
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Anchored& anchored_;
  const Node& node_;
  std::vector<Argument> arguments_;
  std::vector<Packing> packings_;
};

// What oneDNN would choose: the share of the peak that it reaches, and the forms that images may
// have. nullopt when it has none, or would choose a wrong one: its convolution through a matrix
// product takes a residual in channels-last order for another element (2.6.3).
struct Choice {
  double efficiency = 0.3;
  Forms forms = {};
};
std::optional<Choice> choice_of_onednn(const LaidOutGraph& laid, const Anchored& anchored) {
  const Graph& graph = laid.graph;
  const Node& node = graph[anchored.anchor];
  const Layout& weights = laid.layouts[at(node.inputs[1])];
  try {
    bool has_residual = false;
    const PostOps post = post_ops_of(anchored.steps, [&](ValueId id) -> Argument {
      const TensorType& type = graph.type(id);
      const bool whole = type.shape == node.type.shape;
      has_residual |= whole;
      return {0, 0,
              whole ? describe(type.dtype, type.shape, channels_last(type.shape))
                    : describe_channels(type.dtype, node.type.shape[1])};
    });
    const Problem problem = problem_of(graph, anchored, weights, post.ops);
    const std::string name = primitive_desc_of(problem).impl_info_str();
    const bool is_reference = name.find("ref") != std::string::npos;
    const bool is_product = name.find("gemm") != std::string::npos;
    if (is_product && has_residual && !is_reference) return std::nullopt;
    const bool is_depthwise = name.find("dw") != std::string::npos;
    return Choice{is_reference   ? 0.002
                  : is_product   ? 0.5
                  : is_depthwise ? 0.55
                                 : 0.85,
                  forms_of(graph, anchored, problem, name)};
  } catch (const dnnl::error&) {
    return std::nullopt;
  }
}

bool fits(const Graph& graph, const Group& group, const Anchored& anchored,
          const Machine& machine) {
  if (!has_post_ops(anchored.steps) || !counts_in_32_bits(graph, group)) return false;
  const Node& node = graph[anchored.anchor];
  for (const ValueId id : {node.inputs[0], node.inputs[1], anchored.result})
    if (num_elements(graph.type(id).shape) == 0) return false;
  for (const EpilogueStep& step : anchored.steps)
    if (step.operand >= 0 && !(graph.type(step.operand).shape == node.type.shape) &&
        !is_per_channel(graph.type(step.operand).shape, node.type.shape))
      return false;
  for (const ValueId id : group.reads)
    if (!onednn_supports(graph.type(id).dtype)) return false;
  return onednn_supports(graph.type(anchored.result).dtype) &&
         (graph.type(node.inputs[0]).dtype != bf16 || machine.has_bf16);
}

// Where images may have another form than level 0's: the forms, each on any number of threads.
Space space_of(const Forms& forms, const Work& work, const Machine& machine,
               const Estimate& microseconds) {
  Space space;
  const Sketch::Knob knob = threads_knob(machine);
  for (const auto& [form, name] : kForms)
    if (std::count(forms.all.begin(), forms.all.end(), form) > 0)
      space.sketches.push_back({std::string(name), {knob}});
  space.fault = [](const Schedule&) { return std::string(); };
  std::map<int, double> usual;
  for (const int threads : knob.values)
    usual[threads] = microseconds(with_threads(machine, threads));
  constexpr double kOther = 1.2;  // with another form it takes so much longer, more or less
  space.model_us = [=](const Schedule& s) {
    const double time = usual.at(threads_of(s).value_or(machine.threads));
    return form_of(forms, s.text()) == forms.all.front() ? time : kOther * time;
  };
  space.features = [=, model = space.model_us](const Schedule& s) {
    Features f;
    f.flops = work.flops, f.memory_bytes = work.bytes;
    f.threads = f.processors = threads_of(s).value_or(machine.threads);
    const Form form = form_of(forms, s.text());
    f.has_second_kernel = form != Form::channels_last;  // that copies
    if (form == Form::blocks_of_channels) f.tile_columns = static_cast<double>(forms.block);
    f.time.total = model(s);
    return f.values();
  };
  const auto level0 = std::find_if(std::begin(kForms), std::end(kForms), [&](const auto& form) {
    return form.first == forms.all.front();
  });
  space.choose({std::string(level0->second), {{knob.name, machine.threads}}});
  return space;
}

std::optional<Implementation> consider_conv(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const auto anchored = match_anchored(graph, alone.group, Op::conv2d);
  if (!anchored || !fits(graph, alone.group, *anchored, machine)) return std::nullopt;
  const ThreadLimit limit(machine.threads);
  const auto chosen = choice_of_onednn(alone.laid, *anchored);
  if (!chosen) return std::nullopt;
  const bool is_short = graph.type(graph[anchored->anchor].inputs[0]).dtype == bf16;
  const Work work = work_of(graph, alone.group);
  const Estimate microseconds = [=](const Machine& m) {
    const double rate = chosen->efficiency * (is_short ? m.bf16_gflops : m.f32_gflops);
    const double bandwidth = work.bytes > m.cache_bytes ? m.memory_gbps : m.cache_gbps;
    return m.dispatch_us + std::max(work.flops / rate, work.bytes / bandwidth) / 1e3;
  };
  std::function<Space()> space;
  if (chosen->forms.all.size() > 1)
    space = [=] { return space_of(chosen->forms, work, machine, microseconds); };
  return implementation(
      alone, machine, microseconds,
      [=](const Isolated& one, const Machine& m) {
        const ThreadLimit limit(m.threads);
        return ConvBuilder(one.laid, one.group, *anchored).build();
      },
      space);
}

}  // namespace

const Family kConv = {"conv", consider_conv};

}  // namespace tensor::cpu
