// The programs vit, detr, setr and depth from their arguments to their output, files and exit code.
#include <cmath>
#include <numeric>
#include <sstream>

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

const std::string kDigits = source("examples/images/digits");
const std::string kScenes = source("examples/images/scenes");

// ---- What every program does alike

class CliOfEach : public Cli, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Programs, CliOfEach, ::testing::Values("vit", "detr", "setr"),
                         [](const auto& it) { return std::string(it.param); });

TEST_P(CliOfEach, HelpAndVersion) {
  const std::string name = GetParam();
  for (const char* option : {"--help", "-h"}) {
    const Outcome got = run(name, {option});
    EXPECT_EQ(got.code, 0);
    EXPECT_EQ(got.err, "");
    for (const char* part : {"--checkpoint", "--json", "--info", "Examples:\n"})
      EXPECT_NE(got.out.find(part), std::string::npos) << part;
    EXPECT_NE(got.out.find("\n  " + name + " --checkpoint"), std::string::npos);
    EXPECT_EQ(got.out.find("\n" + name + " "), std::string::npos);
  }
  const Outcome version = run(name, {"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with(name + " ")) << version.out;
}

TEST_P(CliOfEach, OptionsThatDoNotGoTogether) {
  const std::string name = GetParam(),
                    neither = "arguments: need either --checkpoint DIR or --model NAME";
  const std::string model = run(name, {"--model", "?", "--info"}).err;
  EXPECT_EQ(model.find(name + ": --model: got \"?\", need one of " + name + "-"), 0u) << model;
  const std::string known = name == "vit"    ? "vit-base-patch16-224"
                            : name == "detr" ? "detr-resnet-50"
                                             : "setr-naive";
  const std::pair<Words, std::string> cases[] = {
      {{}, neither},
      {{"x.png"}, neither},
      {{"--checkpoint", "d", "--model", known},
       "arguments: got both --checkpoint and --model, need one of them"},
      {{"--checkpoint", "d"},
       "arguments: there is nothing to do: name images, or use --input or --info"},
      {{"--checkpoint", "d", "--device", "tpu", "x.png"},
       "device: got \"tpu\", need cpu, cuda or cuda:1"},
      {{"--checkpoint", "d", "--device", "cuda:0,", "x.png"},
       "device: got \"\", need cpu, cuda or cuda:1"},
      {{"--checkpoint", "d", "--device", "cuda:0,cuda:1", "--tune", "1s", "x.png"},
       "--tune: is for one device, got --device cuda:0,cuda:1: what is measured on a GPU counts "
       "for all of its model. Tune there with a batch as large as the part of one"},
      {{"--checkpoint", "d", "--device", "cuda:0,cuda:1", "--divide", "layers", "x.png"},
       "--divide: got \"layers\", need batch or products"},
      {{"--checkpoint", "d", "--device", "cuda:1", "--divide", "products", "x.png"},
       "--divide: is for several GPUs, got --device cuda:1: name them, cuda:0,cuda:1"},
      {{"--checkpoint", "d", "--device", "cuda:0,cuda:1", "--divide", "products", "--plan", "p",
        "x.png"},
       "--plan: holds whole products, but --divide products shares them: leave one of them out"},
      {{"--checkpoint", "d", "--random-weights", "1", "x.png"},
       "--random-weights: needs --model NAME"},
      {{"--model", known, "x.png"},
       "--model: has no weights of its own: add --random-weights SEED, or use --checkpoint"},
      {{"--checkpoint", "d", "--input", "i"}, "arguments: --input and --output go together"},
      {{"--checkpoint", "d", "--output", "o", "--info"},
       "arguments: --input and --output go together"},
      {{"--checkpoint", "d", "--hidden-states", "x.png"},
       "--hidden-states: needs --input and --output"},
      {{"--checkpoint", "d", "--input", "i", "--output", "o", "x.png"},
       "arguments: need either images or --input, not both"},
      {{"--checkpoint", "d", "--info", "--out", "o.png"}, "--out: needs images"},
      {{"--checkpoint", "d", "--info", "--json"}, "--json: needs images"},
  };
  for (const auto& [arguments, message] : cases)
    expect_refused(run(name, arguments), name + ": " + message);
}

TEST_P(CliOfEach, OptionsThatItDoesNotHave) {
  const std::string name = GetParam(), end = " (see " + name + " --help)";
  expect_refused(run(name, {"--checkpiont", "d"}),
                 name + ": The following argument was not expected: --checkpiont" + end);
  expect_refused(run(name, {"--checkpoint"}),
                 name + ": --checkpoint: 1 required DIR missing" + end);
  for (const std::string seed : {"many", "-1"})
    expect_refused(
        run(name, {"--model", "m", "--random-weights", seed}),
        name + ": --random-weights: got \"" + seed + "\", need a whole number of at least 0" + end);
}

TEST_P(CliOfEach, CheckpointsThatCannotBeOpened) {
  const std::string name = GetParam();
  expect_refused(run(name, {"--checkpoint", path("none"), "x.png"}),
                 name + ": " + path("none") + ": there is no such folder");
  // A checkpoint of another kind: one line that says of which.
  const Outcome other =
      run(name, {"--info", "--checkpoint",
                 golden::folder(name == "setr" ? "detr_hf_hub" : "setr_mmseg_naive")});
  EXPECT_EQ(other.code, 1);
  const std::string its = name == "setr" ? "detr" : "setr";
  const std::string says =
      "model_type: is \"" + its + "\", which " + its + " takes, not " + name + ": vit takes vit,";
  EXPECT_NE(other.err.find(says), std::string::npos) << other.err;
  EXPECT_EQ(std::count(other.err.begin(), other.err.end(), '\n'), 1) << other.err;
}

TEST_P(CliOfEach, TheOtherImagesAreStillDone) {
  const std::string name = GetParam();
  const std::string good = name == "vit" ? kDigits + "/digit-3.png" : kScenes + "/scene-1.png";
  const std::string bytes = tensor::testing::read_bytes(good);
  fs::create_directory(path("images"));
  tensor::testing::write_bytes(path("images/1.png"), bytes);
  tensor::testing::write_bytes(path("images/2.png"), bytes.substr(0, bytes.size() / 2));
  tensor::testing::write_bytes(path("images/3.PNG"), bytes);
  tensor::testing::write_bytes(path("images/notes.txt"), "not an image");
  for (const bool json : {false, true}) {
    Words words = {path("images"), path("absent.png")};
    if (json) words.push_back("--json");
    const Outcome got = shipped(name, words);
    EXPECT_EQ(got.code, 1);
    EXPECT_EQ(std::count(got.err.begin(), got.err.end(), '\n'), 2) << got.err;
    EXPECT_EQ(got.err.find(name + ": " + path("images/2.png") + ": "), 0u) << got.err;
    EXPECT_NE(got.err.find("\n" + name + ": " + path("absent.png") +
                           ": cannot be opened: No such file or directory\n"),
              std::string::npos)
        << got.err;
    if (!json) {
      EXPECT_NE(got.out.find(path("images/1.png") + "\n"), std::string::npos) << got.out;
      EXPECT_NE(got.out.find(path("images/3.PNG") + "\n"), std::string::npos) << got.out;
      EXPECT_EQ(got.out.find("2.png"), std::string::npos) << got.out;
      continue;
    }
    const Json files = Json::parse(got.out, "output");
    ASSERT_EQ(files.size(), 4u);
    EXPECT_GE(files[0]["findings"].size(), 1u);
    EXPECT_FALSE(files[1].has("findings"));
    EXPECT_EQ(name + ": " + files[1]["error"].text(), got.err.substr(0, got.err.find('\n')));
    EXPECT_GE(files[2]["findings"].size(), 1u);
    EXPECT_TRUE(files[3].has("error"));
  }
}

TEST_P(CliOfEach, FoldersWithoutImages) {
  const std::string name = GetParam();
  expect_refused(
      shipped(name, {folder_.path()}),
      name + ": " + folder_.path() +
          ": holds no .png, .jpg, .jpeg, .jpe, .jfif, .bmp or .webp files (subfolders are "
          "not searched)");
  expect_refused(shipped(name, {"-"}),
                 name + ": -: standard input is not read: name files or folders");
}

TEST_P(CliOfEach, PicturesGoWhereTheyAreSaid) {
  const std::string name = GetParam();
  const std::string from = name == "vit" ? kDigits + "/digit-" : kScenes + "/scene-";
  const std::string one = from + "2.png", two = from + "3.png";
  const Tensor image = tensor::load_image(one);
  ASSERT_EQ(shipped(name, {one, "--out", path("one.png")}).code, 0);
  const Tensor picture = tensor::load_image(path("one.png"));
  EXPECT_GE(picture.shape(0), image.shape(0));
  EXPECT_GE(picture.shape(1), image.shape(1));
  EXPECT_FALSE(picture.shape() == image.shape() &&
               tensor::all(picture == image).item<bool>());  // something is drawn
  ASSERT_EQ(shipped(name, {one, two, one, "--out", path("many")}).code, 0);
  for (const std::string& file : {one, two})
    EXPECT_TRUE(fs::exists(path("many/" + fs::path(file).filename().string())));
  EXPECT_TRUE(fs::exists(path("many/" + fs::path(one).stem().string() + "-2.png")));
  EXPECT_TRUE(
      tensor::all(tensor::load_image(path("many/" + fs::path(one).filename().string())) == picture)
          .item<bool>());
  expect_refused(
      shipped(name, {one, two, "--out", path("two.png")}),
      name + ": --out: got 2 images for the one file " + path("two.png") + ": name a folder");
  tensor::testing::write_bytes(path("file"), "");
  const Outcome blocked = shipped(name, {one, two, "--out", path("file")});
  EXPECT_EQ(blocked.code, 1);
  EXPECT_EQ(blocked.err,
            name + ": " + path("file") + ": cannot be made a folder: Not a directory\n");
}

// Bytes of 0xFF are NaN in every type of weights.
TEST_P(CliOfEach, DamagedWeightsGiveNoAnswer) {
  const std::string name = GetParam(), task = name == "vit" ? "digits" : "scenes";
  const std::string folder = source("models/" + name + "/pretrained/" + task);
  const std::string image = name == "vit" ? kDigits + "/digit-3.png" : kScenes + "/scene-1.png";
  for (const char* file : {"config.json", "preprocessor_config.json"})
    fs::copy_file(folder + "/" + file, path(file));
  StateDict weights = tensor::load_safetensors(folder + "/model.safetensors").tensors;
  for (auto& [key, value] : weights)
    if (is_floating(value.dtype()))
      value = tensor::full(value.shape(), std::nan(""), tensor::f32).astype(value.dtype());
  tensor::save_safetensors(path("model.safetensors"), weights);
  const std::string start =
      ": the model's output is NaN for " + image + ": the weights are damaged, or values overflow";
  for (const std::string mode : {"--quiet", "--eager"}) {
    const Outcome got = run(name, {"--checkpoint", folder_.path(), image, "--json", mode});
    const std::string hint = mode == "--eager" ? "" : " (compare with --eager)";
    EXPECT_EQ(got.code, 1) << mode;
    EXPECT_EQ(got.err, name + ": " + folder_.path() + start + hint + "\n");
    EXPECT_EQ(Json::parse(got.out, "output")[0]["error"].text(), folder_.path() + start + hint);
  }
}

TEST_P(CliOfEach, InputsThatDoNotFit) {
  const std::string name = GetParam();
  const auto refused = [&](const StateDict& inputs, const std::string& message) {
    tensor::save_safetensors(path("in"), inputs);
    expect_refused(shipped(name, {"--input", path("in"), "--output", path("out")}),
                   name + ": " + message);
    EXPECT_FALSE(fs::exists(path("out")));
  };
  const std::string need = ", need f32(batch, channels, height, width)";
  refused({{"pixels", tensor::zeros({1})}}, path("in") + ": holds no tensor \"pixel_values\"");
  refused({{"pixel_values", tensor::zeros({3, 32, 32})}},
          path("in") + ": pixel_values is f32(3, 32, 32)" + need);
  refused({{"pixel_values", tensor::zeros({1, 3, 32, 32}, tensor::u8)}},
          path("in") + ": pixel_values is u8(1, 3, 32, 32)" + need);
  refused({{"pixel_values", tensor::zeros({0, 3, 32, 32})}},
          path("in") + ": pixel_values is f32(0, 3, 32, 32)" + need);
  tensor::save_safetensors(path("in"), {{"pixel_values", tensor::zeros({1, 4, 32, 32})}});
  const Outcome channels = shipped(name, {"--input", path("in"), "--output", path("out")});
  EXPECT_EQ(channels.code, 1);
  EXPECT_NE(channels.err.find("(1, 4, 32, 32)"), std::string::npos) << channels.err;
  EXPECT_NE(channels.err.find("3, height, width"), std::string::npos) << channels.err;
  expect_refused(shipped(name, {"--input", path("none"), "--output", path("out")}),
                 name + ": " + path("none") + ": cannot be opened: No such file or directory");
}

// Counted by hand from the papers' tables: parameters without the batch norms' in DETR, and
// billions of multiply-adds of convolutions, linear layers and attention.
TEST_F(Cli, InfoOfTheStandardSizes) {
  struct Row {
    std::string program;
    Words arguments;
    std::string parameters;
    double gmacs;
  };
  const Row rows[] = {
      {"vit", {"vit-base-patch16-224"}, "86,567,656", 17.56},
      {"vit", {"vit-large-patch16-224"}, "304,326,632", 61.55},
      {"vit", {"vit-huge-patch14-224"}, "632,045,800", 167.30},
      {"detr", {"detr-resnet-50"}, "41,524,768", 101.59},
      {"detr", {"detr-resnet-50", "--encoder-layers", "3"}, "37,579,552", 95.77},
      {"detr", {"detr-resnet-50", "--encoder-layers", "12"}, "49,415,200", 113.23},
      {"detr", {"detr-resnet-50-dc5"}, "41,524,768", 227.7},
      {"detr", {"detr-resnet-101"}, "60,464,672", 181.1},
      {"detr", {"detr-resnet-101-dc5"}, "60,464,672", 307.2},
      {"setr", {"setr-naive-base"}, "86,292,755", 55.60},
      {"setr", {"setr-naive"}, "303,958,547", 191.2},
      {"setr", {"setr-pup"}, "307,827,475", 221.2},
      {"setr", {"setr-mla"}, "308,967,955", 194.5},
      {"depth", {"depth-anything-small"}, "24,710,849", 57.63},
      {"depth", {"depth-anything-base"}, "97,174,849", 190.35},
      {"depth", {"depth-anything-large"}, "334,134,465", 652.11},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.arguments.back());
    Words words = row.arguments;
    words.insert(words.begin(), "--model");
    words.push_back("--info");
    const Outcome got = run(row.program, words);
    EXPECT_EQ(got.code, 0);
    EXPECT_EQ(got.err, "");
    EXPECT_TRUE(got.out.starts_with(row.arguments[0] + ", input 1 x 3 x ")) << got.out;
    const std::size_t total = got.out.find("\n  total");
    ASSERT_NE(total, std::string::npos) << got.out;
    std::istringstream line(got.out.substr(total));
    std::string word, layers, parameters;
    double gmacs = 0;
    line >> word >> layers >> parameters >> gmacs;
    EXPECT_EQ(parameters, row.parameters);
    EXPECT_NEAR(gmacs, row.gmacs, 0.1);  // the hand count has a decimal or two
    EXPECT_NE(got.out.find("memory: weights "), std::string::npos) << got.out;
  }
}

// ---- vit

TEST_F(Cli, VitReadsTheDigits) {
  const auto found = findings(shipped("vit", {kDigits, "--json"}));
  ASSERT_EQ(found.size(), 6u);
  for (const auto& [file, classes] : found) {
    ASSERT_EQ(classes.size(), 5u) << file;
    EXPECT_EQ(file, "digit-" + classes[0]["label"].text() + ".png");
    EXPECT_EQ(std::to_string(classes[0]["id"].integer()), classes[0]["label"].text());
    double sum = 0, before = 1;
    for (std::size_t i = 0; i < classes.size(); ++i) {
      const double score = classes[i]["score"].number();
      EXPECT_LE(score, before);
      sum += before = score;
    }
    EXPECT_LE(sum, 1 + 1e-6);  // of 10 probabilities in f32
    EXPECT_GT(classes[0]["score"].number(), 0.5) << file;
  }
}

TEST_F(Cli, VitTellsPeople) {
  const std::string file = kDigits + "/digit-7.png";
  const Outcome got = shipped("vit", {file, "--top", "2"});
  EXPECT_EQ(got.code, 0);
  EXPECT_EQ(got.err, "");
  ASSERT_TRUE(got.out.starts_with(file + "\n")) << got.out;
  EXPECT_EQ(std::count(got.out.begin(), got.out.end(), '\n'), 3) << got.out;
  EXPECT_NE(got.out.find(" %  7\n"), std::string::npos) << got.out;
  EXPECT_EQ(findings(shipped("vit", {file, "--top", "99", "--json"})).at("digit-7.png").size(),
            10u);
}

TEST_F(Cli, VitRefusesATopThatIsNone) {
  for (const char* top : {"0", "-3", "many"}) {
    const Outcome got = shipped("vit", {kDigits, "--top", top});
    EXPECT_EQ(got.code, 1);
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(got.err.find("vit: "), 0u) << got.err;
    EXPECT_NE(got.err.find("--top"), std::string::npos) << got.err;
    EXPECT_EQ(std::count(got.err.begin(), got.err.end(), '\n'), 1) << got.err;
  }
}

TEST_F(Cli, VitWithoutAClassifierCannotNameImages) {
  const std::string folder = golden::folder("vit_hf_headless"), image = kDigits + "/digit-0.png";
  const Outcome got = run("vit", {"--checkpoint", folder, image});
  EXPECT_EQ(got.code, 1);
  EXPECT_EQ(got.err, "vit: " + fs::path(folder).lexically_normal().string() +
                         ": has no classifier, so it cannot name what an image shows: use "
                         "--output for its features\n");
}

TEST_F(Cli, VitTakesOtherSizesOnlyWhenAsked) {
  tensor::save_safetensors(path("in"),
                           {{"pixel_values", tensor::Generator(3).normal({1, 3, 40, 24})}});
  const Words words = {
      "--checkpoint", golden::folder("vit_hf"), "--input", path("in"), "--output", path("out"),
      "--quiet"};
  expect_refused(
      run("vit", words),
      "vit: pixel_values: got an image of 40 x 24, the model takes 32 x 32: resize it, or ask "
      "for a resized position embedding (--interpolate-pos-encoding)");
  Words resized = words;
  resized.push_back("--interpolate-pos-encoding");
  const Outcome got = run("vit", resized);
  EXPECT_EQ(got.code, 0);
  EXPECT_EQ(got.out, "");  // --quiet
  EXPECT_EQ(tensor::load_safetensors(path("out")).tensors.at("logits").shape(),
            (tensor::Shape{1, 11}));
}

// Tensors need no rule of how to make them of images, nor that it be one which is understood.
TEST_F(Cli, SavedInputsNeedNoPreprocessor) {
  for (const auto& [program, checkpoint] : {std::pair{"vit", "vit_hf"},
                                            {"vit", "vit_timm"},
                                            {"detr", "detr_hf_hub"},
                                            {"setr", "setr_fudan_mla"}}) {
    const StateDict usual = saved_run(program, checkpoint);
    for (const char* rule :
         {"{", "[]",
          "{\"image_processor_type\": \"Sam2ImageProcessor\", \"size\": {\"edge\": \"x\"}}",
          "{\"size\": {\"height\": 7, \"width\": 9}}"}) {
      const std::string folder = path("checkpoint");
      fs::remove_all(folder);
      fs::copy(golden::folder(checkpoint), folder);
      std::ofstream(folder + "/preprocessor_config.json") << rule;
      const Outcome got =
          run(program, {"--checkpoint", folder, "--input",
                        golden::folder(checkpoint) + "/io.safetensors", "--output", path("out")});
      EXPECT_EQ(got.err, "") << program << ": " << rule;
      for (const auto& [name, x] : tensor::load_safetensors(path("out")).tensors)
        EXPECT_EQ(x.to_vector<float>(), usual.at(name).to_vector<float>()) << name;
    }
  }
}

TEST_F(Cli, InfoOfACheckpoint) {
  const Outcome got = run("vit", {"--checkpoint", golden::folder("vit_hf"), "--info"});
  std::int64_t parameters = 0;
  for (const auto& [name, x] :
       tensor::load_safetensors(golden::folder("vit_hf") + "/model.safetensors").tensors)
    parameters += x.size();
  ASSERT_EQ(parameters / 1000, 103);
  EXPECT_EQ(got.code, 0);
  EXPECT_NE(got.out.find("103," + std::to_string(parameters % 1000)), std::string::npos) << got.out;
}

// ---- detr

double overlap(const std::vector<double>& a, const std::vector<double>& b) {
  const double width = std::max(std::min(a[2], b[2]) - std::max(a[0], b[0]), 0.0);
  const double height = std::max(std::min(a[3], b[3]) - std::max(a[1], b[1]), 0.0);
  const auto area = [](const std::vector<double>& box) {
    return (box[2] - box[0]) * (box[3] - box[1]);
  };
  return width * height / (area(a) + area(b) - width * height);
}

TEST_F(Cli, DetrFindsTheDigits) {
  const auto found = findings(shipped("detr", {kScenes, "--json"}));
  const Json truth = Json::load(kScenes + "/truth.json");
  ASSERT_EQ(found.size(), 3u);
  for (const auto& [file, objects] : found) {
    const Json digits = truth[file];
    EXPECT_EQ(objects.size(), digits.size()) << file;
    for (std::size_t t = 0; t < digits.size(); ++t) {
      int hits = 0;
      for (std::size_t i = 0; i < objects.size(); ++i)
        hits += objects[i]["label"].text() == digits[t]["label"].text() &&
                overlap(objects[i]["box"].numbers(), digits[t]["box"].numbers()) > 0.5;
      EXPECT_EQ(hits, 1) << file << ": " << digits[t]["label"].text();
    }
  }
}

TEST_F(Cli, DetrShowsWhatIsAboveTheThreshold) {
  const std::string file = kScenes + "/scene-1.png";
  EXPECT_EQ(shipped("detr", {file, "--threshold", "1"}).out, file + "\n  nothing found\n");
  const auto all = findings(shipped("detr", {file, "--threshold", "0", "--json"}));
  EXPECT_EQ(all.at("scene-1.png").size(), 16u);  // every query
  for (const std::string wrong : {"1.5", "-0.1", "nan", "x", "0.5x"})
    expect_refused(
        shipped("detr", {file, "--threshold", wrong}),
        "detr: --threshold: got \"" + wrong + "\", need a number from 0 to 1 (see detr --help)");
}

TEST_F(Cli, DetrNamesAnImageThatIsTooNarrow) {
  tensor::save_png(path("tall.png"), tensor::zeros({3000, 1, 3}, tensor::u8));
  const Outcome got = shipped("detr", {path("tall.png"), "--json"});
  EXPECT_EQ(got.code, 1);
  const std::string problem = path("tall.png") + ": is 1 x 3000 pixels: resized for the model it ";
  EXPECT_TRUE(got.err.starts_with("detr: " + problem)) << got.err;
  EXPECT_TRUE(got.err.ends_with("crop it first\n")) << got.err;
  EXPECT_TRUE(Json::parse(got.out, "output")[0]["error"].text().starts_with(problem)) << got.out;
}

TEST_F(Cli, DetrChecksTheMask) {
  const StateDict pixels = {{"pixel_values", tensor::zeros({1, 3, 64, 64})}};
  const auto refused = [&](const Tensor& mask, const std::string& message) {
    StateDict inputs = pixels;
    inputs["pixel_mask"] = mask;
    tensor::save_safetensors(path("in"), inputs);
    expect_refused(shipped("detr", {"--input", path("in"), "--output", path("out")}), message);
  };
  refused(tensor::ones({1, 64, 32}, tensor::i64),
          "detr: pixel_mask: got the shape (1, 64, 32), need (1, 64, 64) to go with pixel_values "
          "(1, 3, 64, 64)");
  refused(tensor::zeros({1, 64, 64}, tensor::i64),
          "detr: pixel_mask: the upper left pixel of an image is 0, need 1: only the bottom and "
          "the right can be padding");
}

TEST_F(Cli, DetrTakesLayersForStandardModelsOnly) {
  expect_refused(shipped("detr", {kScenes, "--encoder-layers", "3"}),
                 "detr: --encoder-layers: a checkpoint has the layers it has; give it with "
                 "--model only");
}

// ---- setr

TEST_F(Cli, SetrColoursTheDigits) {
  const auto found = findings(shipped("setr", {kScenes, "--json", "--labels", path("labels")}));
  const Json truth = Json::load(kScenes + "/truth.json");
  ASSERT_EQ(found.size(), 3u);
  for (const auto& [file, regions] : found) {
    double sum = 0;
    std::map<std::string, double> shares;
    for (std::size_t i = 0; i < regions.size(); ++i) {
      shares[regions[i]["label"].text()] = regions[i]["share"].number();
      sum += regions[i]["share"].number();
    }
    EXPECT_NEAR(sum, 1, 1e-6) << file;
    EXPECT_EQ(regions[0]["label"].text(), "background") << file;
    // Every digit covers at least a hundredth of the scene.
    for (std::size_t t = 0; t < truth[file].size(); ++t)
      EXPECT_GT(shares[truth[file][t]["label"].text()], 0.01) << file;
    const Tensor labels = tensor::load_image(path("labels/" + file));
    const Tensor image = tensor::load_image(kScenes + "/" + file);
    EXPECT_EQ(labels.shape(), image.shape());
    EXPECT_LT(tensor::max(labels).item<int>(), 11);
    const Tensor background = (labels(tensor::ellipsis, 0) == 0).astype(tensor::f64);
    EXPECT_NEAR(tensor::mean(background).item(), shares["background"], 1e-6) << file;
  }
}

TEST_F(Cli, SetrWindowsAndScales) {
  const std::string file = kScenes + "/scene-1.png";
  const Outcome whole = shipped("setr", {file, "--whole"});
  // At the size of the window both ways of inference are one.
  EXPECT_EQ(shipped("setr", {file}).out, whole.out);
  EXPECT_EQ(shipped("setr", {file, "--scale", "200,200"}).code, 0);
  expect_refused(shipped("setr", {file, "--whole", "--slide"}),
                 "setr: --slide excludes --whole (see setr --help)");
  for (const char* scale : {"200", "0,0", "200,big", "200,200,200"}) {
    const Outcome got = shipped("setr", {file, "--scale", scale});
    EXPECT_EQ(got.code, 1) << scale;
    EXPECT_EQ(std::count(got.err.begin(), got.err.end(), '\n'), 1) << got.err;
  }
}

}  // namespace
