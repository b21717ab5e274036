// Operators by name: every message of `call`, and attributes in the forms that files use.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using Integers = std::vector<int>;

TEST(Call, NamesAreSortedAndUnique) {
  const auto names = operator_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_GE(names.size(), 90u);
}

TEST(Call, AttributesAreNumPysAndPyTorchs) {
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_EQ(call("sum", {x}, {{"axis", AttrValue()}})[0].item<int>(), 15);
  EXPECT_EQ(call("sum", {x}, {{"axis", 0}})[0].to_vector<int>(), (Integers{3, 5, 7}));
  EXPECT_EQ(call("sum", {x}, {{"axis", Ints{0, 1}}, {"keepdims", true}})[0].shape(), (Shape{1, 1}));
  EXPECT_EQ(call("var", {x}, {{"ddof", 1}})[0].item(), 3.5);
  EXPECT_EQ(call("transpose", {x})[0].shape(), (Shape{3, 2}));
  EXPECT_EQ(call("split", {x}, {{"sections", 3}, {"axis", -1}}).size(), 3u);
  EXPECT_EQ(call("topk", {x}, {{"k", 1}})[1].to_vector<int>(), (Integers{2, 2}));
  EXPECT_EQ(call("gelu", {Tensor(1.0)}, {{"approximate", "tanh"}})[0].item(),
            gelu_tanh(1.0).item());
  EXPECT_EQ(call("pad", {x}, {{"pad_width", Ints{1, 0, 0, 0}}})[0].shape(), (Shape{3, 3}));
  EXPECT_EQ(call("repeat", {x}, {{"repeats", 2}})[0].shape(), (Shape{12}));
  EXPECT_EQ(call("take", {x, array({5})})[0].to_vector<int>(), (Integers{5}));
  EXPECT_EQ(call("cumsum", {x})[0].to_vector<int>(), (Integers{0, 1, 3, 6, 10, 15}));
  EXPECT_EQ(call("clip", {x, 1, 2})[0].to_vector<int>(), (Integers{1, 1, 2, 2, 2, 2}));
}

TEST(Call, Messages) {
  const Tensor x = ones({2, 3});
  EXPECT_EQ(error_of([&] { call("sofmax", {x}); }),
            "call: there is no operator \"sofmax\"; did you mean \"softmax\"?");
  EXPECT_EQ(error_of([&] { call("convolution_of_the_third_kind", {x}); }),
            "call: there is no operator \"convolution_of_the_third_kind\"");
  EXPECT_EQ(error_of([&] {
              call("sum", {x}, {{"axes", 1}});
            }),
            "sum: does not take the attribute \"axes\"; did you mean \"axis\"?");
  EXPECT_EQ(error_of([&] {
              call("exp", {x}, {{"axis", 1}});
            }),
            "exp: does not take the attribute \"axis\"");
  EXPECT_EQ(error_of([&] { call("add", {x}); }), "add: got 1 tensors, need 2");
  EXPECT_EQ(error_of([&] { call("linear", {x}); }), "linear: got 1 tensors, need 2 to 3");
  EXPECT_EQ(error_of([&] { call("concatenate", {}); }),
            "concatenate: got 0 tensors, need 1 or more");
  EXPECT_EQ(error_of([&] { call("exp", {Tensor()}); }),
            "exp: got an undefined tensor (default constructed): give it a value first");
  EXPECT_EQ(error_of([&] {
              call("sum", {x}, {{"axis", "all"}});
            }),
            "attribute: axis is \"all\", need a list of integers");
  EXPECT_EQ(error_of([&] {
              call("softmax", {x}, {{"axis", 99}});
            }),
            "attribute: axis is 99, need one of the tensor's axes");
  EXPECT_EQ(error_of([&] {
              call("gelu", {x}, {{"approximate", "sigmoid"}});
            }),
            "gelu: got approximate=\"sigmoid\", need none or tanh");
  EXPECT_EQ(error_of([&] {
              call("pad", {x}, {{"pad_width", Ints{1, 2, 3}}});
            }),
            "pad: pad_width has 3 numbers, need before and after for every axis");
  EXPECT_EQ(error_of([&] {
              call("swapaxes", {x}, {{"axis1", std::int64_t{1} << 32}, {"axis2", 1}});
            }),
            "attribute: axis1 is 4294967296, need one of the tensor's axes");
  EXPECT_EQ(error_of([&] {
              call("scaled_dot_product_attention", {x, x, x}, {{"mask", 1}});
            }),
            "scaled_dot_product_attention: does not take the attribute \"mask\"");
  const Tensor image = ones({1, 1, 4, 4});
  EXPECT_EQ(error_of([&] {
              call("interpolate", {image}, {{"size", 2}, {"mode", "area"}});
            }),
            "interpolate: got the mode \"area\", need nearest, bilinear or bicubic");
  EXPECT_EQ(error_of([&] {
              call("max_pool2d", {image}, {{"kernel_size", Ints{1, 2, 3}}});
            }),
            "attribute: kernel_size has 3 numbers, need one or two");
  EXPECT_EQ(error_of([&] { call("topk", {x}); }), "attribute: k is missing and has no default");
}

}  // namespace
}  // namespace tensor
