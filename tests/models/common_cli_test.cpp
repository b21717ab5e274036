// The shared command line, with a program that sees the mean level of an image.
#include "models/common/cli.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "models/common/progress.h"
#include "models/common/report.h"
#include "models/common/text.h"
#include "models/common/validators.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/json.h"
#include "tensor/nn.h"
#include "tensor/ops.h"
#include "tests/models/cli_testing.h"
#include "tests/temporary_folder.h"

namespace {

using cli::Outcome;
using models::Finding;
using models::Info;
using models::Observer;
using tensor::Tensor;
using tensor::check::TemporaryFolder;
using tensor::nn::StateDict;

/// A "model" of one number, by which it multiplies.
class MeanProgram : public models::Program {
 public:
  std::string name() const override { return "mean"; }
  std::string description() const override { return "Tells the mean level."; }
  std::string examples() const override { return "  mean --checkpoint DIR photo.png\n"; }
  std::vector<std::string> standard_models() const override { return {"mean-1", "mean-2"}; }
  std::string score_name() const override { return "share"; }
  void add_options(CLI::App& app) override { app.add_option("--label", label_, "the label"); }
  void open(const std::string& checkpoint) override {
    if (checkpoint == "broken") throw std::runtime_error("a fault");
    if (checkpoint != "good") tensor::fail(checkpoint, "no good:\n  one\n  two");
  }
  void make(const std::string&) override { factor_ = tensor::nn::parameter({1}); }
  std::vector<tensor::nn::Parameter> parameters() override { return {{"factor", &factor_}}; }
  Info info() override {
    Info info{.model = "mean",
              .input = "any",
              .rows = {{"factor", 1, 1, 2500000000}},
              .peak_activations = 1 << 20};
    return info;
  }
  std::int64_t steps() const override { return 1; }
  tensor::Shape usual_shape() const override { return {3, 4, 6}; }
  StateDict run(const StateDict& inputs, const Observer& observe) const override {
    const Tensor x = inputs.at("pixel_values") * factor_;
    models::observed(observe, "hidden_states.0", x);
    return {{"logits", tensor::mean(x, {1, 2, 3})}};
  }
  models::ImageResult look(const Tensor& image, bool with_picture,
                           const models::Forward& forward) const override {
    const Tensor pixels = (image.astype(tensor::f32) / 255).transpose({2, 0, 1}).expand_dims(0);
    const tensor::nn::StateDict outputs = forward({{"pixel_values", pixels}});
    const double share = models::output(outputs, "logits", {1}).item() / 2;
    models::ImageResult result{{{label_, 7, share, std::array<double, 4>{0, 1, 2, 3}}}, {}};
    if (with_picture) result.picture = image;
    return result;
  }

 private:
  std::string label_ = "grey";
  Tensor factor_ = tensor::array<float>({2});
};

Outcome run(const std::vector<std::string>& arguments, models::Program&& program = MeanProgram()) {
  std::ostringstream out, err;
  const int code = models::run_program(program, arguments, out, err);
  return {code, out.str(), err.str()};
}

/// What a call with bad arguments says; its exit code must be 1, and it is one line.
std::string complaint(const std::vector<std::string>& arguments) {
  const Outcome result = run(arguments);
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  return result.err;
}

std::string grey_png(const TemporaryFolder& home, const std::string& name, int level) {
  const std::string path = home / name;
  tensor::save_png(path, tensor::full({4, 6, 3}, level, tensor::u8));
  return path;
}

TEST(CommandLine, HelpAndVersion) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* part : {"Tells the mean level.",
                           "--checkpoint DIR",
                           "mean-1, mean-2",
                           "--random-weights SEED",
                           "--label",
                           "--out FILE.png",
                           "--json",
                           "--input FILE.safetensors",
                           "--hidden-states",
                           "--info",
                           "--device NAME",
                           "--eager",
                           "--dtype TYPE",
                           "--threads N",
                           "--plan FILE",
                           "--sizes LIST",
                           "--report",
                           "--profile FILE.json",
                           "--verify",
                           "--quiet",
                           "Examples:",
                           "mean --checkpoint DIR photo.png"})
    EXPECT_NE(help.out.find(part), std::string::npos) << part;
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("mean 0.")) << version.out;
}

TEST(CommandLine, RefusesWhatDoesNotGoTogether) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--checkpoint", "good"});
    return complaint(more);
  };
  EXPECT_EQ(complaint({}), "mean: arguments: need either --checkpoint DIR or --model NAME\n");
  EXPECT_EQ(complaint({"--checkpoint", "good", "--model", "mean-1"}),
            "mean: arguments: got both --checkpoint and --model, need one of them\n");
  EXPECT_EQ(with({}),
            "mean: arguments: there is nothing to do: name images, or use --input or --info\n");
  EXPECT_EQ(with({"--device", "gpu", "a.png"}),
            "mean: device: got \"gpu\", need cpu, cuda or cuda:1\n");
  EXPECT_EQ(complaint({"--model", "mean-3"}),
            "mean: --model: got \"mean-3\", need one of mean-1, mean-2\n");
  EXPECT_EQ(
      complaint({"--model", "mean-1", "a.png"}),
      "mean: --model: has no weights of its own: add --random-weights SEED, or use --checkpoint\n");
  EXPECT_EQ(with({"--random-weights", "1", "a.png"}),
            "mean: --random-weights: needs --model NAME\n");
  EXPECT_EQ(with({"--input", "a"}), "mean: arguments: --input and --output go together\n");
  EXPECT_EQ(with({"--hidden-states", "a.png"}),
            "mean: --hidden-states: needs --input and --output\n");
  EXPECT_EQ(with({"--input", "a", "--output", "b", "a.png"}),
            "mean: arguments: need either images or --input, not both\n");
  EXPECT_EQ(with({"--info", "--out", "a.png"}), "mean: --out: needs images\n");
  EXPECT_EQ(with({"--info", "--json"}), "mean: --json: needs images\n");
  EXPECT_EQ(with({"--bogus"}),
            "mean: The following argument was not expected: --bogus (see mean --help)\n");
}

TEST(CommandLine, TellsAnErrorInOneLine) {
  EXPECT_EQ(complaint({"--checkpoint", "bad", "--info"}), "mean: bad: no good: one; two\n");
  const Outcome broken = run({"--checkpoint", "broken", "--info"});
  EXPECT_EQ(broken.code, 2);
  EXPECT_EQ(broken.err, "mean: a fault\n");
}

TEST(CommandLine, LooksAtImagesAndFolders) {
  const TemporaryFolder home;
  grey_png(home, "b.png", 51), grey_png(home, "a.PNG", 102);
  home.write("notes.txt", "no image");
  const Outcome result = run({"--checkpoint", "good", home.path()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, home / "a.PNG" + "\n   40.0 %  grey  (0, 1) to (2, 3)\n" + home / "b.png" +
                            "\n   20.0 %  grey  (0, 1) to (2, 3)\n");
  EXPECT_EQ(result.err, "");
}

TEST(CommandLine, GoesOnAfterAnUnreadableImage) {
  const TemporaryFolder home;
  const std::string good = grey_png(home, "c.png", 255);
  home.write("b.png", "not a picture");
  const Outcome text = run({"--checkpoint", "good", home.path(), home / "absent.png"});
  EXPECT_EQ(text.code, 1);
  EXPECT_EQ(text.out, good + "\n  100.0 %  grey  (0, 1) to (2, 3)\n");
  EXPECT_EQ(std::count(text.err.begin(), text.err.end(), '\n'), 2) << text.err;
  EXPECT_NE(text.err.find("mean: " + home / "b.png"), std::string::npos) << text.err;
  EXPECT_NE(text.err.find(home / "absent.png" + ": cannot be opened: No such file"),
            std::string::npos)
      << text.err;
  const Outcome json = run({"--json", "--checkpoint", "good", home.path()});
  EXPECT_EQ(json.code, 1);
  const tensor::Json parsed = tensor::Json::parse(json.out, "out");
  ASSERT_EQ(parsed.size(), 2u);
  EXPECT_TRUE(parsed[0].has("error"));
  EXPECT_EQ(parsed[1]["file"].text(), good);
  const tensor::Json finding = parsed[1]["findings"][0];
  EXPECT_EQ(finding["label"].text(), "grey");
  EXPECT_EQ(finding["id"].integer(), 7);
  EXPECT_EQ(finding["share"].number(), 1);
  EXPECT_EQ(finding["box"].numbers(), (std::vector<double>{0, 1, 2, 3}));
}

TEST(CommandLine, WritesPictures) {
  const TemporaryFolder home;
  std::filesystem::create_directory(home / "sub");
  const std::string a = grey_png(home, "a.png", 10), b = grey_png(home, "sub/a.png", 20);
  EXPECT_EQ(run({"--checkpoint", "good", a, "--out", home / "one.png"}).code, 0);
  EXPECT_EQ(tensor::load_image(home / "one.png").item(0, 0, 0), 10);
  EXPECT_EQ(run({"--checkpoint", "good", a, b, "--out", home / "new"}).code, 0);
  EXPECT_EQ(tensor::load_image(home / "new/a.png").item(0, 0, 0), 10);
  EXPECT_EQ(tensor::load_image(home / "new/a-2.png").item(0, 0, 0), 20);
  EXPECT_EQ(complaint({"--checkpoint", "good", a, b, "--out", home / "two.png"}),
            "mean: --out: got 2 images for the one file " + home / "two.png" + ": name a folder\n");
  home.write("file", "");
  EXPECT_NE(complaint({"--checkpoint", "good", a, "--out", home / "file"})
                .find("cannot be made a folder"),
            std::string::npos);
}

TEST(CommandLine, NeverOverwritesWhatItReads) {
  const TemporaryFolder home;
  const std::string a = grey_png(home, "a.png", 10), in = home / "in.safetensors";
  const std::string bytes = tensor::testing::read_bytes(a);
  std::filesystem::create_symlink(a, home / "link.png");
  tensor::save_safetensors(in, {{"pixel_values", tensor::ones({1, 3, 2, 2})}});
  const auto refused = [](const std::string& option, const std::string& file,
                          const std::string& mending) {
    return "mean: " + option + ": would overwrite the input image " + file + ": name another " +
           mending + "\n";
  };
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--checkpoint", "good", a});
    return complaint(more);
  };
  EXPECT_EQ(with({"--out", home.path()}), refused("--out", a, "folder"));
  EXPECT_EQ(with({"--out", a}), refused("--out", a, "file"));
  EXPECT_EQ(with({"--out", home / "link.png"}), refused("--out", home / "link.png", "file"));
  EXPECT_EQ(with({"--profile", a}), refused("--profile", a, "file"));
  EXPECT_EQ(tensor::testing::read_bytes(a), bytes);
  EXPECT_EQ(complaint({"--checkpoint", "good", "--input", in, "--output", in}),
            "mean: --output: would overwrite the input " + in + ": name another file\n");
  // Another image of that folder is nothing that was read.
  std::filesystem::create_directory(home / "b");
  const std::string b = grey_png(home, "b/a.png", 20);
  EXPECT_EQ(run({"--checkpoint", "good", b, "--out", home.path()}).code, 0);
  EXPECT_EQ(tensor::load_image(a).item(0, 0, 0), 20);
}

TEST(CommandLine, PicturesArePngs) {
  const TemporaryFolder home;
  const std::string a = grey_png(home, "a.png", 10), jpg = home / "foo.jpg";
  EXPECT_EQ(
      complaint({"--checkpoint", "good", a, "--out", jpg}),
      "mean: --out: got " + jpg + ", need a name that ends in .png, or a folder (" + jpg + "/)\n");
  EXPECT_FALSE(std::filesystem::exists(jpg));
  for (int i = 0; i < 2; ++i)  // made, then found
    EXPECT_EQ(run({"--checkpoint", "good", a, "--out", jpg + "/"}).code, 0);
  EXPECT_EQ(run({"--checkpoint", "good", a, "--out", jpg}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(jpg + "/a.png"));
}

TEST(CommandLine, FailsWhereNothingCanBePrinted) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "need /dev/full";
  const TemporaryFolder home;
  const std::string a = grey_png(home, "a.png", 10);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"--version"},
                                             {"--model", "mean-1", "--info"},
                                             {"--checkpoint", "good", a},
                                             {"--checkpoint", "good", a, "--json"}}) {
    MeanProgram program;
    std::ofstream full("/dev/full");
    std::ostringstream err;
    EXPECT_EQ(models::run_program(program, words, full, err), 1) << words.back();
    EXPECT_EQ(err.str(), "mean: standard output: cannot be written: No space left on device\n");
  }
}

TEST(CommandLine, NeedsImagesInAFolder) {
  const TemporaryFolder home;
  const std::string start = "mean: " + home.path() +
                            ": holds no .png, .jpg, .jpeg, .jpe, .jfif, .bmp or .webp files "
                            "(subfolders are not searched)";
  EXPECT_EQ(complaint({"--checkpoint", "good", home.path()}), start + "\n");
  home.write("notes.txt", "no picture");
  home.write("b.tif", std::string("MM\0*", 4));
  home.write("a.GIF", "GIF89a");
  EXPECT_EQ(complaint({"--checkpoint", "good", home.path()}),
            start + ", only a.GIF (GIF), b.tif (TIFF)\n");
}

TEST(CommandLine, NamesWhatItPassesOver) {
  const TemporaryFolder home;
  const std::string a = grey_png(home, "a.PNG", 10);
  std::filesystem::create_directory(home / "folder");
  home.write("empty", "");
  home.write("notes.txt", "no picture");
  home.write("b.tif", std::string("II*\0", 4));
  std::filesystem::copy_file(a, home / "photograph");
  const std::string note = "mean: " + home.path() +
                           ": passed over, for their names do not end in .png, .jpg, .jpeg, .jpe, "
                           ".jfif, .bmp or .webp: ";
  const Outcome some = run({"--checkpoint", "good", home.path()});
  EXPECT_EQ(some.code, 0);
  EXPECT_EQ(some.err, note + "b.tif (TIFF), photograph (PNG)\n");
  EXPECT_EQ(run({"--checkpoint", "good", "--quiet", home.path()}).err, "");
  for (int i = 10; i < 20; ++i) home.write("t" + std::to_string(i), "GIF89a");
  const std::string err = run({"--checkpoint", "good", home.path()}).err;
  EXPECT_TRUE(err.starts_with(note + "b.tif (TIFF), photograph (PNG), t10 (GIF), ")) << err;
  EXPECT_TRUE(err.ends_with(", t17 (GIF) and 2 more\n")) << err;
}

TEST(CommandLine, LimitsThePixels) {
  const TemporaryFolder home;
  const std::string a = grey_png(home, "a.png", 10);
  const Tensor image = tensor::load_image(a);
  const std::string pixels = std::to_string(image.shape(0) * image.shape(1)),
                    fewer = std::to_string(image.shape(0) * image.shape(1) - 1);
  EXPECT_EQ(run({"--checkpoint", "good", "--max-pixels", pixels, a}).code, 0);
  EXPECT_EQ(complaint({"--checkpoint", "good", "--max-pixels", fewer, a}),
            "mean: " + a + ": is " + std::to_string(image.shape(1)) + " x " +
                std::to_string(image.shape(0)) + " pixels, more than the " + fewer +
                " that are allowed: make it smaller, or allow more (max_pixels, or a program's "
                "--max-pixels)\n");
}

TEST(CommandLine, RunsSavedInputs) {
  const TemporaryFolder home;
  const std::string in = home / "in.safetensors", out = home / "out.safetensors";
  const Tensor pixels = tensor::arange(24).reshape({2, 3, 2, 2}).astype(tensor::f32);
  tensor::save_safetensors(in, {{"pixel_values", pixels}, {"logits", pixels}});
  const Outcome result = run({"--checkpoint", "good", "--input", in, "--output", out});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, out + ": logits (2,)\n");
  auto saved = tensor::load_safetensors(out).tensors;
  EXPECT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved.at("logits").item(0), 11);  // 2 x the mean of 0 to 11
  const Outcome hidden =
      run({"--checkpoint", "good", "--input", in, "--output", out, "--hidden-states", "--quiet"});
  EXPECT_EQ(hidden.out, "");
  saved = tensor::load_safetensors(out).tensors;
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_TRUE(tensor::all(saved.at("hidden_states.0") == pixels * 2).item<bool>());
}

TEST(CommandLine, ChecksSavedInputs) {
  const TemporaryFolder home;
  const std::string in = home / "in.safetensors";
  const auto complain = [&](const std::map<std::string, Tensor>& tensors) {
    tensor::save_safetensors(in, tensors);
    return complaint({"--checkpoint", "good", "--input", in, "--output", home / "out"});
  };
  EXPECT_EQ(complain({{"x", tensor::zeros({1})}}),
            "mean: " + in + ": holds no tensor \"pixel_values\"\n");
  EXPECT_EQ(
      complain({{"pixel_values", tensor::zeros({3, 2, 2})}}),
      "mean: " + in + ": pixel_values is f32(3, 2, 2), need f32(batch, channels, height, width)\n");
  EXPECT_EQ(complain({{"pixel_values", tensor::zeros({1, 3, 2, 2}, tensor::u8)}}),
            "mean: " + in +
                ": pixel_values is u8(1, 3, 2, 2), need f32(batch, channels, height, width)\n");
}

TEST(CommandLine, FillsStandardModelsWithRandomWeights) {
  const TemporaryFolder home;
  const std::string in = home / "in.safetensors", out = home / "out.safetensors";
  tensor::save_safetensors(in, {{"pixel_values", tensor::ones({1, 1, 1, 1})}});
  const auto logit = [&](const std::string& seed) {
    EXPECT_EQ(
        run({"--model", "mean-2", "--random-weights", seed, "--input", in, "--output", out}).code,
        0);
    return tensor::load_safetensors(out).tensors.at("logits").item();
  };
  EXPECT_EQ(logit("1"), logit("1"));
  EXPECT_NE(logit("1"), logit("2"));
}

/// A "model" that rounding spoils: exp(x) - e for x near 1. The reference and the fast exp differ
/// in the last bit here and there, and beside what is left that is much.
class CancellingProgram final : public MeanProgram {
 public:
  StateDict run(const StateDict& inputs, const Observer&) const override {
    return {{"logits", tensor::exp(inputs.at("pixel_values")) - std::exp(1.0)}};
  }
};

TEST(CommandLine, FailsWhenAGroupIsOutOfItsBound) {
  const TemporaryFolder home;
  const std::string in = home / "in.safetensors";
  const Tensor near_one = tensor::linspace(1, 1.001, 4096).astype(tensor::f32);
  tensor::save_safetensors(in, {{"pixel_values", near_one.reshape({1, 1, 64, 64})}});
  const Outcome result =
      run({"--checkpoint", "good", "--input", in, "--output", home / "out", "--quiet", "--verify"},
          CancellingProgram());
  EXPECT_EQ(result.code, 1) << result.out;
  EXPECT_EQ(result.err, "");
  EXPECT_NE(result.out.find(", 1 out of bound\n  worst  error "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\n  first  error "), std::string::npos) << result.out;
}

TEST(CommandLine, PrintsInformation) {
  const Outcome result = run({"--model", "mean-1", "--info"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(
      result.out,
      "mean, input any\n"
      "  part    layers     parameters     GMACs\n"
      "  factor       1              1      2.50\n"
      "  total        1              1      2.50\n"
      "  memory: weights 0.0 MiB, activations about 4.0 MiB at their peak (f32, one image)\n");
}

}  // namespace
