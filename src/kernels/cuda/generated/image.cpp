// The image family: pooling, resizing and cells of boxes, with elementwise operators behind. Packs
// lie along the channels where those are last in memory.
#include <algorithm>

#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/generated/pack_kernel.h"
#include "src/ops/pool.h"
#include "src/ops/roi_align.h"

namespace tensor::cuda {
namespace {

// The pixels of a pack are made of the same ones only if it lies along images or channels.
bool fits(const Graph&, ValueId, int inner, int pack) { return pack == 1 || inner <= 1; }

void declare(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to,
             const std::string& start) {
  const int elements = w.run() * w.pack();
  w.text << compute_type(graph.type(id).dtype) << " " << to << "[" << elements
         << "];\n#pragma unroll\nfor (int e = 0; e < " << elements << "; ++e) " << to
         << "[e] = " << start << ";\n";
}

// ---- Pooling.

Pool pool(const Graph& graph, ValueId id) { return pool_of(graph[id].attrs, "image"); }

bool accepts_pool(const Graph& graph, ValueId id) {
  return num_elements(graph.type(graph[id].inputs[0]).shape) > 0;
}

double window(const Graph& graph, ValueId id) {
  const Pool p = pool(graph, id);
  return static_cast<double>(p.kernel.h * p.kernel.w);
}

// Begins a loop over the part of the window that lies on the image, at `place` along an axis.
// `reaches_out`: whether a window may begin before the image or end behind it.
void begin_window(SourceWriter& w, const std::string& place, const std::string& out,
                  std::int64_t kernel, std::int64_t stride, std::int64_t padding, bool reaches_out,
                  std::int64_t extent) {
  constexpr int kMostUnrolled = 4;
  const std::string step = "step_" + place;
  w.text << "#pragma unroll " << (kernel <= kMostUnrolled ? kernel : 1) << "\nfor (int " << step
         << " = 0; " << step << " < " << kernel << "; ++" << step << ") {\nconst int " << place
         << " = " << out << " * " << stride << " - " << padding << " + " << step << ";\n";
  if (reaches_out)
    w.text << "if (" << place << " < 0 || " << place << " >= " << w.numbers.term(extent)
           << ") continue;\n";
}

void write_pool(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to,
                const std::string& start, const std::string& fold) {
  const Pool p = pool(graph, id);
  const Shape& in = graph.type(graph[id].inputs[0]).shape;
  const auto& c = w.coordinates();
  declare(graph, id, w, to, start);
  begin_window(w, "y", c[2], p.kernel.h, p.stride.h, p.padding.h, p.padding.h > 0 || p.rounds_up,
               in[2]);
  begin_window(w, "x", c[3], p.kernel.w, p.stride.w, p.padding.w, p.padding.w > 0 || p.rounds_up,
               in[3]);
  w.text << compute_type(graph.type(id).dtype) << " pixel[" << w.pack() << "];\n";
  w.load("pixel", 0, {c[0], c[1], "y", "x"}, w.inner() <= 1 ? w.inner() : -1, true);
  w.text << "#pragma unroll\nfor (int e = 0; e < " << w.pack() << "; ++e) " << to
         << "[e] = " << fold << ";\n}\n}\n";
}

void write_max_pool(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  const DType dtype = graph.type(id).dtype;
  const std::string type(compute_type(dtype));
  write_pool(graph, id, w, to,
             is_floating(dtype) ? "-" + type + "(kInfinity)"
             : dtype == boolean ? "false"
                                : "Limits<" + type + ">::kLeast",
             "maximum(" + to + "[e], pixel[e])");
}

// counted_at (src/ops/pool.h) of the window of `out`.
std::string counted(SourceWriter& w, const std::string& out, std::int64_t kernel,
                    std::int64_t stride, std::int64_t padding, std::int64_t extent,
                    bool counts_padding) {
  const std::string around = std::to_string(counts_padding ? padding : 0),
                    begin = "(" + out + " * " + std::to_string(stride) + " - " +
                            std::to_string(padding) + ")";
  return "(minimum<int>(" + begin + " + " + std::to_string(kernel) + ", " + w.numbers.term(extent) +
         " + " + around + ") - maximum<int>(" + begin + ", -" + around + "))";
}

void write_avg_pool(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  write_pool(graph, id, w, to, "0", to + "[e] + pixel[e]");
  const Pool p = pool(graph, id);
  const Shape& in = graph.type(graph[id].inputs[0]).shape;
  const auto& c = w.coordinates();
  std::string count = std::to_string(p.kernel.h * p.kernel.w);
  if (p.rounds_up || !p.counts_padding)
    count = counted(w, c[2], p.kernel.h, p.stride.h, p.padding.h, in[2], p.counts_padding) + " * " +
            counted(w, c[3], p.kernel.w, p.stride.w, p.padding.w, in[3], p.counts_padding);
  w.text << "#pragma unroll\nfor (int e = 0; e < " << w.pack() << "; ++e) " << to
         << "[e] /= " << (p.rounds_up || !p.counts_padding ? "(" + count + ")" : count) << ";\n";
}

// ---- Resizing.

bool accepts_interpolate(const Graph& graph, ValueId id) {
  constexpr std::int64_t kMost = 16384;  // twice a product of two extents is an int
  const Shape &in = graph.type(graph[id].inputs[0]).shape, &out = graph.type(id).shape;
  const DType dtype = graph.type(id).dtype;
  return num_elements(in) > 0 && std::max({in[2], in[3], out[2], out[3]}) <= kMost &&
         (graph[id].attrs.text("mode") == "nearest" || (is_floating(dtype) && dtype != f64));
}

// An axis of a resized image.
struct Resized {
  std::int64_t from, to;
  bool has_corners;
  // By which a kernel of any extent may know that it is enlarged; 0 where it does not.
  std::int64_t factor;
};
Resized resized(const Graph& graph, ValueId id, int axis) {
  constexpr std::int64_t kMostFactor = 16;
  const Attrs& attrs = graph[id].attrs;
  Resized r{graph.type(graph[id].inputs[0]).shape[axis], graph.type(id).shape[axis],
            attrs.flag("align_corners") && !attrs.flag("antialias"), 0};
  const bool is_linear = attrs.text("mode") == "bilinear" && !attrs.flag("antialias");
  if (is_linear && !r.has_corners && r.to % r.from == 0 && r.to / r.from <= kMostFactor)
    r.factor = r.to / r.from;
  return r;
}

// How many taps a place of an axis has, about.
double taps(const Graph& graph, ValueId id, int axis) {
  const Attrs& attrs = graph[id].attrs;
  const Resized r = resized(graph, id, axis);
  const std::string mode = attrs.text("mode");
  if (r.from == r.to || mode == "nearest") return 1;
  const double usual = mode == "bicubic" ? 4 : 2;
  if (!attrs.flag("antialias")) return usual;
  return usual * static_cast<double>(std::max(r.from, r.to)) / static_cast<double>(r.to) + 2;
}

double all_taps(const Graph& graph, ValueId id) { return taps(graph, id, 2) * taps(graph, id, 3); }

// Declares `name`, the taps of the place `place` of an axis; or, where `run` is more than 1, of so
// many neighbours.
void declare_taps(const Graph& graph, ValueId id, SourceWriter& w, int axis,
                  const std::string& name, int run) {
  const Attrs& attrs = graph[id].attrs;
  const Resized r = resized(graph, id, axis);
  const std::string& place = w.coordinates()[static_cast<std::size_t>(axis)];
  if (r.from == r.to) {
    w.text << "const SameTaps " << name << "(" << place << ");\n";
    return;
  }
  const std::string mode = attrs.text("mode"), corners = r.has_corners ? "true" : "false";
  const std::string object = name + "_axis", from = w.numbers.term(r.from);
  std::string axis_type = "AnyAxis", members;
  if (!w.numbers.are_any()) {
    axis_type = "FixedAxis<" + from + ", " + std::to_string(r.to) + ", " + corners + ">";
  } else if (r.factor > 0) {
    axis_type = "EnlargedAxis<" + std::to_string(r.factor) + ">";
    members = from;
  } else {
    const std::int64_t down = r.has_corners ? std::max<std::int64_t>(r.to - 1, 1) : 2 * r.to;
    members = from + ", " + from + ", " + w.numbers.term(r.to) + ", " +
              w.numbers.divided_by("down_" + place, down);
  }
  const bool is_cubic = mode == "bicubic";
  const std::string type =
      mode == "nearest" ? "NearestTaps<" + axis_type + ">"
      : attrs.flag("antialias")
          ? "AntialiasedTaps<" + axis_type + (is_cubic ? ", true>" : ", false>")
      : is_cubic ? "CubicTaps<" + axis_type + ", " + corners + ">"
      : run > 1  ? "LinearRun<" + axis_type + ", " + corners + ", " + std::to_string(run) + ">"
                 : "LinearTaps<" + axis_type + ", " + corners + ">";
  w.text << "const " << axis_type << " " << object << "{" << members << "};\nconst " << type << " "
         << name << "(" << object << ", " << place << ");\n";
}

// Neighbours of an image that is enlarged are made of the same columns.
int most_run(const Graph& graph, ValueId id, bool any_extent) {
  const Attrs& attrs = graph[id].attrs;
  const Resized r = resized(graph, id, 3);
  if (attrs.text("mode") != "bilinear" || attrs.flag("antialias") || r.from >= r.to) return 1;
  if (any_extent && r.factor == 0) return 1;  // their weights are not known
  int run = 8;
  while (r.to % run != 0) run /= 2;
  return run;
}

void write_interpolate(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  const auto& c = w.coordinates();
  const std::string type(compute_type(graph.type(id).dtype));
  constexpr double kMostUnrolled = 16;
  const bool is_unrolled = all_taps(graph, id) <= kMostUnrolled &&
                           !(w.numbers.are_any() && graph[id].attrs.flag("antialias"));
  const std::string unroll = is_unrolled ? "#pragma unroll\n" : "#pragma unroll 1\n";
  const bool has_runs = w.run() > 1;
  declare(graph, id, w, to, type + "(0)");
  w.text << "{\n";
  declare_taps(graph, id, w, 2, "rows", 1);
  declare_taps(graph, id, w, 3, "columns", w.run());
  w.text << unroll << "for (int k = 0; k < rows.count(); ++k) {\n"
         << unroll << "for (int l = 0; l < columns.count(); ++l) {\n"
         << type << " pixel[" << w.pack() << "];\n";
  w.load("pixel", 0, {c[0], c[1], "rows.place(k)", "columns.place(l)"},
         w.inner() <= 1 ? w.inner() : -1, true);
  const std::string pack = std::to_string(w.pack());
  const std::string each = "#pragma unroll\nfor (int e = 0; e < " + pack + "; ++e) " + to;
  if (has_runs)
    w.text << "#pragma unroll\nfor (int r = 0; r < " << w.run()
           << "; ++r) {\nif (!columns.reaches(l, r)) continue;\n"
           << "const float weight = rows.weight(k) * columns.weight(l, r);\n"
           << each << "[r * " << pack << " + e] += weight * pixel[e];\n}\n";
  else if (graph[id].attrs.text("mode") == "nearest" || all_taps(graph, id) == 1)
    w.text << each << "[e] = pixel[e];\n";
  else
    w.text << "const float weight = rows.weight(k) * columns.weight(l);\n"
           << each << "[e] += weight * pixel[e];\n";
  w.text << "}\n}\n}\n";
}

// ---- Cells of boxes.

bool accepts_roi_align(const Graph& graph, ValueId id) {
  constexpr std::int64_t kMost = 1 << 24;  // a float holds all places
  const Shape& in = graph.type(graph[id].inputs[0]).shape;
  return std::max({in[0], in[2], in[3]}) <= kMost && num_elements(in) > 0;
}

bool fits_channels(const Graph&, ValueId, int inner, int pack) { return pack == 1 || inner == 1; }

// Two samples a cell along each axis where the boxes say how many.
double pixels_of_cell(const Graph& graph, ValueId id) {
  const auto samples =
      static_cast<double>(std::max<std::int64_t>(roi_align_of(graph[id].attrs).samples, 2));
  return 4 * samples * samples;
}

void write_roi_align(const Graph& graph, ValueId id, SourceWriter& w, const std::string& to) {
  const RoiAlign roi = roi_align_of(graph[id].attrs);
  const Shape& in = graph.type(graph[id].inputs[0]).shape;
  const auto& c = w.coordinates();
  const DType dtype = w.operands[1].dtype;
  const std::string type(compute_type(dtype)), pack = std::to_string(w.pack());
  declare(graph, id, w, to, type + "(0)");
  w.text << "{\n" << type << " box[5][" << w.pack() << "];\n";
  for (int k = 0; k < 5; ++k)
    w.load("box[" + std::to_string(k) + "]", 1, {c[0], std::to_string(k)}, -1, false);
  w.text << "const int image = box[0][0] > 0 ? int(minimum(box[0][0], " << type << "("
         << w.numbers.term(in[0] - 1) << "))) : 0;\n";
  const auto declare_samples = [&](const std::string& name, int first, std::int64_t cells,
                                   int axis) {
    const auto end = [&](int k) {
      return "box[" + std::to_string(k) + "][0] * " + literal(roi.scale, dtype) + " - " +
             literal(roi.is_aligned ? 0.5 : 0.0, dtype);
    };
    w.text << "const CellSamples<" << type << ", " << cells << ", " << roi.samples << ", "
           << (roi.is_aligned ? "true" : "false") << "> " << name << "(" << end(first) << ", "
           << end(first + 2) << ", " << c[static_cast<std::size_t>(axis)] << ", "
           << w.numbers.term(in[axis]) << ");\n";
  };
  declare_samples("rows", 2, roi.cells.h, 2);
  declare_samples("columns", 1, roi.cells.w, 3);
  const std::string unroll = roi.samples == 0 || roi.samples > 2 ? "#pragma unroll 1\n" : "";
  w.text << "int y[2], x[2];\n"
         << type << " down, right;\n"
         << unroll << "for (int k = rows.first; k < rows.last; ++k) {\n"
         << "if (!rows.find(k, y, down)) continue;\n"
         << unroll << "for (int l = columns.first; l < columns.last; ++l) {\n"
         << "if (!columns.find(l, x, right)) continue;\n"
         << "#pragma unroll\nfor (int corner = 0; corner < 4; ++corner) {\n"
         << "const " << type << " weight = (corner / 2 ? down : 1 - down) * "
         << "(corner % 2 ? right : 1 - right) * (rows.weight * columns.weight);\n"
         << type << " pixel[" << pack << "];\n";
  w.load("pixel", 0, {"image", c[1], "y[corner / 2]", "x[corner % 2]"}, w.pack() > 1 ? 1 : -1,
         true);
  w.text << "#pragma unroll\nfor (int e = 0; e < " << pack << "; ++e) " << to
         << "[e] += weight * pixel[e];\n}\n}\n}\n}\n";
}

constexpr PackSource kImageSources[] = {
    {Op::max_pool2d, accepts_pool, fits, write_max_pool, window},
    {Op::avg_pool2d, accepts_pool, fits, write_avg_pool, window},
    {Op::interpolate, accepts_interpolate, fits, write_interpolate, all_taps, most_run},
    {Op::roi_align, accepts_roi_align, fits_channels, write_roi_align, pixels_of_cell},
};

std::optional<Implementation> consider_image(const Isolated& alone, const Machine& machine) {
  return consider_packs(kImageSources, "image", alone, machine);
}

}  // namespace

std::span<const PackSource> image_sources() { return kImageSources; }

const Family kImage = {"image", consider_image};

}  // namespace tensor::cuda
