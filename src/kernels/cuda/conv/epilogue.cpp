// The text of a convolution's epilogue: where each value lies, a vector of channels at a time.
#include <algorithm>

#include "src/kernels/cuda/conv/conv.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor::cuda {
namespace {

// One operand, seen as [images, outputs, height, width], broadcast axes with steps of 0.
struct Access {
  ValueId id = -1;
  std::string name, type;  // of the pointer, and of its elements
  ImageSteps steps;
  bool is_line = false;    // the same for every pixel
  bool is_packed = false;  // see Channels in templates/conv_tile.h
};

std::string channels_type(const Access& a) {
  return "Channels<" + a.type + ", kCount, " + (a.is_packed ? "true" : "false") + ">";
}

class Writer {
 public:
  Writer(const LaidOutGraph& laid, const Group& group, const Convolution& conv, Extents& numbers)
      : laid_(laid),
        group_(group),
        conv_(conv),
        numbers_(numbers),
        outputs_(numbers.term(conv.outputs)) {
    for (const auto& load : conv.code.loads) add(reads_, load.value, "r");
    if (conv.bias >= 0) {
      // A vector: its axis is the channels'.
      Access& bias = add(reads_, conv.bias, "bias");
      bias.steps = {0, layout(conv.bias).strides[0], 0, 0};
      judge(bias);
    }
    if (conv.scales >= 0) {
      Access& scales = add(reads_, conv.scales, "scales");
      scales.steps = {0, layout(conv.scales).strides[0], 0, 0};
      judge(scales);
    }
    for (const ValueId id : group.writes) add(writes_, id, "w");
  }

  ConvEpilogue run() {
    ConvEpilogue e;
    for (const ValueId id : conv_.elementwise) {
      const std::string name(info(laid_.graph[id].op).name);
      if (name != "astype") e.name += (e.name.empty() ? "" : "_") + name;
    }
    TextWriter text;
    text << "struct Epilogue {\n" << numbers_.member_text();
    const auto member = [&](const Access& a, bool is_read) {
      const std::string pointer = (is_read ? "const " : "") + a.type + "* " + a.name;
      text << "  " << pointer << ";\n";
      e.parameters.push_back(pointer);
      e.names.push_back(a.name);
      e.arguments.emplace_back(operand_pointer(laid_, group_, a.id));
    };
    for (const Access& a : reads_) member(a, true);
    for (const Access& a : writes_) member(a, false);
    loads(text, "Line", "line(int channel)", true);
    loads(text, "Pixel", "pixel(int pixel, int channel)", false);
    finish(text);
    text << "};\n";
    e.text = text.str();
    return e;
  }

 private:
  const Layout& layout(ValueId id) const { return laid_.layouts[at(id)]; }

  Access& add(std::vector<Access>& to, ValueId id, const std::string& prefix) {
    const std::string name = prefix + std::to_string(id);
    for (Access& known : to)
      if (known.name == name) return known;
    Access a{id, name, std::string(device_type(laid_.graph.type(id).dtype)),
             image_steps(laid_, id)};
    judge(a);
    return to.emplace_back(a);
  }

  void judge(Access& a) const {
    const ImageSteps& s = a.steps;
    a.is_line = s.image == 0 && s.row == 0 && s.column == 0;
    const auto is_whole = [](std::int64_t step) { return step % 8 == 0; };
    a.is_packed = s.channel == 1 && conv_.outputs % 8 == 0 && is_whole(layout(a.id).offset) &&
                  is_whole(s.image) && is_whole(s.row) && is_whole(s.column);
  }

  // The offset of a pixel and a channel: without divisions where pixels follow each other.
  std::string offset(const Access& a) {
    const ImageSteps& s = a.steps;
    const Pair& size = conv_.out_size;
    const auto product = [&](const std::string& index, std::int64_t step) {
      return "i64(" + index + ")" + (step == 1 ? "" : " * " + numbers_.term(step));
    };
    std::string text = s.channel == 0 ? "0" : product("channel", s.channel);
    const auto plus = [&](const std::string& index, std::int64_t step) {
      if (step != 0) text += " + " + product(index, step);
    };
    const bool has_images = conv_.images > 1;
    if ((size.h == 1 || s.row == s.column * size.w) &&
        (!has_images || s.image == s.column * size.w * size.h)) {
      plus("pixel", s.column);
    } else {
      const std::string width = numbers_.divided_by("width", size.w),
                        area = numbers_.divided_by("area", size.h * size.w);
      if (has_images) plus("pixel / " + area, s.image);
      plus("pixel % " + area + " / " + width, size.h > 1 ? s.row : 0);
      plus("pixel % " + width, size.w > 1 ? s.column : 0);
    }
    return text;
  }

  // How far apart channels are.
  std::string channel_step(const Access& a) {
    const std::int64_t step = a.steps.channel;
    return step == 0 || step == 1 ? std::to_string(step) : numbers_.term(step);
  }
  std::string channels_left() const { return outputs_ + " - channel"; }

  void loads(TextWriter& text, const char* type, const char* function, bool of_line) {
    text << "  template <int kCount>\n  struct " << type << " {\n";
    for (const Access& a : reads_)
      if (a.is_line == of_line) text << "    " << channels_type(a) << " " << a.name << ";\n";
    text << "  };\n  template <int kCount>\n  " << type << "<kCount> " << function
         << " const {\n    " << type << "<kCount> read;\n";
    for (const Access& a : reads_)
      if (a.is_line == of_line)
        text << "    read." << a.name << ".load(" << a.name << " + (" << offset(a) << "), "
             << channel_step(a) << ", " << channels_left() << ");\n";
    text << "    return read;\n  }\n";
  }

  void finish(TextWriter& text) {
    const char* sum = conv_.dtype == f64 ? "double" : "float";
    text << "  template <int kCount>\n  void finish(const " << sum
         << " (&sums)[kCount], const Line<kCount>& line,\n"
            "              const Pixel<kCount>& read, int pixel, int channel) const {\n";
    for (const Access& a : writes_)
      text << "    Compute<" << a.type << "> " << a.name << "_[kCount];\n";
    text << "#pragma unroll\n    for (int i = 0; i < kCount; ++i) {\n      const " << sum
         << " sum = sums[i]";
    for (const Access& a : reads_)
      if (a.id == conv_.bias && a.name.starts_with("bias"))
        text << " + line." << a.name << "[i]";
      else if (a.id == conv_.scales && a.name.starts_with("scales"))
        text << " * line." << a.name << "[i]";
    text << ";\n";
    for (const auto& load : conv_.code.loads)
      for (const Access& a : reads_)
        if (a.id == load.value && a.name.starts_with("r"))
          text << "      const auto " << load.name << " = " << (a.is_line ? "line." : "read.")
               << a.name << "[i];\n";
    text << conv_.code.body;
    for (const Access& a : writes_)
      text << "      " << a.name << "_[i] = " << conv_.code.results.at(a.id) << ";\n";
    text << "    }\n";
    for (const Access& a : writes_)
      text << "    store_channels<" << (a.is_packed ? "true" : "false") << ">(" << a.name << " + ("
           << offset(a) << "), " << a.name << "_, " << channel_step(a) << ", " << channels_left()
           << ");\n";
    text << "  }\n";
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Convolution& conv_;
  Extents& numbers_;
  const std::string outputs_;  // how many there are
  std::vector<Access> reads_, writes_;
};

}  // namespace

ConvEpilogue conv_epilogue(const LaidOutGraph& laid, const Group& group, const Convolution& conv,
                           Extents& numbers) {
  return Writer(laid, group, conv, numbers).run();
}

ImageSteps image_steps(const LaidOutGraph& laid, ValueId id) {
  const Layout& l = laid.layouts[at(id)];
  std::int64_t steps[4] = {};
  const int rank = l.shape.rank();
  for (int axis = 0; axis < rank; ++axis)
    if (l.shape[axis] > 1) steps[4 - rank + axis] = l.strides[axis];
  return {steps[0], steps[1], steps[2], steps[3]};
}

Pointer operand_pointer(const LaidOutGraph&, const Group& group, ValueId id) {
  auto place = std::find(group.writes.begin(), group.writes.end(), id);
  if (place != group.writes.end())
    return {Pointer::Base::operand,
            static_cast<int>(std::ssize(group.reads) + (place - group.writes.begin())), 0};
  place = std::find(group.reads.begin(), group.reads.end(), id);
  if (place == group.reads.end()) internal_error("conv", "the group does not read %", id);
  return {Pointer::Base::operand, static_cast<int>(place - group.reads.begin()), 0};
}

}  // namespace tensor::cuda
