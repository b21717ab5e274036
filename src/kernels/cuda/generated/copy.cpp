// The copy family: concatenate, pad, take, take_along_axis and sums of pieces of rows, with
// elementwise operators behind.
#include <algorithm>

#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/pack_kernel.h"
#include "src/ops/gather.h"
#include "tensor/tensor.h"

namespace tensor::cuda {
namespace {

using Texts = std::vector<std::string>;

int axis_of(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  return normalize_axis(node.attrs.integer("axis"), graph.type(node.inputs[0]).shape.rank(),
                        "copy");
}

std::string& along(Texts& place, int axis) { return place[static_cast<std::size_t>(axis)]; }

void declare(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  w.text << compute_type(graph.type(id).dtype) << " " << to << "[" << w.pack() << "];\n";
}

double once(const Graph&, ValueId) { return 1; }

// ---- concatenate.

bool accepts_concatenate(const Graph& graph, ValueId id) {
  constexpr std::size_t kMostParts = 64;  // each is a branch
  const auto& parts = graph[id].inputs;
  return parts.size() <= kMostParts && std::all_of(parts.begin(), parts.end(), [&](ValueId part) {
           return num_elements(graph.type(part).shape) > 0;
         });
}

bool fits_concatenate(const Graph& graph, ValueId id, int inner, int pack) {
  const int axis = axis_of(graph, id);
  const auto& parts = graph[id].inputs;
  return axis != inner || std::all_of(parts.begin(), parts.end(), [&](ValueId part) {
           return graph.type(part).shape[axis] % pack == 0;
         });
}

void write_concatenate(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  const int axis = axis_of(graph, id);
  declare(graph, id, w, to);
  std::int64_t start = 0;
  const auto& parts = graph[id].inputs;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    Texts place = w.coordinates();
    const std::string own = along(place, axis);
    const std::int64_t end = start + graph.type(parts[k]).shape[axis];
    if (k > 0) w.text << "else ";
    if (k + 1 < parts.size()) w.text << "if (" << own << " < " << w.numbers.term(end) << ") ";
    if (start > 0) along(place, axis) = own + " - " + w.numbers.term(start);
    w.text << "{\n";
    w.load(to, k, place, w.inner(), true);
    w.text << "}\n";
    start = end;
  }
}

// ---- pad.

bool accepts_pad(const Graph& graph, ValueId id) {
  return num_elements(graph.type(graph[id].inputs[0]).shape) > 0;
}

bool fits_pad(const Graph& graph, ValueId id, int inner, int pack) {
  return graph[id].attrs.dims("before")[inner] % pack == 0 &&
         graph.type(graph[id].inputs[0]).shape[inner] % pack == 0;
}

void write_pad(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  const Dims before = graph[id].attrs.dims("before");
  const Shape& inside = graph.type(graph[id].inputs[0]).shape;
  Texts place = w.coordinates();
  std::string condition = "true";
  for (int axis = 0; axis < inside.rank(); ++axis) {
    if (graph.type(id).shape[axis] == inside[axis]) continue;
    if (before[axis] > 0) along(place, axis) += " - " + w.numbers.term(before[axis]);
    // As an unsigned number a place before the first one is a large one.
    condition +=
        " && unsigned(" + along(place, axis) + ") < unsigned(" + w.numbers.term(inside[axis]) + ")";
  }
  declare(graph, id, w, to);
  w.text << "if (" << condition << ") {\n";
  w.load(to, 0, place, w.inner(), true);
  w.text << "} else {\n";
  w.load(to, 1, {}, -1, false);
  w.text << "}\n";
}

// ---- take and take_along_axis, of indices that are constant, clipped or were checked by who runs
// it: a kernel cannot report wrong ones.

bool is_clipped(const Node& node) { return node.attrs.flag("clip", false); }

bool indices_are_known(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  if (node.attrs.flag("checked", false)) return true;
  if (!is_clipped(node) && !graph.is_constant(node.inputs[1])) return false;
  const std::int64_t extent = graph.type(node.inputs[0]).shape[axis_of(graph, id)];
  if (is_clipped(node)) return extent > 0;
  const auto indices = graph[node.inputs[1]].constant.to_vector<std::int64_t>();
  return std::all_of(indices.begin(), indices.end(),
                     [&](std::int64_t i) { return i >= -extent && i < extent; });
}

int index_rank(const Graph& graph, ValueId id) {
  return graph.type(graph[id].inputs[1]).shape.rank();
}

bool fits_take(const Graph& graph, ValueId id, int inner, int pack) {
  const int axis = axis_of(graph, id);
  return pack == 1 || inner < axis || inner >= axis + index_rank(graph, id);
}

// Declares `index`, a place along `axis` of the first operand.
void write_index(SourceWriter& w, const Texts& place, int axis, bool clips) {
  const std::string extent = w.numbers.term(w.operands[0].layout.shape[axis]);
  w.text << "long long found[" << w.pack() << "];\n";
  w.load("found", 1, place, -1, false);
  if (clips)
    w.text << "found[0] = found[0] < -(long long)(" << extent << ") ? -(long long)(" << extent
           << ") : found[0] >= " << extent << " ? " << extent << " - 1 : found[0];\n";
  w.text << "const int index = int(found[0] < 0 ? found[0] + " << extent << " : found[0]);\n";
}

void write_take(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  const int axis = axis_of(graph, id), indices = index_rank(graph, id);
  const Texts& all = w.coordinates();
  declare(graph, id, w, to);
  w.text << "{\n";
  write_index(w, Texts(all.begin() + axis, all.begin() + axis + indices), axis,
              is_clipped(graph[id]));
  Texts place(all.begin(), all.begin() + axis);
  place.push_back("index");
  place.insert(place.end(), all.begin() + axis + indices, all.end());
  const int along = w.inner() < axis ? w.inner() : w.inner() - indices + 1;
  w.load(to, 0, place, w.pack() > 1 ? along : -1, true);
  w.text << "}\n";
}

bool fits_take_along_axis(const Graph&, ValueId, int, int pack) { return pack == 1; }

void write_take_along_axis(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  const int axis = axis_of(graph, id);
  declare(graph, id, w, to);
  w.text << "{\n";
  write_index(w, w.coordinates(), axis, is_clipped(graph[id]));
  Texts place = w.coordinates();
  along(place, axis) = "index";
  w.load(to, 0, place, -1, false);
  w.text << "}\n";
}

// ---- row_sums, where the kernel that makes the rows has not summed them.

bool accepts_row_sums(const Graph& graph, ValueId id) { return graph.type(id).dtype == f32; }

bool fits_row_sums(const Graph&, ValueId, int, int pack) { return pack == 1; }

double summed(const Graph&, ValueId) { return kSummed; }

void write_row_sums(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  const Texts& all = w.coordinates();
  Texts place(all.begin() + 1, all.end() - 1);
  place.push_back(all.front() + " * " + std::to_string(kSummed) + " + i");
  const std::string type(compute_type(graph.type(graph[id].inputs[0]).dtype));
  w.text << "float " << to << "[1] = {0};\nfor (int i = 0; i < " << kSummed << "; ++i) {\n"
         << type << " element[1];\n";
  w.load("element", 0, place, -1, true);
  w.text << to << "[0] += " << all.back() << " == 0 ? element[0] : element[0] * element[0];\n}\n";
}

constexpr PackSource kCopySources[] = {
    {Op::concatenate, accepts_concatenate, fits_concatenate, write_concatenate, once},
    {Op::pad, accepts_pad, fits_pad, write_pad, once},
    {Op::take, indices_are_known, fits_take, write_take, once},
    {Op::take_along_axis, indices_are_known, fits_take_along_axis, write_take_along_axis, once},
    {Op::row_sums, accepts_row_sums, fits_row_sums, write_row_sums, summed},
};

std::optional<Implementation> consider_copy(const Isolated& alone, const Machine& machine) {
  return consider_packs(kCopySources, "copy", alone, machine);
}

}  // namespace

std::span<const PackSource> copy_sources() { return kCopySources; }

const Family kCopy = {"copy", consider_copy};

}  // namespace tensor::cuda
