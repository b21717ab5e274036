// The onnx program: inputs from files and images, outputs, and what it refuses.
#include "models/onnx/onnx_program.h"
#include "tensor/plan.h"
#include "tests/headers.h"
#include "tests/io/io_testing.h"
#include "tests/onnx_writer.h"

namespace tensor::testing {
namespace {

using namespace by_hand;

class OnnxProgram : public FolderTest {
 protected:
  struct Result {
    int code;
    std::string out, err;
  };
  static Result run(const std::vector<std::string>& arguments) {
    std::ostringstream out, err;
    const int code = models::onnx::run_onnx(arguments, out, err);
    return {code, out.str(), err.str()};
  }
  static std::string complaint(const std::vector<std::string>& arguments) {
    const Result got = run(arguments);
    EXPECT_EQ(got.code, 1);
    EXPECT_EQ(got.out, "");
    return got.err;
  }

  // sum = a + b, double = 2 (a + b)
  std::string sums() {
    const Message g =
        graph({node("Add", {"a", "b"}, {"sum"}), node("Mul", {"sum", "two"}, {"double"})},
              {value("a", 1, {"n"}), value("b", 1, {"n"})},
              {value("sum", 1, {"n"}), value("double", 1, {"n"})}, {tensor<float>("two", {2}, {})});
    write_bytes(path("sums.onnx"), model(g).str());
    return path("sums.onnx");
  }
  // The mean of every plane of an image.
  std::string means(const std::vector<std::string>& shape) {
    const Message g = graph({node("GlobalAveragePool", {"image"}, {"y"})},
                            {value("image", 1, shape)}, {value("y", 1, {"1", "3", "1", "1"})});
    write_bytes(path("means.onnx"), model(g).str());
    return path("means.onnx");
  }
  // The product in the middle is in eight bits: neither of what the caller gives nor a head.
  std::string three_products(const std::vector<std::string>& shape, const std::string& input) {
    Generator random(3);
    const auto weight = [&](const char* name, std::int64_t rows, std::int64_t columns) {
      const Tensor w = random.normal({rows, columns}) / 8;
      return tensor<float>(name, {w.data<float>(), w.data<float>() + w.size()}, {rows, columns});
    };
    const Message g =
        graph({node("Reshape", {input, "rows"}, {"x"}), node("MatMul", {"x", "first"}, {"a"}),
               node("Relu", {"a"}, {"b"}), node("MatMul", {"b", "second"}, {"c"}),
               node("Relu", {"c"}, {"d"}), node("MatMul", {"d", "head"}, {"y"})},
              {value(input, 1, shape)}, {value("y", 1, {"32", "16"})},
              {weight("first", 48, 64), weight("second", 64, 64), weight("head", 64, 16),
               tensor<std::int64_t>("rows", {32, 48}, {2})});
    write_bytes(path("three.onnx"), model(g).str());
    return path("three.onnx");
  }
  std::string saved(const std::string& name, const Tensor& x) {
    save_npy(path(name), x);
    return path(name);
  }
};

TEST_F(OnnxProgram, ReadsAndWritesArrays) {
  const std::string file = sums(), a = saved("a.npy", array({1.0F, 2.0F}));
  const std::string b = saved("b.npy", array({10.0F, 20.0F}));
  for (const char* mode : {"--eager", "--threads=1"}) {
    const Result got = run({file, "b=" + b, a, "--output", path("out.npz"), mode});
    EXPECT_EQ(got.err, "");
    EXPECT_EQ(got.code, 0);
    EXPECT_EQ(got.out, "sum f32(2,): 11 to 22, mean 16.5\ndouble f32(2,): 22 to 44, mean 33\n");
    const TensorMap outputs = load_npz(path("out.npz"));
    EXPECT_TRUE(array_equal(outputs.at("sum"), array({11, 22})));
    EXPECT_TRUE(array_equal(outputs.at("double"), array({22, 44})));
  }
  save_npz(path("in.npz"), {{"a", array({1.0F})}, {"b", array({2.0F})}});
  const Result got = run({file, path("in.npz"), "--verify", "--report", "--threads", "1"});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_NE(got.out.find("kernel"), std::string::npos);
  EXPECT_NE(got.out.find("sum f32(1,): 3 to 3, mean 3"), std::string::npos) << got.out;
  EXPECT_EQ(run({file, path("in.npz"), "--quiet"}).out, "");
}

// y has the places where x w is not 0.
TEST_F(OnnxProgram, RunsInPartsWhereShapesDependOnElements) {
  const Message g =
      graph({node("MatMul", {"x", "w"}, {"h"}), node("NonZero", {"h"}, {"places"}),
             node("Cast", {"places"}, {"y"}, {attribute("to", 1)})},
            {value("x", 1, {"n", "2"})}, {value("y", 1, {"2", "k"}), value("h", 1, {"n", "2"})},
            {tensor<float>("w", {1, 0, 1, 2}, {2, 2})});
  write_bytes(path("places.onnx"), model(g).str());
  const std::string x = saved("x.npy", array({{1, -1}, {2, 3}}).to(f32));
  const std::string note =
      "node \"make places\" (NonZero of opset 17) asks for elements of what is computed: what "
      "depends on it runs on the host, in parts\n";
  const std::string lines = "y f32(2, 3): 0 to 1, mean 0.666667\nh f32(2, 2): -2 to 6, mean 2.25\n";
  EXPECT_EQ(run({path("places.onnx"), x, "--eager"}).out, lines);
  for (int i = 0; i < 2; ++i) {  // the second time from the plan
    const Result got = run({path("places.onnx"), x, "--threads", "1", "--plan", path("p.tensor")});
    EXPECT_EQ(got.err, "");
    EXPECT_EQ(got.out, note + lines);
  }
  const Result reported = run({path("places.onnx"), x, "--verify", "--report", "--quiet"});
  EXPECT_EQ(reported.code, 0) << reported.err;
  EXPECT_NE(reported.out.find("kernel"), std::string::npos);
}

TEST_F(OnnxProgram, TakesImages) {
  Tensor image = full({2, 4, 3}, 51, u8);
  image(all_of_axis, all_of_axis, 0) = 255;
  save_png(path("image.png"), image);
  const auto means_of = [&](const std::vector<std::string>& shape,
                            const std::vector<std::string>& more) {
    std::vector<std::string> arguments{means(shape), path("image.png"), "--output", path("y.npy"),
                                       "--eager"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result got = run(arguments);
    EXPECT_EQ(got.code, 0) << got.err;
    return load_npy(path("y.npy")).reshape({-1});
  };
  EXPECT_TRUE(allclose(means_of({"1", "3", "h", "w"}, {}), array({1.0, 0.2, 0.2})));
  EXPECT_TRUE(allclose(means_of({"n", "3", "7", "5"}, {}), array({1.0, 0.2, 0.2})));  // resized
  EXPECT_TRUE(allclose(means_of({"n", "3", "h", "w"}, {"--mean", "0.5,0.1,0", "--std", "2,1,0.1"}),
                       array({0.25, 0.1, 2.0})));
  EXPECT_EQ(complaint({means({"5", "3", "h", "w"}), path("image.png")}),
            "onnx: inputs: an image was given for the input image f32(5, 3, h, w), need one of (1, "
            "3, height, width) or (1, height, width, 3) of u8 or a floating type: make an npy "
            "file\n");
}

TEST_F(OnnxProgram, CalibratesOnArraysAndImages) {
  const auto report = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = arguments;
    for (const char* more : {"--dtype", "i8", "--threads", "1", "--report", "--output"})
      all.emplace_back(more);
    all.push_back(path("y.npy"));
    const Result got = run(all);
    EXPECT_EQ(got.code, 0) << got.err;
    return got.out;
  };
  Generator random(4);
  const Tensor x = random.normal({32, 48});
  std::filesystem::create_directory(path("examples"));
  save_npz(path("examples/1.npz"), {{"x0", random.normal({32, 48})}});
  save_npz(path("examples/2.npz"), {{"x0", x}});
  const std::string file = three_products({"32", "48"}, "x0"), input = saved("x.npy", x);
  run({file, input, "--output", path("want.npy"), "--eager"});
  const Tensor want = load_npy(path("want.npy"));
  // A step of 1/127 of the largest of some thousand normal numbers (4) is an error of
  // 4 / 127 / sqrt(12) = 0.009 in rows and in weights; twice that.
  const auto is_near = [&] {
    const Tensor error = load_npy(path("y.npy")) - want;
    return all(sum(square(error)) < 0.026F * 0.026F * sum(square(want)));
  };
  EXPECT_NE(report({file, input}).find("dynamic"), std::string::npos);
  EXPECT_TRUE(is_near());
  const std::string text = report({file, input, "--calibrate", path("examples")});
  EXPECT_NE(text.find("static"), std::string::npos) << text;
  EXPECT_EQ(text.find("dynamic"), std::string::npos) << text;
  EXPECT_TRUE(is_near());
  save_png(path("image.png"), random.uniform({16, 32, 3}, 0, 256).to(u8));
  const std::string of_images = three_products({"1", "3", "16", "32"}, "image");
  EXPECT_NE(report({of_images, path("image.png"), "--calibrate", path("image.png")}).find("static"),
            std::string::npos);
  EXPECT_EQ(complaint({file, input, "--calibrate", path("examples")}),
            "onnx: --calibrate: needs --dtype i8, got f32\n");
  EXPECT_EQ(complaint({three_products({"32", "48"}, "x0"), input, "--dtype", "i8", "--calibrate",
                       path("image.png")}),
            "onnx: --calibrate: got the image " + path("image.png") +
                ", but 0 of the model's inputs take one: need exactly one, or an npz file of "
                "arrays\n");
}

TEST_F(OnnxProgram, KeepsPlans) {
  const std::string file = sums(), plan = path("sums.plan");
  const auto with = [&](std::int64_t count, const std::vector<std::string>& more = {}) {
    save_npz(path("in.npz"), {{"a", arange(count).to(f32)}, {"b", ones({count})}});
    std::vector<std::string> arguments{file,     path("in.npz"), "--threads", "1",
                                       "--plan", plan,           "--output",  path("out.npz")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  for (const std::int64_t count : {3, 5, 3}) {
    std::filesystem::remove(path("out.npz"));
    const Result got = with(count);
    EXPECT_EQ(got.code, 0) << got.err;
    EXPECT_TRUE(array_equal(load_npz(path("out.npz")).at("double"), 2 * (arange(count) + 1)));
  }
  EXPECT_EQ(Plan::load(plan).sizes().size(), 2u);
  const std::string other = ": name another plan, or a file that does not exist yet\n";
  EXPECT_EQ(
      with(3, {"--dtype", "bf16"}).err,
      "onnx: " + plan + ": was compiled for the dtype \"f32\", this run has \"bf16\"" + other);
  EXPECT_EQ(with(3, {"--tune", "1s"}).err.find("onnx: --tune: has nothing to do: the plan "), 0u);
  const Message changed =
      graph({node("Add", {"a", "b"}, {"sum"}), node("Add", {"sum", "sum"}, {"double"})},
            {value("a", 1, {"n"}), value("b", 1, {"n"})},
            {value("sum", 1, {"n"}), value("double", 1, {"n"})}, {});
  write_bytes(file, model(changed).str());
  EXPECT_EQ(with(3).err, "onnx: " + plan +
                             ": was made from another model: other weights or another "
                             "configuration" +
                             other);
  const Message spaces =
      graph({node("Neg", {"a b"}, {"y"})}, {value("a b", 1, {"n"})}, {value("y", 1, {"n"})}, {});
  write_bytes(file, model(spaces).str());
  save_npy(path("x.npy"), ones({2}));
  EXPECT_EQ(run({file, path("x.npy"), "--plan", path("new.plan")}).err,
            "onnx: --plan: cannot keep the name \"a b\" of the model: need names without spaces\n");
}

TEST_F(OnnxProgram, TellsWhatAModelIs) {
  const Result got = run({sums(), "--info"});
  EXPECT_EQ(got.code, 0);
  EXPECT_EQ(got.out, path("sums.onnx") +
                         ": opset 17, by by hand\n  input   a f32(n)\n  input   b f32(n)\n"
                         "  output  sum f32(n)\n  output  double f32(n)\n2 nodes of 2 operators\n"
                         "      1  Add\n      1  Mul\n1 stored tensors of 1 elements, 4 bytes\n");
}

TEST_F(OnnxProgram, RefusesWhatDoesNotFit) {
  const std::string file = sums(), a = saved("a.npy", array({1.0F, 2.0F}));
  EXPECT_EQ(complaint({}), "onnx: model is required (see onnx --help)\n");
  EXPECT_EQ(complaint({file, a}),
            "onnx: inputs: got " + a +
                " without a name, and the inputs a, b are left: write NAME=" + a + "\n");
  EXPECT_EQ(complaint({file, "a=" + a}),
            "onnx: " + file + ": the input \"b\" is missing, need \"a\", \"b\"\n");
  EXPECT_EQ(complaint({file, "a=" + a, "a=" + a}),
            "onnx: inputs: the input \"a\" was given twice\n");
  save_npz(path("c.npz"), {{"c", array({1.0F})}});
  EXPECT_EQ(complaint({file, path("c.npz")}), "onnx: inputs: there is no input \"c\", need a, b\n");
  EXPECT_EQ(
      complaint({file, "a=" + path("c.npz")}),
      "onnx: inputs: an npz file names its arrays itself: write " + path("c.npz") + " alone\n");
  EXPECT_EQ(complaint({file, "--output", "out.txt"}),
            "onnx: --output: got out.txt, need a name that ends in .npz or .npy\n");
  EXPECT_EQ(complaint({file, "a=" + a, "b=" + a, "--output", a}),
            "onnx: --output: would overwrite the input " + a + ": name another file\n");
  EXPECT_EQ(complaint({file, "a=" + a, "--eager", "--report"}),
            "onnx: --report: is for compiled models: leave out --eager, which runs the reference "
            "operators on one thread\n");
  const Result got = run({file, "a=" + a, "b=" + a, "--output", path("y.npy")});
  EXPECT_EQ(got.err, "onnx: --output: got " + path("y.npy") +
                         ", but there are 2 outputs: name an npz file\n");
}

}  // namespace
}  // namespace tensor::testing
