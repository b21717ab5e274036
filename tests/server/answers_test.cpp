// What the server answers to good requests: the page, the samples, and what the programs say.
#include <cmath>
#include <filesystem>
#include <span>
#include <thread>

#include "models/detr/detr_program.h"
#include "models/setr/setr_program.h"
#include "models/vit/vit_program.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tests/server/server_testing.h"
#include "tests/temporary_folder.h"

namespace {

using namespace server_testing;
using tensor::testing::read_bytes;

class ServerAnswers : public ServerTest {};

TEST_F(ServerAnswers, ThePageAndItsFilesWithAStrictPolicy) {
  const std::pair<const char*, const char*> files[] = {
      {"/", "text/html; charset=utf-8"},
      {"/style.css", "text/css; charset=utf-8"},
      {"/app.js", "text/javascript; charset=utf-8"},
      {"/icon.svg", "image/svg+xml; charset=utf-8"}};
  for (const auto& [path, type] : files) {
    const httplib::Result got = client().Get(path);
    ASSERT_TRUE(got) << path;
    EXPECT_EQ(got->status, 200);
    EXPECT_EQ(got->get_header_value("Content-Type"), type);
    const std::string policy = got->get_header_value("Content-Security-Policy");
    EXPECT_TRUE(policy.starts_with("default-src 'none';")) << policy;
    EXPECT_EQ(policy.find("unsafe"), policy.npos) << policy;
    EXPECT_EQ(got->get_header_value("X-Content-Type-Options"), "nosniff");
    const std::string name = std::string(path) == "/" ? "/index.html" : path;
    EXPECT_EQ(got->body, read_bytes(source("models/server/page" + name)));
    // Nothing from elsewhere; the only address is the name of the SVG language.
    const std::size_t address = got->body.find("://");
    EXPECT_EQ(address != std::string::npos, name == "/icon.svg") << path;
    EXPECT_EQ(address, got->body.rfind("://")) << path;
  }
}

TEST_F(ServerAnswers, TheSamplesThatShip) {
  const httplib::Result got = client().Get("/api/about");
  ASSERT_TRUE(got);
  const Json about = Json::parse(got->body, "about");
  EXPECT_EQ(about["most_bytes"].integer(), models::server::kMostBytes);
  EXPECT_EQ(about["most_pixels"].integer(), models::server::kMostPixels);
  ASSERT_EQ(about["models"].size(), 3);
  ASSERT_EQ(about["samples"].size(), 9);
  for (std::size_t i = 0; i < 9; ++i) {
    const Json sample = about["samples"][i];
    const httplib::Result image = client().Get(sample["url"].text());
    ASSERT_TRUE(image);
    EXPECT_EQ(image->get_header_value("Content-Type"), "image/png");
    EXPECT_EQ(image->body, read_bytes(source("examples/images/" + sample["kind"].text() + "/" +
                                             sample["name"].text() + ".png")));
  }
}

TEST(EngineAnswers, DamagedWeightsGiveNone) {
  namespace fs = std::filesystem;
  const std::string folder = source("models/vit/pretrained/digits");
  const tensor::check::TemporaryFolder damaged;
  for (const std::string file : {"config.json", "preprocessor_config.json"})
    fs::copy_file(folder + '/' + file, damaged / file);
  auto weights = tensor::load_safetensors(folder + "/model.safetensors").tensors;
  for (auto& [name, value] : weights)
    value = tensor::full(value.shape(), std::nan(""), value.dtype());
  tensor::save_safetensors(damaged / "model.safetensors", weights);
  Engine bad({damaged.path(), source("models/detr/pretrained/scenes"),
              source("models/setr/pretrained/scenes")},
             1);
  const std::string image = read_bytes(digit(3));
  for (const auto mode : {models::server::Mode::eager, models::server::Mode::compiled}) try {
      bad.run("vit", mode, std::as_bytes(std::span(image)));
      ADD_FAILURE() << "an answer";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("vit: the model's output is NaN"), std::string::npos)
          << error.what();
    }
}

TEST_F(ServerAnswers, HeadHasTheLengthButNoBody) {
  const httplib::Result got = client().Head("/app.js");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->get_header_value("Content-Length"),
            std::to_string(read_bytes(source("models/server/page/app.js")).size()));
  EXPECT_EQ(got->body, "");
}

TEST_F(ServerAnswers, RangesAreIgnored) {
  const httplib::Result got =
      client().Get("/app.js", {httplib::make_range_header({{0, 9}, {0, 9}, {0, 9}})});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->body, read_bytes(source("models/server/page/app.js")));
}

/// The same findings, numbers within `tolerance`.
void expect_same(const Json& got, const Json& need, const std::string& score, double tolerance) {
  ASSERT_EQ(got.size(), need.size());
  for (std::size_t i = 0; i < need.size(); ++i) {
    EXPECT_EQ(got[i]["label"].text(), need[i]["label"].text());
    EXPECT_EQ(got[i]["id"].integer(), need[i]["id"].integer());
    EXPECT_NEAR(got[i][score].number(), need[i][score].number(), tolerance);
    ASSERT_EQ(got[i].has("box"), need[i].has("box"));
    if (!need[i].has("box")) continue;
    for (std::size_t k = 0; k < 4; ++k)  // of a picture 320 pixels wide
      EXPECT_NEAR(got[i]["box"][k].number(), need[i]["box"][k].number(), 320 * tolerance);
  }
}

/// What the program itself prints with --json.
Json printed(const std::string& model, const std::string& mode, const std::string& file) {
  std::unique_ptr<models::Program> program;
  if (model == "vit") program = models::vit::make_program();
  if (model == "detr") program = std::make_unique<models::detr::DetrProgram>();
  if (model == "setr") program = std::make_unique<models::setr::SetrProgram>();
  std::vector<std::string> words = {
      "--json", "--checkpoint",
      source("models/" + model + "/pretrained/" + (model == "vit" ? "digits" : "scenes")), file};
  if (mode == "eager")
    words.push_back("--eager");
  else
    words.insert(words.end(), {"--threads", "1"});
  std::ostringstream out, err;
  EXPECT_EQ(models::run_program(*program, words, out, err), 0) << err.str();
  return Json::parse(out.str(), "program")[0]["findings"];
}

using Case = std::pair<const char*, const char*>;  // model, mode
class ServerRuns : public ServerTest, public ::testing::WithParamInterface<Case> {};

INSTANTIATE_TEST_SUITE_P(, ServerRuns,
                         ::testing::Values(Case("vit", "compiled"), Case("vit", "eager"),
                                           Case("detr", "compiled"), Case("detr", "eager"),
                                           Case("setr", "compiled"), Case("setr", "eager")),
                         [](const auto& info) {
                           return std::string(info.param.first) + "_" + info.param.second;
                         });

TEST_P(ServerRuns, AnswersWhatTheProgramPrints) {
  const auto [model, mode] = GetParam();
  const std::string file = std::string(model) == "vit" ? digit(8) : scene(3);
  const Json got = run(model, mode, file);
  const std::string score = got["score"].text();
  EXPECT_EQ(score, std::string(model) == "setr" ? "share" : "score");
  ASSERT_GT(got["findings"].size(), 0);
  // The same code on the same bytes on as many threads: as printed, nine digits of a float.
  expect_same(got["findings"], printed(model, mode, file), score, 1e-8);
  const tensor::Tensor image = tensor::load_image(file);
  EXPECT_EQ(got["height"].integer(), image.shape(0));
  EXPECT_EQ(got["width"].integer(), image.shape(1));
  EXPECT_EQ(got["colors"].size(), got["findings"].size());
  ASSERT_EQ(got["texts"].size(), got["findings"].size());
  EXPECT_TRUE(got["texts"][0].text().ends_with(" %")) << got["texts"][0].text();
  EXPECT_EQ(got.has("mask"), std::string(model) == "setr");
}

TEST_P(ServerRuns, TellsTheTimeOfEveryStage) {
  const auto [model, mode] = GetParam();
  const std::string file = std::string(model) == "vit" ? digit(8) : scene(3);
  run(model, mode, file);
  const Json stages = run(model, mode, file)["stages"];  // compiled before, if at all
  const std::vector<std::string> names = {"wait", "decode", "preprocess", "model", "postprocess"};
  ASSERT_EQ(stages.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(stages[i]["name"].text(), names[i]);
    EXPECT_GE(stages[i]["ms"].number(), 0);
    EXPECT_LT(stages[i]["ms"].number(), 60000);
  }
  EXPECT_GT(stages[1]["ms"].number(), 0);  // to the microsecond, no decoder is that fast
  EXPECT_GT(stages[3]["ms"].number(), 0);
}

TEST_F(ServerAnswers, TheTimeOfCompilingIsToldOnce) {
  Engine fresh({source("models/vit/pretrained/digits"), source("models/detr/pretrained/scenes"),
                source("models/setr/pretrained/scenes")},
               1);
  const std::string bytes = read_bytes(digit(3));
  const auto stages = [&] {
    return fresh.run("vit", models::server::Mode::compiled, std::as_bytes(std::span(bytes))).stages;
  };
  const auto first = stages(), second = stages();
  ASSERT_EQ(first.size(), 6);
  EXPECT_EQ(first[3].name, "compile");
  EXPECT_GT(first[3].milliseconds, 0);
  ASSERT_EQ(second.size(), 5);
  EXPECT_EQ(second[3].name, "model");
}

TEST_F(ServerAnswers, EagerEqualsCompiled) {
  for (const std::string model : {"vit", "detr", "setr"})
    for (const int number : {2, 3}) {
      const std::string file = model == "vit" ? digit(number) : scene(number);
      const Json eager = run(model, "eager", file), compiled = run(model, "compiled", file);
      // The two modes agree to 1e-4 (README.md); a share moves by one pixel in 100,000.
      expect_same(compiled["findings"], eager["findings"], eager["score"].text(), 1e-4);
    }
}

TEST_F(ServerAnswers, TheMaskCoversThePictureAndGivesTheShares) {
  const Json got = run("setr", "compiled", scene(1));
  const std::int64_t pixels = got["width"].integer() * got["height"].integer();
  std::map<std::int64_t, std::int64_t> count;
  std::int64_t sum = 0, before = -1;
  const tensor::Ints mask = got["mask"].ints();
  ASSERT_EQ(mask.size() % 2, 0);
  for (std::size_t i = 0; i < mask.size(); i += 2) {
    EXPECT_NE(mask[i], before) << "two runs that should be one";
    EXPECT_GT(mask[i + 1], 0);
    before = mask[i];
    count[mask[i]] += mask[i + 1], sum += mask[i + 1];
  }
  EXPECT_EQ(sum, pixels);
  ASSERT_EQ(count.size(), got["findings"].size());
  for (std::size_t i = 0; i < count.size(); ++i) {
    const Json finding = got["findings"][i];
    EXPECT_NEAR(finding["share"].number(),
                static_cast<double>(count[finding["id"].integer()]) / static_cast<double>(pixels),
                1e-8);
  }
}

/// The answer without its times.
std::string untimed(const std::string& body) {
  const std::size_t begin = body.find("\"stages\""), end = body.find(']', begin);
  EXPECT_NE(end, body.npos) << body;
  return body.substr(0, begin) + body.substr(end + 1);
}

TEST_F(ServerAnswers, SixteenAtATimeAreEqual) {
  constexpr std::size_t kClients = 16;
  const Case kinds[] = {
      {"vit", "compiled"}, {"setr", "compiled"}, {"vit", "eager"}, {"detr", "compiled"}};
  std::vector<std::string> alone;
  for (const auto& [model, mode] : kinds)
    alone.push_back(untimed(post(model, mode, read_bytes(scene(2)))->body));
  std::vector<std::string> got(kClients);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kClients; ++i)
    threads.emplace_back([&, i] {
      const auto& [model, mode] = kinds[i % std::size(kinds)];
      const httplib::Result result = post(model, mode, read_bytes(scene(2)));
      got[i] = result ? untimed(result->body) : to_string(result.error());
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kClients; ++i) EXPECT_EQ(got[i], alone[i % std::size(kinds)]);
}

TEST_F(ServerAnswers, ChunkedBodiesAndJpegsToo) {
  const std::string bytes = read_bytes(digit(8));
  const httplib::Result got = client().Post(
      "/api/run?model=vit&mode=compiled",
      [&](std::size_t, httplib::DataSink& sink) {
        sink.write(bytes.data(), bytes.size());
        sink.done();
        return true;
      },
      "image/png");
  ASSERT_TRUE(got);
  ASSERT_EQ(got->status, 200) << got->body;
  EXPECT_EQ(Json::parse(got->body, "answer")["findings"][0]["label"].text(), "8");
}

}  // namespace
