// Landscapes: spaces of products as a GPU has them, with a time that no analytic model knows. The
// time is a roofline with what real kernels have besides: latency hidden by stages, spilled
// registers, partial waves, clusters that need neighbours, a cache that overflows, and for each
// problem its own oddities of tile shapes. The model of level 0 knows the roofline alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "src/tune/measurer.h"
#include "src/tune/random.h"

namespace tensor::testing {

/// [tokens, depth] by [depth, features] on a GPU of so many multiprocessors.
struct Product {
  double tokens = 197, features = 768, depth = 768;
  double processors = 132;
  std::uint64_t oddity = 1;  // what is unlike other problems
};

inline double divide_up(double a, double b) { return std::ceil(a / b); }

/// What follows from a product and a schedule.
struct Tiling {
  double rows, columns, stages, groups, splits, band;
  bool swapped, turns;
  double tiles, waves, steps, shared_bytes, registers;

  Tiling(const Product& p, const Schedule& s)
      : rows(s.value("rows").value()),
        columns(s.value("columns").value()),
        stages(s.value("stages").value()),
        groups(s.value("groups").value()),
        splits(s.value("splits").value_or(1)),
        band(s.value("band").value_or(8)),
        swapped(s.sketch == "swapped"),
        turns(s.sketch == "turns") {
    const double across = swapped ? p.features : p.tokens, along = swapped ? p.tokens : p.features;
    tiles = divide_up(across, rows) * divide_up(along, columns) * splits;
    waves = std::ceil(tiles / p.processors);
    steps = divide_up(divide_up(p.depth, 64), splits);
    shared_bytes = stages * (rows + columns) * 128 + (turns ? 2 : 1) * rows * 128;
    registers = 40 + rows * columns / (128 * groups) * (turns ? groups : 1);
  }
};

inline std::string fault_of(const Product& p, const Schedule& s) {
  const Tiling t(p, s);
  if (t.shared_bytes > 227 * 1024) return "shared memory";
  if (t.registers > 255) return "registers";
  if (t.rows < 64 * t.groups && !t.turns) return "rows for each group";
  if (t.splits > divide_up(p.depth, 64)) return "a step for each split";
  return {};
}

/// Microseconds by the roofline.
inline double analytic_us(const Product& p, const Schedule& s) {
  const Tiling t(p, s);
  const double multiply = t.rows / 64 * std::max(t.columns * 2, 64.);
  const double arrival = (t.rows + t.columns) * 128 / 56;
  const double finish = 400 + t.rows * t.columns / 12 / t.splits + (t.splits > 1 ? 1300 : 0);
  const double clocks = t.waves * (t.steps * std::max(multiply, arrival) + finish);
  const double bytes = 2 * (p.tokens * p.depth + p.features * p.depth + p.tokens * p.features);
  return 2.5 + std::max(clocks / 1700, bytes / 4.0e6);
}

/// A number from -1 to 1 that belongs to the problem and the text.
inline double oddity(const Product& p, const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ (p.oddity * 0x9e3779b97f4a7c15u);
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return 2 * Random(hash).uniform() - 1;
}

/// Microseconds in truth.
inline double true_us(const Product& p, const Schedule& s) {
  const Tiling t(p, s);
  const double multiply = t.rows / 64 * std::max(t.columns * 2, 64.);
  const double arrival = (t.rows + t.columns) * 128 / (56 - 2 * t.groups);
  const double latency = 1100 / std::pow(t.stages, t.turns ? 1.2 : 0.9);
  double step = std::max({multiply, arrival, latency}) + 0.25 * std::min(multiply, arrival);
  if (static_cast<int>(t.columns) % 64 != 0) step *= 1.06;       // swizzles less well
  if (t.registers > 168) step *= 1 + (t.registers - 168) / 150;  // waits for registers
  if (t.groups > 1 && t.stages < 4) step *= 1.15;                // groups starve
  const double finish = 500 + t.rows * t.columns / (t.turns ? 24 : 10) / t.splits +
                        (t.splits > 1 ? 900 + 150 * t.splits : 0);
  const double usable = t.splits > 4 ? 0.84 : t.splits > 2 ? 0.94 : 1;  // clusters fit worse
  const double waves = std::ceil(t.tiles / (p.processors * usable));
  double clocks = waves * (t.steps * step + finish * (t.turns && waves > 1 ? 0.45 : 1));
  if (t.shared_bytes > 113 * 1024) clocks += 600;  // no early next block
  const double reread = t.tiles * t.steps * (t.rows + t.columns) * 128 / 5.5e6 *
                        (1 + 0.1 * std::abs(std::log2(t.band / 8)));
  const double bytes = 2 * (p.tokens * p.depth + p.features * p.depth + p.tokens * p.features);
  const double time = 2.2 + std::max({clocks / 1700, reread, bytes / 3.4e6});
  // Shapes of tiles that this problem likes or not, and single kernels that came out well or badly.
  const std::string shape = s.sketch + std::to_string(static_cast<int>(t.rows)) + "x" +
                            std::to_string(static_cast<int>(t.columns));
  return time * (1 + 0.06 * oddity(p, shape) + 0.02 * oddity(p, s.text()));
}

inline Space space_of(const Product& p) {
  Space space;
  const std::vector<int> stages = {2, 3, 4, 5, 6, 8},
                         columns = {24, 32, 40, 64, 72, 104, 128, 192, 256};
  space.sketches = {{"rows",
                     {{"rows", {64, 128, 192, 256}},
                      {"columns", columns},
                      {"stages", stages},
                      {"groups", {1, 2, 3}},
                      {"band", {1, 4, 8, 16}}}},
                    {"swapped",
                     {{"rows", {64, 128, 192}},
                      {"columns", columns},
                      {"stages", stages},
                      {"groups", {1, 2, 3}},
                      {"splits", {1, 2, 4, 8}}}},
                    {"turns",
                     {{"rows", {64, 128}},
                      {"columns", columns},
                      {"stages", stages},
                      {"groups", {2, 3}},
                      {"band", {1, 4, 8, 16}}}}};
  space.fault = [p](const Schedule& s) { return fault_of(p, s); };
  space.model_us = [p](const Schedule& s) { return analytic_us(p, s); };
  space.features = [p](const Schedule& s) {
    const Tiling t(p, s);
    std::vector<double> f = {p.tokens,
                             p.features,
                             p.depth,
                             p.processors,
                             t.rows,
                             t.columns,
                             t.stages,
                             t.groups,
                             t.splits,
                             t.band,
                             t.swapped ? 1. : 0.,
                             t.turns ? 1. : 0.,
                             t.tiles,
                             t.waves,
                             t.tiles / p.processors / t.waves,
                             t.steps,
                             t.shared_bytes,
                             t.registers,
                             t.rows * t.columns,
                             t.rows * t.columns / (t.rows + t.columns)};
    return std::vector<float>(f.begin(), f.end());
  };
  double best = INFINITY;
  for (const Schedule& s : space.all())
    if (const double us = analytic_us(p, s); us < best) best = us, space.chosen = s;
  return space;
}

/// The products that the tests are about, of vision transformers mostly.
inline std::vector<Product> products() {
  return {{197, 2304, 768, 132, 1},  {197, 768, 3072, 132, 2},  {257, 5120, 1280, 132, 3},
          {576, 1024, 4096, 132, 4}, {1050, 2048, 256, 132, 5}, {12608, 768, 768, 132, 6},
          {1050, 256, 256, 132, 7},  {12608, 3072, 768, 132, 8}};
}

inline std::string name_of(const Product& p) {
  return "matmul " + std::to_string(static_cast<int>(p.tokens)) + "x" +
         std::to_string(static_cast<int>(p.features)) + "x" +
         std::to_string(static_cast<int>(p.depth));
}

/// Measures landscapes with noise of 1 %; one schedule in twenty-five fails to launch.
class SyntheticMeasurer : public Measurer {
 public:
  SyntheticMeasurer(std::vector<Product> products, std::uint64_t seed)
      : products_(std::move(products)), random_(seed) {}

  std::vector<Measured> measure(std::span<const Candidate> candidates) override {
    std::vector<Measured> all;
    for (const Candidate& c : candidates) {
      const Product& p = products_.at(static_cast<std::size_t>(c.task));
      ++trials;
      Measured& m = all.emplace_back();
      if (fails(p, c.schedule)) {
        m.error = "launch failed";
        continue;
      }
      for (int repeat = 0; repeat < 3; ++repeat)
        m.microseconds.push_back(true_us(p, c.schedule) *
                                 (1 + 0.01 * (random_.uniform() + random_.uniform() - 1)));
    }
    return all;
  }
  static bool fails(const Product& p, const Schedule& s) {
    return oddity(p, "fails " + s.text()) > 0.92;
  }

  std::int64_t trials = 0;

 private:
  std::vector<Product> products_;
  Random random_;
};

}  // namespace tensor::testing
