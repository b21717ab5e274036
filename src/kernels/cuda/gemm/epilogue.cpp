#include "src/kernels/cuda/gemm/epilogue.h"

#include <algorithm>

#include "src/core/view.h"
#include "src/kernels/cuda/generated/operands.h"

namespace tensor::cuda {
namespace {

// ---- The text of an epilogue.

std::string declaration(const std::string& type, const std::string& name) {
  return "    " + type + " " + name + ";\n";
}

// An operand seen from rows and features of the result.
class Place {
 public:
  Place(const Shape& as, const Strides& strides, std::int64_t offset, std::int64_t features)
      : offset_(offset) {
    int split = as.rank();
    std::int64_t inner = 1;
    while (split > 0 && inner < features) inner *= as[--split];
    is_split_ = inner == features;
    if (!is_split_) split = 0;
    for (int axis = 0; axis < as.rank(); ++axis) {
      (axis < split ? rows_ : columns_).push_back(as[axis]);
      (axis < split ? row_strides_ : column_strides_).push_back(strides[axis]);
      reach_ += std::abs(strides[axis]) * (as[axis] - 1);
    }
    features_ = features;
  }

  // `space`: of the operand.
  std::string text(Extents& numbers, const std::string& space) const {
    if (!is_split_)
      return offset_text(columns_, column_strides_,
                         "(row * " + numbers.term(features_) + " + feature)", numbers, space);
    const std::string row = offset_text(rows_, row_strides_, "row", numbers, space + "_row"),
                      column = offset_text(columns_, column_strides_, "feature", numbers, space);
    const std::string first = reach_ > INT32_MAX ? "i64(" + row + ")" : row;
    return column == "0" ? first : row == "0" ? column : first + " + " + column;
  }
  // Whether every `count` neighbouring features of a row, the first a multiple of that, lie side by
  // side where they can be moved together.
  bool has_packs(int count) const {
    if (!is_split_ || features_ % count != 0 || offset_ % count != 0) return false;
    return offset_text(columns_, column_strides_, "feature") == "feature" &&
           std::all_of(row_strides_.begin(), row_strides_.end(),
                       [=](std::int64_t stride) { return stride % count == 0; });
  }
  bool differs_from_row_to_row() const {
    return !is_split_ || offset_text(rows_, row_strides_, "row") != "0";
  }

 private:
  Shape rows_, columns_;
  Strides row_strides_, column_strides_;
  std::int64_t offset_ = 0, features_ = 1, reach_ = 0;
  bool is_split_ = false;
};

class EpilogueWriter {
 public:
  EpilogueWriter(const LaidOutGraph& laid, const Group& group, const Product& product, Boxed boxed,
                 Extents& numbers, std::string name)
      : laid_(laid),
        group_(group),
        product_(product),
        boxed_(boxed),
        numbers_(numbers),
        name_(std::move(name)) {}

  void add_corrections(const Pointer& corrections) {
    const std::string features = numbers_.term(product_.n);
    add_member("const float", "corrections", corrections);
    inputs_ += declaration("float", "column_sum") + declaration("float", "shift");
    const auto one = [&](const std::string& to, const std::string& index) {
      return "    " + to + ".column_sum = corrections[" + index + "];\n    " + to +
             ".shift = corrections[" + features + " + " + index + "];\n";
    };
    add_member("const float", "given_sums", operand_of(group_, product_.norm->sums, false));
    load_ += one("in", "feature");
    load_pair_ += one("in", "feature") + one("next", "feature + 1");
    methods_ += "  float gain() const { return corrections[2 * " + features + "]; }\n";
  }

  Epilogue run() {
    for (const ValueId id : product_.elementwise)
      if (const Op op = laid_.graph[id].op; op != Op::astype && op != Op::copy)
        result_.name += (result_.name.empty() ? "" : "_") + std::string(info(op).name);
    if (result_.name.size() > 60) result_.name.resize(result_.name.rfind('_', 60));
    const auto& loads = product_.code.loads;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      if (static_cast<int>(i) == boxed_.load)
        add_boxed_load(loads[i]);
      else
        add_load(loads[i]);
    }
    for (std::size_t i = 0; i < group_.writes.size(); ++i) {
      if (group_.writes[i] == product_.row_sums)
        add_row_sums();
      else
        add_write(static_cast<int>(i));
    }
    add_scales();
    methods_ += flag_text("kStoresEight", stores_eight_);
    result_.text =
        "struct " + name_ + " {\n" + numbers_.member_text() + members_ + "  struct Inputs {\n" +
        inputs_ + "  };\n  struct Outputs {\n" + outputs_ +
        "  };\n"
        "  void load(Inputs& in, int row, int feature) const {\n" +
        load_ +
        "  }\n"
        "  void load_pair(Inputs& in, Inputs& next, int row, int feature) const {\n" +
        load_pair_ +
        "  }\n"
        "  static Outputs finish(float sum, const Inputs& in) {\n" +
        aliases_ + product_.code.body + "    return {" + results_ +
        "};\n  }\n"
        "  static auto staged(const Outputs& out) { return " +
        (boxed_.write < 0 ? "0.0f" : "out.y" + std::to_string(boxed_.write)) +
        "; }\n"
        "  void store(const Outputs& out, int row, int feature) const {\n" +
        store_ +
        "  }\n"
        "  void store_pair(const Outputs& out, const Outputs& next, int row, int feature)"
        " const {\n" +
        store_pair_ + "  }\n" + methods_ + "};\n";
    return std::move(result_);
  }

 private:
  Place place(ValueId id, const Shape& as) const {
    const Layout& layout = laid_.layouts[at(id)];
    return {as, broadcast_strides(layout.shape, layout.strides, as), layout.offset, product_.n};
  }

  std::string address_of(const std::string& pointer, const Place& where) {
    return pointer + "[" + where.text(numbers_, name_ + "_" + pointer) + "]";
  }

  void add_member(const std::string& type, const std::string& name, const Pointer& pointer) {
    members_ += "  " + type + "* " + name + ";\n";
    result_.parameters.push_back(type + "* " + name);
    result_.arguments.emplace_back(pointer);
  }
  void add_member(const std::string& type, const std::string& name, int operand) {
    add_member(type, name, Pointer{Pointer::Base::operand, operand, 0});
  }

  void add_input(const std::string& type, const std::string& name) {
    inputs_ += declaration(type, name);
    aliases_ += "    const " + type + " " + name + " = in." + name + ";\n";
  }

  void add_boxed_load(const ElementCode::Load& load) {
    add_input(std::string(compute_type(laid_.graph.type(load.value).dtype)), load.name);
    methods_ += "  static void take(Inputs& in, float value) { in." + load.name + " = value; }\n";
  }

  // Of what is stored, as it is rounded.
  void add_row_sums() {
    const ValueId rows = laid_.graph[product_.row_sums].inputs[0];
    const auto place = std::find(group_.writes.begin(), group_.writes.end(), rows);
    add_member("float", "row_sums", operand_of(group_, product_.row_sums, true));
    methods_ += "  static float summed(const Outputs& out) {\n    return value_of(stored<" +
                std::string(device_type(laid_.graph.type(rows).dtype)) + ">(out.y" +
                std::to_string(place - group_.writes.begin()) + "));\n  }\n";
  }

  // Of sums in eight bits.
  void add_scales() {
    methods_ += flag_text("kScales", product_.column_scales >= 0);
    if (product_.column_scales < 0) return;
    add_scale("row_scale", "int row", product_.row_scales);
    add_scale("column_scale", "int feature", product_.column_scales);
  }
  void add_scale(const std::string& name, const std::string& parameter, ValueId scales) {
    std::string value = "1.0f";
    if (scales >= 0) {
      add_member("const float", name + "s", operand_of(group_, scales, false));
      value = address_of(name + "s", place(scales, laid_.graph.type(product_.matmul).shape));
    }
    methods_ += "  float " + name + "(" + parameter + ") const { return " + value + "; }\n";
  }

  void add_load(const ElementCode::Load& load) {
    const int operand = operand_of(group_, load.value, false);
    const DType dtype = laid_.graph.type(load.value).dtype;
    const std::string pointer = "r_" + load.name, type(compute_type(dtype));
    add_member("const " + std::string(device_type(dtype)), pointer, operand);
    const Place where = place(load.value, load.as);
    if (where.differs_from_row_to_row()) ++result_.loads;
    if (!laid_.graph.is_constant(root_of(laid_.graph, load.value))) result_.reads_constants = false;
    add_input(type, load.name);
    const std::string address = address_of(pointer, where);
    load_ += "    in." + load.name + " = value_of(" + address + ");\n";
    if (where.has_packs(2))
      load_pair_ += "    {\n      " + type + " pair[2];\n      load_pack<2>(pair, &" + address +
                    ");\n      in." + load.name + " = pair[0], next." + load.name +
                    " = pair[1];\n    }\n";
    else
      load_pair_ += "    in." + load.name + " = value_of(" + address + ");\n    {\n" +
                    "      const int next_feature = feature + 1, feature = next_feature;\n" +
                    "      next." + load.name + " = value_of(" + address + ");\n    }\n";
  }

  void add_write(int i) {
    const ValueId id = group_.writes[static_cast<std::size_t>(i)];
    const TensorType& type = laid_.graph.type(id);
    const std::string name = "y" + std::to_string(i), element(device_type(type.dtype));
    outputs_ += declaration(std::string(compute_type(type.dtype)), name);
    results_ += (results_.empty() ? "" : ", ") + product_.code.results.at(id);
    if (i == boxed_.write) return;
    const std::string pointer = "w" + std::to_string(i);
    add_member(element, pointer, operand_of(group_, id, true));
    const Place where = place(id, type.shape);
    const std::string address = address_of(pointer, where);
    const auto one = [&](const std::string& from) {
      return address + " = stored<" + element + ">(" + from + "." + name + ");\n";
    };
    store_ += "    " + one("out");
    if (type.dtype == i8 && group_.writes.size() == 1 && where.has_packs(8)) {
      stores_eight_ = true;
      methods_ += "  void store_eight(const u32 (&bytes)[2], int row, int feature) const {\n" +
                  std::string("    store_pack<2>(reinterpret_cast<u32*>(&") + address +
                  "), bytes);\n  }\n";
    }
    if (where.has_packs(2))
      store_pair_ += "    {\n      const " + std::string(compute_type(type.dtype)) +
                     " pair[2] = {out." + name + ", next." + name + "};\n      store_pack<2>(&" +
                     address + ", pair);\n    }\n";
    else
      store_pair_ += "    " + one("out") + "    {\n" +
                     "      const int next_feature = feature + 1, feature = next_feature;\n" +
                     "      " + one("next") + "    }\n";
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Product& product_;
  const Boxed boxed_;
  Extents& numbers_;
  const std::string name_;
  bool stores_eight_ = false;  // bytes that lie side by side
  Epilogue result_;
  std::string members_, inputs_, outputs_, load_, load_pair_, aliases_, results_, store_,
      store_pair_, methods_;
};

}  // namespace

std::optional<Factor> rows_of_features(const LaidOutGraph& laid, ValueId value,
                                       const Product& product) {
  const Layout& layout = laid.layouts[at(value)];
  Factor factor{value, product.m, product.n, 0, 1};
  factor.offset = layout.offset;
  int axis = layout.shape.rank();
  // Takes axes from the innermost on until they have `count` elements, all at one distance, which
  // must be `stride` unless that is 0.
  const auto take = [&](std::int64_t count, std::int64_t& stride) {
    std::int64_t taken = 1;
    for (; taken < count && axis > 0; --axis) {
      const std::int64_t extent = layout.shape[axis - 1], step = layout.strides[axis - 1];
      if (extent == 1) continue;
      if (stride == 0) stride = step;
      if (step != stride * taken) return false;
      taken *= extent;
    }
    return taken == count;
  };
  if (!take(product.n, factor.k_stride)) return std::nullopt;
  if (!take(product.m, factor.row_stride)) return std::nullopt;
  for (std::int64_t step = 1; axis > 0; step *= layout.shape[--axis])
    factor.add_axis(layout.shape[axis - 1], layout.strides[axis - 1], step);
  return factor;
}

namespace {

bool fits_boxes(const LaidOutGraph& laid, ValueId value, const Product& product) {
  const auto f = rows_of_features(laid, value, product);
  const bool is_byte = item_size(laid.graph.type(value).dtype) == 1;
  return f && f->settled().fits_boxes(is_byte ? i8 : f16);
}

}  // namespace

int boxed_bytes(DType dtype) {
  return dtype == i8 ? 1 : item_size(dtype) == 2 && is_floating(dtype) ? 2 : 0;
}

int boxed_write(const LaidOutGraph& laid, const Group& group, const Product& product,
                bool takes_bytes) {
  int best = -1, most = takes_bytes ? 0 : 1;
  for (std::size_t i = 0; i < group.writes.size(); ++i) {
    const int bytes = boxed_bytes(laid.graph.type(group.writes[i]).dtype);
    if (bytes > most && fits_boxes(laid, group.writes[i], product))
      best = static_cast<int>(i), most = bytes;
  }
  return best;
}

std::vector<Boxed> addends(const Graph& graph, const Group& group, const Product& product) {
  const std::int64_t elements = num_elements(graph.type(product.matmul).shape);
  std::vector<Boxed> result;
  for (std::size_t load = 0; load < product.code.loads.size(); ++load)
    for (std::size_t write = 0; write < group.writes.size(); ++write) {
      const TensorType& type = graph.type(product.code.loads[load].value);
      if (group.writes[write] != product.row_sums && num_elements(type.shape) == elements &&
          is_floating(type.dtype) && item_size(type.dtype) <= 4 &&
          type.dtype == graph.type(group.writes[write]).dtype)
        result.push_back({static_cast<int>(write), static_cast<int>(load)});
    }
  return result;
}

Boxed boxed_addend(const LaidOutGraph& laid, const Group& group, const Product& product) {
  for (const Boxed& pair : addends(laid.graph, group, product))
    if (fits_boxes(laid, product.code.loads[at(pair.load)].value, product) &&
        fits_boxes(laid, group.writes[at(pair.write)], product))
      return pair;
  return {};
}

Epilogue epilogue_of(const LaidOutGraph& laid, const Group& group, const Product& product,
                     Boxed boxed, Extents& numbers, const std::string& name,
                     const std::optional<Pointer>& corrections) {
  EpilogueWriter writer(laid, group, product, boxed, numbers, name);
  if (corrections) writer.add_corrections(*corrections);
  return writer.run();
}

std::string Epilogue::more_parameters() const {
  std::string all;
  for (const std::string& parameter : parameters) all += ",\n    " + parameter;
  return all;
}

std::string Epilogue::object_text(const Extents& numbers) const {
  std::string members;
  for (const std::string& parameter : parameters)
    members += (members.empty() ? "" : ", ") + parameter.substr(parameter.rfind(' ') + 1);
  return "  const Epilogue epilogue{" + numbers.member_value(!members.empty()) + members + "};\n";
}

}  // namespace tensor::cuda
