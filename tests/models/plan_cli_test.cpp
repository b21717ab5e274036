// --plan and --sizes: a file that holds every size that was met or asked for, and is refused where
// it is of something else.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "models/common/plan.h"
#include "models/common/sizes.h"
#include "tests/error_of.h"
#include "tests/models/cli_testing.h"

namespace {

using cli::Cli;
using cli::Outcome;
using cli::source;
using cli::Words;
using tensor::Json;
using tensor::Tensor;
using tensor::nn::StateDict;

namespace fs = std::filesystem;

class PlanCli : public Cli, public ::testing::WithParamInterface<const char*> {
 protected:
  static bool is_vit() { return GetParam() == std::string("vit"); }
  static std::string image() {
    return source(is_vit() ? "examples/images/digits/digit-3.png"
                           : "examples/images/scenes/scene-1.png");
  }
  static Outcome with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return shipped(GetParam(), words);
  }
  static Outcome on_image(const Words& more) { return with({image()}, more); }
  std::string plan() const { return path("model.plan"); }

  /// What a run of random pixel_values writes; they are always the same for a shape.
  StateDict outputs(const tensor::Shape& shape, const Words& more) {
    tensor::save_safetensors(path("in"), {{"pixel_values", tensor::Generator(9).normal(shape)}});
    const Outcome got = with({"--quiet", "--input", path("in"), "--output", path("out")}, more);
    EXPECT_EQ(got.code, 0) << got.err;
    return tensor::load_safetensors(path("out"), tensor::FileAccess::read).tensors;
  }
  static void expect_same_bits(const StateDict& got, const StateDict& want) {
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, value] : got)
      EXPECT_EQ(value.to_vector<double>(), want.at(name).to_vector<double>()) << name;
  }
  /// Sizes that the model takes, as pixel_values.
  static std::vector<tensor::Shape> sizes() {
    if (is_vit()) return {{1, 3, 32, 32}, {2, 3, 32, 32}, {5, 3, 32, 32}};
    return {{1, 3, 128, 128}, {1, 3, 160, 96}, {1, 3, 224, 160}};
  }
};
INSTANTIATE_TEST_SUITE_P(Programs, PlanCli, ::testing::Values("vit", "detr", "setr"),
                         [](const auto& it) { return std::string(it.param); });

/// The bytes of a file's tensors alone: what is told of each size is text.
std::int64_t weights_of(const std::string& file) {
  std::int64_t bytes = 0;
  for (const auto& [name, x] : tensor::load_safetensors(file).tensors) bytes += x.nbytes();
  return bytes;
}

TEST_P(PlanCli, GrowsByTheSizesItMeets) {
  std::int64_t largest = 0;
  std::vector<StateDict> expected;
  for (const tensor::Shape& shape : sizes()) {
    expected.push_back(outputs(shape, {"--plan", path("single")}));
    largest = std::max(largest, weights_of(path("single")));
    fs::remove(path("single"));
    outputs(shape, {"--plan", plan()});
  }
  EXPECT_EQ(tensor::Plan::load(plan()).sizes().size(), sizes().size());
  EXPECT_LE(weights_of(plan()), largest + largest / 10);
  const std::string bytes = tensor::testing::read_bytes(plan());
  for (std::size_t i = 0; i < expected.size(); ++i)
    expect_same_bits(outputs(sizes()[i], {"--plan", plan()}), expected[i]);
  EXPECT_EQ(tensor::testing::read_bytes(plan()), bytes);
  EXPECT_EQ(files(), 3u);  // in, out, plan
}

TEST_P(PlanCli, IsFilledAhead) {
  const std::string list = is_vit() ? "b1,b2" : "96x128,b2,b1";
  const Outcome filled = with({"--plan", plan(), "--sizes", list}, {});
  EXPECT_EQ(filled.code, 0) << filled.err;
  EXPECT_EQ(filled.out, plan() + ": 2 sizes\n");
  EXPECT_EQ(with({"--plan", plan(), "--sizes", list, "--quiet"}, {}).out, "");
  const std::string bytes = tensor::testing::read_bytes(plan());
  const tensor::Shape two = is_vit() ? tensor::Shape{2, 3, 32, 32} : tensor::Shape{2, 3, 96, 128};
  outputs(two, {"--plan", plan()});
  EXPECT_EQ(tensor::testing::read_bytes(plan()), bytes);
  // An image runs at a size that was asked for.
  tensor::save_png(path("image.png"), tensor::full({96, 128, 3}, 99, tensor::u8));
  const Words as_it_is = GetParam() == std::string("setr")
                             ? Words{"--whole", "--scale", "128,96", "--quiet"}
                             : Words{"--quiet"};
  Words run = {path("image.png"), "--plan", plan()};
  run.insert(run.end(), as_it_is.begin(), as_it_is.end());
  EXPECT_EQ(with(run, {}).code, 0);
  if (GetParam() != std::string("detr")) {  // which enlarges it
    EXPECT_EQ(tensor::testing::read_bytes(plan()), bytes);
  }
  // With images in the same run.
  run.insert(run.end(), {"--sizes", list, "--json"});
  const Outcome both = with(run, {});
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_EQ(findings(both).size(), 1u);
}

TEST_P(PlanCli, SizesThatAreNone) {
  const auto refused = [&](const Words& words, const std::string& line) {
    expect_refused(with(words, {}), GetParam() + (": " + line));
  };
  for (const std::string word :
       {"", "480", "480x", "x640", "0x640", "480x0", "480x640x3", "-480x640", "480X640", " 480x640",
        "b", "b0", "b-1", "b65537", "8b", "8192x8193", "99999999999999999999x1", "b1.5"})
    for (const auto& [before, after] :
         {std::pair<std::string, std::string>{"", ""}, {"b1,", ""}, {"", ",28x28"}}) {
      const std::string list = before + word + after;
      if (list.empty()) continue;
      refused({"--plan", plan(), "--sizes", list},
              "--sizes: got \"" + word + "\" in \"" + list +
                  "\", need sizes HEIGHTxWIDTH of at most 67108864 pixels and batches b1 to "
                  "b65536, as in 480x640,800x1333,b1,b8");
    }
  refused({"--sizes", "b1"}, "--sizes: fills a plan ahead: need --plan FILE, too");
  refused({"--sizes", "b1", "--plan", plan(), "--tune", "1s"},
          "--sizes: goes without --tune, which is for one size: leave one out");
  for (const Words& option : {Words{"--report"}, {"--verify"}, {"--profile", path("t")}}) {
    Words words = {"--sizes", "b1", "--plan", plan()};
    words.insert(words.end(), option.begin(), option.end());
    refused(words, option.front() +
                       ": needs a run, but --sizes only fills the plan: name images, or use "
                       "--input");
  }
  EXPECT_EQ(files(), 0u);
  if (!is_vit()) return;
  // What the model cannot take; the sizes before it are there.
  refused({"--plan", plan(), "--sizes", "32x32,20x28"},
          "--sizes: 20x28,b1: pixel_values: got an image of 20 x 28, the model takes 32 x 32: "
          "resize it, or ask for a resized position embedding (--interpolate-pos-encoding)");
  EXPECT_EQ(tensor::Plan::load(plan()).sizes().size(), 1u);
}

TEST(Sizes, AreEveryOneWithEveryBatch) {
  using models::parse_sizes;
  const models::Size usual{224, 200}, a{480, 640}, b{800, 1333};
  const auto all = parse_sizes("480x640,800x1333,b1,b8", usual);
  EXPECT_EQ(all, (std::vector<models::InputSize>{{1, a}, {8, a}, {1, b}, {8, b}}));
  EXPECT_EQ(parse_sizes("b3", usual), (std::vector<models::InputSize>{{3, usual}}));
  EXPECT_EQ(parse_sizes("480x640", usual), (std::vector<models::InputSize>{{1, a}}));
}

// As programs of their own would; each ends without what this test's process would do.
TEST_P(PlanCli, ProcessesGrowOneFileTogether) {
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < sizes().size(); ++i) {
    const std::string in = path("in" + std::to_string(i)), out = path("out" + std::to_string(i));
    tensor::save_safetensors(in, {{"pixel_values", tensor::Generator(9).normal(sizes()[i])}});
    const pid_t child = fork();
    if (child == 0) {
      int code = 9;
      std::thread([&] {
        code = with({"--quiet", "--input", in, "--output", out, "--plan", plan()}, {}).code;
      }).join();
      _exit(code);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(tensor::Plan::load(plan()).sizes().size(), sizes().size());
  for (std::size_t i = 0; i < sizes().size(); ++i)
    expect_same_bits(
        tensor::load_safetensors(path("out" + std::to_string(i)), tensor::FileAccess::read).tensors,
        outputs(sizes()[i], {}));
}

TEST_P(PlanCli, PlanIsWrittenOnceAndRunAfterwards) {
  const std::string plain = on_image({"--json"}).out, plan = this->plan();
  EXPECT_EQ(on_image({"--json", "--plan", plan}).out, plain);
  const std::string bytes = tensor::testing::read_bytes(plan);
  const Outcome again = on_image({"--json", "--plan", plan, "--threads", "1"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.err, "");
  const auto want = findings({0, plain, ""}), got = findings(again);
  ASSERT_EQ(got.begin()->second.size(), want.begin()->second.size());
  EXPECT_EQ(got.begin()->second[0]["label"].text(), want.begin()->second[0]["label"].text());
  EXPECT_EQ(tensor::testing::read_bytes(plan), bytes);
  EXPECT_EQ(files(), 1u);

  // It is the plan that runs: with its weights gone, the model has no opinion.
  tensor::Safetensors file = tensor::load_safetensors(plan, tensor::FileAccess::read);
  for (auto& [name, value] : file.tensors)
    if (is_floating(value.dtype())) value = tensor::zeros(value.shape(), value.dtype());
  tensor::save_safetensors(plan, file.tensors, file.metadata);
  const Outcome empty = on_image({"--json", "--plan", plan});
  EXPECT_EQ(empty.code, 0) << empty.err;
  EXPECT_NE(empty.out, plain);
}

TEST_P(PlanCli, PlanOfSomethingElseIsRefused) {
  const std::string plan = this->plan();
  const std::string other = ": name another plan, or a file that does not exist yet";
  const auto refused = [&](const Outcome& got, const std::string& message) {
    EXPECT_EQ(got.code, 1);
    EXPECT_EQ(got.err, GetParam() + (": " + plan + message) + "\n");
  };
  ASSERT_EQ(on_image({"--plan", plan}).code, 0);
  refused(on_image({"--plan", plan, "--dtype", "bf16"}),
          ": was compiled for the dtype \"f32\", this run has \"bf16\"" + other);

  tensor::save_safetensors(path("in"), {{"pixel_values", tensor::zeros(sizes().back())}});
  refused(
      with({"--input", path("in"), "--output", path("out"), "--plan", plan}, {"--hidden-states"}),
      ": was compiled for the hidden states \"no\", this run has \"yes\"" + other);

  // Another checkpoint of the same architecture, a single weight of which differs.
  const std::string folder = source("models/" + std::string(GetParam()) + "/pretrained/") +
                             (GetParam() == std::string("vit") ? "digits" : "scenes");
  fs::create_directory(path("copy"));
  for (const char* file : {"config.json", "preprocessor_config.json"})
    fs::copy_file(folder + "/" + file, path("copy/") + file);
  auto weights = tensor::load_safetensors(folder + "/model.safetensors").tensors;
  tensor::save_safetensors(path("copy/model.safetensors"), weights);
  EXPECT_EQ(run(GetParam(), {image(), "--checkpoint", path("copy"), "--plan", plan}).code, 0);
  Tensor changed = weights.begin()->second.copy();
  changed(tensor::ellipsis, 0) = changed(tensor::ellipsis, 0) + 1;
  weights.begin()->second = changed;
  tensor::save_safetensors(path("copy/model.safetensors"), weights);
  const Outcome weight = run(GetParam(), {image(), "--checkpoint", path("copy"), "--plan", plan});
  refused(weight, ": was made from another model: other weights or another configuration" + other);
}

TEST_P(PlanCli, FilesThatAreNoPlans) {
  const std::string plan = this->plan();
  const auto message = [&] {
    const Outcome got = on_image({"--plan", plan});
    EXPECT_EQ(got.code, 1);
    EXPECT_EQ(std::count(got.err.begin(), got.err.end(), '\n'), 1) << got.err;
    return got.err;
  };
  tensor::testing::write_bytes(plan, "no plan");
  EXPECT_NE(message().find(plan + ": "), std::string::npos);
  tensor::save_safetensors(plan, {{"x", tensor::ones({1})}});
  EXPECT_EQ(message(), GetParam() + (": " + plan) +
                           ": is no plan file: it has no metadata entry \"plan\" (Plan::save "
                           "writes one): name another plan, or a file that does not exist yet\n");
  fs::remove(plan);
  ASSERT_EQ(on_image({"--plan", plan}).code, 0);
  tensor::Safetensors file = tensor::load_safetensors(plan, tensor::FileAccess::read);
  const auto with = [&](const std::string& entry, const std::string& value) {
    auto metadata = file.metadata;
    metadata[entry] = value;
    tensor::save_safetensors(plan, file.tensors, metadata);
    return message();
  };
  const auto named = [&](const std::string& key, const std::string& name, const std::string& now) {
    std::string head = file.metadata.at("plan");
    const std::size_t at = head.find(name, head.find("\"" + key + "\":\""));
    return with("plan", head.replace(at, name.size(), now));
  };
  EXPECT_NE(named("inputs", "pixel_values", "pixels").find(": names the inputs "),
            std::string::npos);
  const std::string wanted = GetParam() == std::string("setr") ? "sums" : "logits";
  EXPECT_NE(named("outputs", wanted, "more than there are").find(" outputs, need those of "),
            std::string::npos);
  EXPECT_NE(with("program", "cat").find(": was made by cat, this is " + std::string(GetParam())),
            std::string::npos);
  EXPECT_NE(with("version", "0.0.0").find("was compiled for the version \"0.0.0\""),
            std::string::npos);
  EXPECT_NE(with("plan", "{}").find("is no plan file"), std::string::npos);
  EXPECT_EQ(
      with("plan", R"({"format":"tensor-plan","version":2})"),
      GetParam() + (": " + plan) +
          ": has the plan version 2, this build reads 3: compile the model again: name another "
          "plan, or a file that does not exist yet\n");
  EXPECT_EQ(named("outputs", wanted, "nothing"),
            GetParam() + (": model: it has no output \"" + wanted) + "\"\n");
  const Outcome nowhere = on_image({"--plan", path("no/model.plan")});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_NE(nowhere.err.find(path("no/model.plan")), std::string::npos) << nowhere.err;
}

TEST(Fingerprint, CountsNamesTypesAndEveryElement) {
  Tensor a = tensor::arange(35).reshape({5, 7}).astype(tensor::f32), b = tensor::ones({3});
  const auto of = [&](const std::string& text) {
    return models::fingerprint(text, {{"a", &a}, {"b", &b}});
  };
  const std::string first = of("text");
  EXPECT_EQ(first.size(), 16u);
  EXPECT_EQ(of("text"), first);
  EXPECT_NE(of("texts"), first);
  EXPECT_NE(models::fingerprint("text", {{"a", &a}, {"c", &b}}), first);
  const Tensor before = a;
  for (std::int64_t i = 0; i < 35; ++i) {
    a = before.copy();
    a.at<float>(i / 7, i % 7) = -1;
    EXPECT_NE(of("text"), first) << i;
  }
  a = before.reshape({7, 5});
  EXPECT_NE(of("text"), first);
  a = before.transpose().copy().transpose();  // the same elements, otherwise in memory
  EXPECT_EQ(of("text"), first);
}

// Pictures of several sizes share what was compiled for their bucket.
TEST_F(Cli, DetrBucketsSizes) {
  const auto run = [&](Words words) {
    for (const char* more : {"--bucket", "256", "--plan"}) words.push_back(more);
    words.push_back(path("detr.plan"));
    return shipped("detr", words);
  };
  const Outcome portrait = run({source("examples/images/scenes/scene-1.png")});
  ASSERT_EQ(portrait.code, 0) << portrait.err;
  tensor::save_png(path("low.png"),
                   tensor::load_image(source("examples/images/scenes/scene-1.png"))["20:"]);
  ASSERT_EQ(run({path("low.png")}).code, 0);
  EXPECT_EQ(tensor::Plan::load(path("detr.plan")).sizes().size(), 1u);
  EXPECT_EQ(run({"--sizes", "200x130,250x20"}).code, 0);
  EXPECT_EQ(tensor::Plan::load(path("detr.plan")).sizes().size(), 1u);
}

TEST_F(Cli, OnlyDetrHasBuckets) {
  for (const char* model : {"vit", "setr"}) {
    const Outcome got = shipped(model, {"--bucket", "64", "x.png"});
    EXPECT_EQ(got.code, 1);
    EXPECT_NE(got.err.find("--bucket: pads images, but this model has no mask that says what is "
                           "padding: leave it out, or resize the images to fewer sizes"),
              std::string::npos)
        << got.err;
  }
}

}  // namespace
