// Which functions compute every item of a batch by itself.
#include "src/trace/items.h"

#include <gtest/gtest.h>

#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

constexpr std::int64_t kItems = 4;
constexpr const char* kFine = "no error";

// "no error" where the function of one batch of images (4, 6, 8, 8), or of more inputs, is
// divisible.
std::string refusal(const tn::TensorFunction& function, std::vector<tn::TensorType> inputs = {},
                    std::vector<bool> is_batch = {}) {
  if (inputs.empty()) inputs = {{{kItems, 6, 8, 8}, tn::f32}};
  if (is_batch.empty()) is_batch.assign(inputs.size(), true);
  return tn::check::error_of(
      [&] { tn::check_items(tn::trace(function, inputs), is_batch, kItems); });
}

std::string refusal_of_one(const std::function<Tensor(const Tensor&)>& function) {
  return refusal([&](const Tensors& in) -> Tensors { return {function(in[0])}; });
}

TEST(Items, AreByThemselvesInWhatModelsDo) {
  tn::Generator random(7);
  const Tensor weight = random.normal({8, 5}), filters = random.normal({6, 6, 3, 3}),
               token = random.normal({1, 6, 1, 8}), table = random.normal({10, 3}),
               masks = random.normal({4, 1, 4, 4});
  const std::pair<const char*, std::function<Tensor(const Tensor&)>> functions[] = {
      {"elementwise", [](const Tensor& x) { return relu(x) * 2 + x; }},
      {"product", [&](const Tensor& x) { return matmul(x, weight); }},
      {"products of items",
       [](const Tensor& x) {
         return matmul(x, tn::transpose(x, {0, 1, 3, 2}));
       }},
      {"folded rows",
       [&](const Tensor& x) {
         return matmul(x.reshape({-1, 8}), weight);
       }},
      {"convolution", [&](const Tensor& x) { return conv2d(x, filters, {}, {.padding = 1}); }},
      {"pooling",
       [](const Tensor& x) {
         return max_pool2d(x, {2, 2});
       }},
      {"mean",
       [](const Tensor& x) {
         return mean(x, {2, 3});
       }},
      {"softmax", [](const Tensor& x) { return softmax(x, 1); }},
      {"layer_norm", [](const Tensor& x) { return layer_norm(x); }},
      {"sort", [](const Tensor& x) { return sort(x, -1); }},
      {"a token for each",
       [&](const Tensor& x) {
         return tn::concatenate({tn::broadcast_to(token, {x.shape(0), 6, 1, 8}), x}, 2);
       }},
      {"equal constants",
       [](const Tensor& x) {
         return x + tn::ones({x.shape(0), 1, 1, 1}, tn::f32);
       }},
      {"heads",
       [](const Tensor& x) {
         const Tensor heads = tn::transpose(x.reshape({kItems, 6, 8, 2, 4}), {0, 3, 1, 2, 4});
         return heads.reshape({kItems * 2, 6, 8, 4});
       }},
      {"windows and their masks",
       [&](const Tensor& x) {
         const Tensor cut = x.reshape({kItems, 6, 2, 4, 2, 4});
         const Tensor windows =
             tn::transpose(cut, {0, 2, 4, 1, 3, 5}).reshape({kItems * 4, 6, 4, 4});
         const Tensor masked = windows.reshape({kItems, 4, 6, 4, 4}) + masks;
         const Tensor tiled =
             tn::broadcast_to(masks, {kItems, 4, 1, 4, 4}).copy().reshape({kItems * 4, 1, 4, 4});
         return masked.reshape({kItems * 4, 6, 4, 4}) * tiled;
       }},
      {"embedding",
       [&](const Tensor& x) {
         return take(table, argmax(x.reshape({kItems, 6, 64}), -1), 0);
       }},
      {"places in an image of each",
       [](const Tensor& x) {
         const Tensor grid = tanh(tn::transpose(x, {0, 2, 3, 1})(tn::ellipsis, tn::slice(0, 2)));
         return tn::grid_sample(x, grid);
       }},
      {"boxes on one image",
       [](const Tensor& x) {
         return roi_align(tn::ones({2, 3, 9, 9}), mean(x, {2, 3})(tn::ellipsis, tn::slice(0, 5)),
                          2);
       }},
      {"flipped", [](const Tensor& x) { return flip(x, -1); }},
      {"padded",
       [](const Tensor& x) {
         return tn::pad(x, {{0, 0}, {0, 0}, {1, 1}, {1, 1}});
       }},
      {"away and back",
       [](const Tensor& x) {
         return tn::transpose(tn::transpose(x, {2, 3, 0, 1}) * 2, {2, 3, 0, 1});
       }},
      {"gather_nd",
       [](const Tensor& x) {
         return gather_nd(x, topk(max(x, {2, 3}), 3).second.expand_dims(-1), 1);
       }},
  };
  for (const auto& [name, function] : functions) EXPECT_EQ(refusal_of_one(function), kFine) << name;
}

// A constant of the whole batch that was computed before, as the first queries of DETR are: its
// items are the same but for rounding, where a product takes rows at the edge in another order.
TEST(Items, OfAConstantMayDifferByRounding) {
  tn::Generator random(9);
  const Tensor one = random.normal({1, 6, 8, 8}).astype(tn::f64),
               all = tn::concatenate({one, one, one, one}, 0);
  const auto with_noise = [&](double size) {
    return all * (1 + size * random.normal({kItems, 6, 8, 8}).astype(tn::f64));
  };
  for (const auto dtype : {tn::f16, tn::bf16, tn::f32, tn::f64}) {
    const double eps = dtype == tn::f16    ? 0x1p-10
                       : dtype == tn::bf16 ? 0x1p-7
                       : dtype == tn::f32  ? 0x1p-23
                                           : 0x1p-52;
    const auto text = [&](double roundings) {
      const Tensor constant = with_noise(roundings * eps).astype(dtype);
      return refusal([&](const Tensors& in) -> Tensors { return {in[0] + constant}; },
                     {{{kItems, 6, 8, 8}, dtype}});
    };
    EXPECT_EQ(text(dtype == tn::f32 || dtype == tn::f64 ? 16 : 0.05), kFine) << dtype;
    EXPECT_NE(text(4096), kFine) << dtype;
  }
}

TEST(Items, ThatAreMixedAreRefused) {
  tn::Generator random(8);
  const Tensor weight = random.normal({kItems, kItems}), each = random.normal({kItems, 1, 1, 1});
  const std::pair<const char*, std::function<Tensor(const Tensor&)>> functions[] = {
      {"mean", [](const Tensor& x) { return x - mean(x, 0, true); }},
      {"sum", [](const Tensor& x) { return x * sum(x); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 0); }},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 0); }},
      {"argsort", [](const Tensor& x) { return argsort(x, 0); }},
      {"slice", [](const Tensor& x) { return flip(x, 0); }},
      {"slice", [](const Tensor& x) { return x(tn::slice(0, 2)); }},
      {"concatenate",
       [](const Tensor& x) {
         return tn::concatenate({x, x}, 0);
       }},
      {"multiply", [&](const Tensor& x) { return x * each; }},
      {"multiply",
       [](const Tensor& x) {
         return x * tn::arange(kItems).reshape({kItems, 1, 1, 1}).astype(tn::f32);
       }},
      {"matmul",
       [&](const Tensor& x) {
         return matmul(weight, x.reshape({kItems, -1}));
       }},
      {"matmul",
       [](const Tensor& x) {
         const Tensor rows = x.reshape({kItems, -1});
         return matmul(rows, tn::transpose(rows));
       }},
      {"reshape",
       [](const Tensor& x) {
         return x.reshape({2, -1});
       }},
      {"reshape",
       [](const Tensor& x) {
         return tn::transpose(x, {1, 0, 2, 3}).reshape({24, 64});
       }},
      {"add",
       [](const Tensor& x) {  // places that may lie in the next item
         const Tensor rows = x.reshape({kItems * 6, 64}), places = argmax(x, 1);
         const Tensor begins = (tn::arange(kItems) * 4).reshape({kItems, 1, 1});
         return tn::take(rows, minimum(maximum(places, 0), 5) + begins, 0);
       }},
      {"layer_norm",
       [](const Tensor& x) {
         return layer_norm(tn::transpose(x, {1, 2, 3, 0}));
       }},
  };
  for (const auto& [name, function] : functions) {
    const std::string text = refusal_of_one(function);
    EXPECT_TRUE(text.starts_with("compile: got a function that mixes the items of its batch, in " +
                                 std::string(name) + " : "))
        << name << ": " << text;
  }
  EXPECT_EQ(refusal_of_one([](const Tensor& x) { return x - mean(x, 0, true); }),
            "compile: got a function that mixes the items of its batch, in mean : f32(1, 6, 8, 8), "
            "need one that computes each by itself for several devices: name inputs that are no "
            "batches in whole_inputs, or compile for one device");
}

TEST(Items, CountTheRowsOfEveryOutput) {
  const Tensor constant = tn::ones({kItems, 2}, tn::f32);
  EXPECT_EQ(refusal([&](const Tensors& in) -> Tensors {
              return {in[0], constant};
            }),
            "compile: output 1, f32(4, 2), does not depend on the batch, need outputs whose axis 0 "
            "counts its items for several devices: leave it out, or compile for one device");
  EXPECT_EQ(refusal_of_one([](const Tensor& x) {
              return tn::transpose(x, {1, 0, 2, 3});
            }),
            "compile: output 0, f32(6, 4, 8, 8), counts the items of the batch along axis 1, need "
            "axis 0 for several devices: transpose it");
}

// What is no batch may be anything, but not something for every item.
TEST(Items, OfInputsThatAreNoBatches) {
  const std::vector<tn::TensorType> types = {{{kItems, 8}, tn::f32}, {{8, kItems}, tn::f32}};
  const auto product = [](const Tensors& in) -> Tensors { return {matmul(in[0], in[1])}; };
  EXPECT_EQ(refusal(product, types, {true, false}), kFine);
  EXPECT_NE(refusal(product, types, {false, true}), kFine);
  const auto sum = [](const Tensors& in) -> Tensors { return {in[0] + in[1]}; };
  EXPECT_EQ(refusal(sum, {types[0], {{1, 8}, tn::f32}}, {true, false}), kFine);
  EXPECT_EQ(refusal(sum, {types[0], {{8}, tn::f32}}, {true, false}), kFine);
  EXPECT_NE(refusal(sum, {types[0], types[0]}, {true, false}), kFine);
  EXPECT_EQ(refusal(sum, {types[0], types[0]}, {true, true}), kFine);
}

}  // namespace
