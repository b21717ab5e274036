// Cases of matrix products.
#pragma once

#include <map>
#include <tuple>

#include "tests/cases/case.h"

namespace tensor::cases {

inline constexpr DType kProductTypes[] = {i32, i64, f16, bf16, f32, f64};

/// Whole numbers small enough that float sums of up to 65 products are exact, and bf16 (8 bits)
/// holds short ones.
inline double whole_bound(DType dtype) { return dtype == f16 || dtype == bf16 ? 4 : 8; }

inline Input product_input(const Shape& shape, DType dtype, bool reals, std::size_t layout) {
  const double bound = reals ? 3 : whole_bound(dtype);
  return {shape, dtype, reals ? Values::reals : Values::integers, -bound, bound, layout_of(layout)};
}

/// Pairs of shapes for every rule of numpy.matmul.
inline std::vector<std::pair<Shape, Shape>> matmul_shapes(Draw& draw) {
  std::vector<std::pair<Shape, Shape>> shapes;
  for (int i = 0; i < 16; ++i) {
    const std::int64_t m = draw.extent(33), k = draw.extent(65), n = draw.extent(33);
    shapes.push_back({{m, k}, {k, n}});
    if (i % 4 == 0) shapes.push_back({{k}, {k, n}});
    if (i % 4 == 1) shapes.push_back({{m, k}, {k}});
    if (i % 4 == 2) shapes.push_back({{k}, {k}});
    if (i % 4 == 3) shapes.push_back({{3, 8, k}, {k}});
  }
  for (int i = 0; i < 6; ++i) {
    const std::int64_t m = draw.extent(8), k = draw.extent(17), n = draw.extent(8);
    shapes.push_back({{2, m, k}, {2, k, n}});
    shapes.push_back({{2, m, k}, {k, n}});
    shapes.push_back({{m, k}, {3, k, n}});
    shapes.push_back({{2, 1, m, k}, {3, k, n}});
    shapes.push_back({{1, 2, m, k}, {3, 1, k, n}});
    shapes.push_back({{k}, {2, 3, k, n}});
  }
  for (const auto& [m, k, n] : {std::tuple{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {0, 0, 0}})
    shapes.push_back({{m, k}, {k, n}});
  shapes.push_back({{0, 2, 3}, {3, 4}});
  shapes.push_back({{0}, {0}});
  return shapes;
}

inline std::vector<std::pair<Shape, Shape>> dot_shapes(Draw& draw) {
  const std::int64_t m = draw.extent(17), k = draw.extent(33), n = draw.extent(17);
  return {{{}, {}},
          {{}, {m, n}},
          {{m, n}, {}},
          {{k}, {k}},
          {{m, k}, {k}},
          {{2, m, k}, {k}},
          {{m, k}, {k, n}},
          {{k}, {k, n}},
          {{2, 3, k}, {2, k, n}},
          {{m, k}, {3, k, 2}},
          {{k}, {2, 3, k, 2}},
          {{3, 0}, {0, 2}}};
}

inline constexpr std::string_view kEquations[] = {
    "ij,jk->ik",      "ij,jk",        "ij,kj->ik",
    "ji,jk->ki",      "bij,bjk->bik", "bhqd,bhkd->bhqk",
    "bqk,bkd->bqd",   "i,i->",        "i,i",
    "i,j->ij",        "ij->ji",       "ij->",
    "ij->i",          "ij->j",        "ii->i",
    "ii->",           "ii",           "iij->ij",
    "ijk->kj",        "ij,ij->ij",    "ij,ij->",
    "bi,bj->bij",     "bi,ij->bj",    "ij,j->ij",
    "i,ij,j->",       "ij,jk,kl->il", "ij,jk,kl->li",
    "bij,bjk,bk->bi", "abc,cd->abd",  "ab,cd->abcd",
    "iji->j",         "ba,bc->ca",    "b ij , b jk -> b ik",
};

inline std::vector<Shape> einsum_shapes(Draw& draw, std::string_view equation, std::int64_t limit) {
  std::map<char, std::int64_t> extents;
  std::vector<Shape> shapes(1);
  for (const char letter : equation.substr(0, equation.find('-'))) {
    if (letter == ',') shapes.emplace_back();
    if (letter == ',' || letter == ' ') continue;
    if (!extents.contains(letter)) extents[letter] = draw.extent(limit);
    shapes.back().push_back(extents[letter]);
  }
  return shapes;
}

inline void add_pairs(Cases& cases, const std::string& op,
                      std::vector<std::pair<Shape, Shape>> (*shapes_of)(Draw&), int rounds) {
  Draw draw(op);
  for (const DType dtype : kProductTypes)
    for (int round = 0; round < rounds; ++round) {
      std::size_t i = static_cast<std::size_t>(round);
      for (const auto& [a, b] : shapes_of(draw)) {
        const bool reals = is_floating(dtype) && i % 3 == 2;
        cases.push_back(
            {op, {product_input(a, dtype, reals, i), product_input(b, dtype, reals, i / 5)}, {}});
        ++i;
      }
    }
}

inline void add_einsum(Cases& cases) {
  Draw draw("einsum");
  for (const DType dtype : kProductTypes)
    for (const std::string_view equation : kEquations)
      for (std::size_t round = 0; round < 4; ++round) {
        const bool three = std::count(equation.begin(), equation.end(), ',') == 2;
        const std::vector<Shape> shapes = einsum_shapes(draw, equation, three ? 3 : 9);
        Case c{"einsum", {}, {{"equation", std::string(equation)}}};
        for (std::size_t k = 0; k < shapes.size(); ++k) {
          c.inputs.push_back(product_input(shapes[k], dtype, is_floating(dtype) && round == 3,
                                           cases.size() + 2 * k));
          // Intermediate results of three operands are stored, and must be exact in bf16 too.
          if (three && round != 3) c.inputs.back().low = -2, c.inputs.back().high = 2;
        }
        cases.push_back(std::move(c));
      }
}

inline void add_linear(Cases& cases) {
  Draw draw("linear");
  for (const DType dtype : kFloatingTypes)
    for (std::size_t i = 0; i < 40; ++i) {
      // In the 16-bit types the product may be rounded before the bias is added: 15 * 4 * 4 + 4 is
      // exact in bf16.
      const std::int64_t in = draw.extent(whole_bound(dtype) == 4 ? 15 : 65), out = draw.extent(33);
      Shape x = draw.shape(static_cast<int>(i % 4), 30);
      x.push_back(in);
      Case c{"linear",
             {product_input(x, dtype, i % 4 == 3, i),
              product_input({out, in}, dtype, i % 4 == 3, i / 5)},
             {}};
      if (i % 3 > 0) c.inputs.push_back(product_input({out}, dtype, i % 4 == 3, i / 2));
      cases.push_back(std::move(c));
    }
}

inline Cases product_cases() {
  Cases cases;
  add_pairs(cases, "matmul", matmul_shapes, 3);
  add_pairs(cases, "dot", dot_shapes, 4);
  add_einsum(cases);
  add_linear(cases);
  return cases;
}

}  // namespace tensor::cases
