// The texts of plans: what is saved is read as it was, and what no kernel may see is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "tensor/compile.h"
#include "tensor/io.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;
using tn::Tensor;
using tn::check::error_of;
using tn::check::TemporaryFolder;
using Tensors = std::vector<Tensor>;

namespace {

// The metadata of a plan of one size with that text, whose inputs these are.
std::map<std::string, std::string> one_size(
    const std::string& text, const std::string& inputs = R"({"dtype":"f32","shape":[2,3]})",
    const std::string& parts = "{}") {
  return {{"plan", R"({"format":"tensor-plan","version":3,"device":"cpu","computes":"f32",)"
                   R"("sizes":[{"inputs":[)" +
                       inputs + R"(],"about":{}}],"parts":)" + parts + "}"},
          {"plan.0", text}};
}

TEST(PlanFile, SavedAndLoadedExecutableComputesTheSame) {
  tn::Generator random(17);
  const Tensor x = random.normal({4, 6, 32}), weight = random.normal({48, 32}),
               bias = random.normal({48});
  const auto f = [&](const Tensors& in) -> Tensors {
    const Tensor y =
        tn::gelu(tn::linear(in[0], weight, bias)).reshape({4, 6, 3, 16}).transpose({0, 2, 1, 3});
    return {tn::softmax(tn::matmul(y, y.swapaxes(-1, -2)) * 0.25, -1), tn::clip(in[0], -1, 1)};
  };
  const tn::Executable fast = tn::compile(f, {x}, {.names = {{"fc.weight", weight}}});
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  fast.save(path);
  fast.save(path, {{"model", "mine"}});
  EXPECT_EQ(tn::load_safetensors(path).metadata.at("model"), "mine");
  const tn::Executable loaded = tn::load_executable(path);
  EXPECT_EQ(loaded.group_count(), fast.group_count());
  const Tensors a = fast({x}), b = loaded({x});
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(a[i].to_vector<float>(), b[i].to_vector<float>());
}

TEST(PlanFile, ForeignAndDamagedFilesAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  const auto saved = [&](const std::map<std::string, std::string>& metadata) {
    tn::save_safetensors(path, {}, metadata);
    return error_of([&] { tn::load_executable(path); });
  };
  const auto with = [&](const std::string& text) { return saved(one_size(text)); };
  tn::save_safetensors(path, {{"weight", tn::ones({2})}});
  EXPECT_NE(error_of([&] {
              tn::load_executable(path);
            }).find("is no plan file: it has no metadata entry \"plan\""),
            std::string::npos);
  EXPECT_NE(saved({{"plan", R"({"format":"other"})"}}).find("its format is \"other\""),
            std::string::npos);
  for (const std::string version : {"2", "99"})  // an old one and one to come
    EXPECT_EQ(saved({{"plan", R"({"format":"tensor-plan","version":)" + version + "}"}}),
              path + ": has the plan version " + version +
                  ", this build reads 3: compile the model again");
  auto lacking = one_size("{}");
  lacking.erase("plan.0");
  EXPECT_EQ(saved(lacking), path +
                                ": plan: sizes[0]: the file has no metadata entry \"plan.0\": "
                                "compile the model again");
  const std::string head = R"({"nodes":[{"input":[2,3],"dtype":"f32"},)";
  const std::string good =
      head + R"({"op":"exp","in":[0],"attrs":{}}],"outputs":[1],"groups":[[1]]})";
  EXPECT_EQ(with(good), "no error");
  EXPECT_NE(saved(one_size(good, R"({"dtype":"f64","shape":[3,2]})"))
                .find(": f64(3, 2): its graph takes f32(2, 3): the file is damaged"),
            std::string::npos);
  EXPECT_NE(with(head + R"({"op":"frobnicate","in":[0],"attrs":{}}],"outputs":[1],"groups":[[1]]})")
                .find("there is no operator \"frobnicate\""),
            std::string::npos);
  EXPECT_NE(with(head + R"({"op":"exp","in":[1],"attrs":{}}],"outputs":[1],"groups":[[1]]})")
                .find("got the value 1, need one of the 1 before it"),
            std::string::npos);
  EXPECT_NE(with(head + R"({"op":"exp","in":[0],"attrs":{}}],"outputs":[1],"groups":[]})")
                .find("no group runs the value 1"),
            std::string::npos);
  EXPECT_NE(with(head + R"({"op":"exp","in":[0],"attrs":{}}],"outputs":[1],"groups":[[1],[1]]})")
                .find("is no operator that is left to run"),
            std::string::npos);
  EXPECT_NE(with(head + R"({"op":"add","in":[0],"attrs":{}}],"outputs":[1],"groups":[[1]]})")
                .find("add: got 1 tensors, need 2"),
            std::string::npos);
  EXPECT_NE(with(head + R"({"constant":"constant.1"}],"outputs":[1],"groups":[]})")
                .find("the plan holds no tensor"),
            std::string::npos);
  const std::string exp = head + R"({"op":"exp","in":[0],"attrs":{}}],"outputs":[1],"groups":[)";
  const std::string error = with(exp + R"({"nodes":[1],"schedule":"tiled rows=many"}]})");
  EXPECT_NE(error.find("groups[0].schedule: no schedule of a kernel"), std::string::npos) << error;
  EXPECT_NE(error.find("\"rows=many\""), std::string::npos) << error;
  EXPECT_NE(with(exp + R"({"nodes":[1],"schedule":7}]})").find("schedule"), std::string::npos);
}

// What a file may say, and kernels must never see.
TEST(PlanFile, RefusesWhatNoKernelRuns) {
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  const auto with = [&](const std::string& nodes, const std::string& rest) {
    const std::string text =
        R"({"nodes":[{"input":[2,3],"dtype":"f32"},)" + nodes + "]," + rest + "}";
    tn::save_safetensors(path, {{"w", tn::ones({2, 3})}}, one_size(text));
    return error_of([&] { tn::load_executable(path); });
  };
  const std::string one = R"("outputs":[1],"groups":[[1]])";
  for (const std::string axis : {"17", "100000000", "-1"})
    for (const std::string op : {"cumsum", "argsort", "softmax"}) {
      const std::string error =
          with(R"({"op":")" + op + R"(","in":[0],"attrs":{"axis":)" + axis + "}}", one);
      EXPECT_NE(error.find(": f32(2, 3): nodes[1]: " + op + ": got the axis " + axis),
                std::string::npos)
          << error;
    }
  EXPECT_NE(with(R"({"op":"max","in":[0],"attrs":{"axis":100000000,"keepdims":false}})", one)
                .find("got the axes (100000000,)"),
            std::string::npos);
  EXPECT_NE(with(R"({"op":"astype","in":[0],"attrs":{"dtype":"f64"}},)"
                 R"({"op":"add","in":[0,1],"attrs":{}})",
                 R"("outputs":[2],"groups":[[1],[2]])")
                .find("need equal types"),
            std::string::npos);
  EXPECT_NE(with(R"({"op":"slice","in":[0],"attrs":{"start":[0,0],"extent":[2,4],"step":[1,1]}})",
                 R"("outputs":[1],"groups":[])")
                .find("does not hold"),
            std::string::npos);
  // Only who has looked at indices may say so, since kernels of a GPU do not.
  EXPECT_NE(with(R"({"input":[3],"dtype":"i64"},)"
                 R"({"op":"take","in":[0,1],"attrs":{"axis":0,"checked":true}})",
                 R"("outputs":[2],"groups":[[2]])")
                .find("says that indices were checked"),
            std::string::npos);
  for (const std::string order : {"[0,0]", "[0]", "[0,1,0]", "[1,7]"})
    EXPECT_NE(with(R"({"constant":"w","order":)" + order + "}", R"("outputs":[1],"groups":[])")
                  .find("axis"),
              std::string::npos)
        << order;
  const std::string two = R"({"op":"exp","in":[0],"attrs":{}},{"op":"tanh","in":[0],"attrs":{}})";
  EXPECT_NE(with(two, R"("outputs":[1,2],"groups":[[1,2]])")
                .find("the value 1 is not connected with the last one, 2"),
            std::string::npos);
  EXPECT_NE(with(two, R"("outputs":[1],"groups":[[1],[2]])").find("a group of which nothing is"),
            std::string::npos);
  EXPECT_NE(with(R"({"op":"broadcast_to","in":[0],"attrs":{"shape":[1152921504606846976,2,3]}})",
                 R"("outputs":[1],"groups":[])")
                .find("takes more than 2^63 bytes"),
            std::string::npos);
  EXPECT_NE(with(R"({"op":"broadcast_to","in":[0],"attrs":{"shape":[72057594037927936,2,3]}})",
                 R"("outputs":[1],"groups":[])")
                .find("need 2^56 at most"),
            std::string::npos);
  std::string chain = R"({"op":"tanh","in":[0],"attrs":{}})", group = "1";
  for (int i = 2; i <= 17; ++i) {
    chain += R"(,{"op":"tanh","in":[)" + std::to_string(i - 1) + R"(],"attrs":{}})";
    group += "," + std::to_string(i);
  }
  EXPECT_NE(with(chain, R"("outputs":[17],"groups":[[)" + group + "]]").find("need 16 at most"),
            std::string::npos);
}

TEST(PlanFile, RefusesPartsOfWhatIsNotThere) {
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  const auto with = [&](const std::string& parts) {
    const std::string text = R"({"nodes":[{"input":[2],"dtype":"f32"},{"constant":"p"},)"
                             R"({"op":"add","in":[0,1],"attrs":{}}],"outputs":[2],"groups":[[2]]})";
    tn::save_safetensors(path, {{"w", tn::array<float>({1, 2, 3})}},
                         one_size(text, R"({"dtype":"f32","shape":[2]})", "{" + parts + "}"));
    return error_of([&] {
      const Tensor y = tn::load_executable(path)({tn::zeros({2})})[0];
      EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, 3}));
    });
  };
  const auto part = [](const std::string& name, const std::string& of, const std::string& axis,
                       const std::string& begin, const std::string& extent) {
    return "\"" + name + R"(":{"of":")" + of + R"(","axis":)" + axis + R"(,"begin":)" + begin +
           R"(,"extent":)" + extent + "}";
  };
  const std::string where = path + ": plan: parts.p: ", good = part("p", "w", "0", "1", "2");
  EXPECT_EQ(with(good), "no error");
  EXPECT_EQ(with(part("p", "v", "0", "1", "2")), where + "the plan holds no tensor \"v\"");
  EXPECT_EQ(with(part("a", "w", "0", "0", "3") + "," + part("p", "a", "0", "1", "2")),
            where + "the plan holds no tensor \"a\"");
  EXPECT_EQ(with(good + "," + part("w", "w", "0", "1", "2")),
            path + ": plan: parts.w: the plan holds another tensor \"w\"");
  EXPECT_EQ(with(part("p", "w", "0", "2", "2")),
            where + "got 2 from 2 on along axis 0, of f32(3,)");
  for (const auto& [axis, begin, extent] : {std::array<std::string, 3>{"1", "0", "0"},
                                            {"4294967296", "1", "2"},
                                            {"-1", "1", "2"},
                                            {"0", "-1", "2"},
                                            {"0", "1", "-1"},
                                            {"0", "1", "9223372036854775807"},
                                            {"0", "9223372036854775807", "2"}})
    EXPECT_NE(with(part("p", "w", axis, begin, extent)).find("along axis"), std::string::npos);
}

// Of images and pools whose lists of places would fill the memory of this machine.
TEST(PlanFile, LoadsWithoutTheMemoryOfItsValues) {
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  for (const std::string op :
       {R"({"op":"interpolate","in":[0],"attrs":{"size":[2147483647,3],"mode":"bicubic",)"
        R"("align_corners":false,"antialias":false}})",
        R"({"op":"max_pool2d","in":[0],"attrs":{"kernel_size":[1000000,1],"stride":[1,1],)"
        R"("padding":[500000,0]}})"}) {
    tn::save_safetensors(path, {},
                         one_size(R"({"nodes":[{"input":[1,1,1000000,3],"dtype":"f32"},)" + op +
                                      R"(],"outputs":[1],"groups":[[1]]})",
                                  R"({"dtype":"f32","shape":[1,1,1000000,3]})"));
    EXPECT_EQ(tn::load_executable(path).group_count(), 1u);
  }
}

// A schedule that no kernel here has is kept, and does not matter; with it stands its family.
TEST(PlanFile, KeepsTheSchedulesOfGroups) {
  const TemporaryFolder folder;
  const std::string path = folder / "plan.safetensors";
  tn::save_safetensors(
      path, {},
      one_size(R"({"nodes":[{"input":[3],"dtype":"f32"},{"op":"exp","in":[0],"attrs":{}},)"
               R"({"op":"sum","in":[1],"attrs":{"axis":[0],"keepdims":false}}],"outputs":[2],)"
               R"("groups":[{"nodes":[1],"schedule":"swapped tokens=8"},[2]]})",
               R"({"dtype":"f32","shape":[3]})"));
  const tn::Executable loaded = tn::load_executable(path);
  const Tensor x = tn::arange(3).astype(tn::f32);
  EXPECT_NEAR(loaded({x})[0].item<float>(), 1 + std::exp(1.f) + std::exp(2.f), 1e-5);
  const std::string again = folder / "again.safetensors";
  loaded.save(again);
  const std::string plan = tn::load_safetensors(again).metadata.at("plan.0");
  EXPECT_NE(plan.find(R"({"nodes":[1],"family":"pointwise","schedule":"swapped tokens=8"},[2])"),
            std::string::npos)
      << plan;
}

}  // namespace
