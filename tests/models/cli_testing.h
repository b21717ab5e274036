// Running the programs vit, detr, setr and depth inside a test.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "models/depth/depth_program.h"
#include "models/detr/detr_program.h"
#include "models/setr/setr_program.h"
#include "models/vit/vit_program.h"
#include "tensor/creation.h"
#include "tensor/index.h"
#include "tests/io/io_testing.h"
#include "tests/models/golden.h"

namespace cli {

using tensor::Json;
using tensor::nn::StateDict;
using Words = std::vector<std::string>;

inline std::string source(const std::string& file) { return TENSOR_TEST_DATA "/../../" + file; }

struct Outcome {
  int code;
  std::string out, err;
};

class Cli : public tensor::testing::FolderTest {
 protected:
  static Outcome run(const std::string& name, const Words& arguments) {
    std::unique_ptr<models::Program> program;
    if (name == "vit") program = models::vit::make_program();
    if (name == "detr") program = std::make_unique<models::detr::DetrProgram>();
    if (name == "setr") program = std::make_unique<models::setr::SetrProgram>();
    if (name == "depth") program = std::make_unique<models::depth::DepthProgram>();
    std::ostringstream out, err;
    const int code = models::run_program(*program, arguments, out, err);
    return {code, out.str(), err.str()};
  }

  /// With the small model that ships.
  static Outcome shipped(const std::string& name, Words arguments) {
    const std::string task = name == "vit" ? "digits" : "scenes";
    arguments.insert(arguments.end(),
                     {"--checkpoint", source("models/" + name + "/pretrained/" + task)});
    return run(name, arguments);
  }

  /// Exit code 1, nothing printed, and exactly this line on the error stream.
  static void expect_refused(const Outcome& got, const std::string& line) {
    EXPECT_EQ(got.code, 1);
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(got.err, line + "\n");
  }

  /// The findings of a good run with --json, by the name of the file.
  static std::map<std::string, Json> findings(const Outcome& got) {
    EXPECT_EQ(got.code, 0);
    EXPECT_EQ(got.err, "");
    const Json files = Json::parse(got.out, "output");
    std::map<std::string, Json> by_name;
    for (std::size_t i = 0; i < files.size(); ++i)
      by_name.emplace(std::filesystem::path(files[i]["file"].text()).filename(),
                      files[i]["findings"]);
    return by_name;
  }

  /// Runs a reference checkpoint on its saved inputs and returns what the program wrote.
  StateDict saved_run(const std::string& name, const std::string& base, Words more = {}) {
    if (!std::ranges::count(more, "--input"))
      more.insert(more.end(), {"--input", golden::folder(base) + "/io.safetensors"});
    more.insert(more.end(), {"--checkpoint", golden::folder(base), "--output", path("out")});
    const Outcome got = run(name, more);
    EXPECT_EQ(got.code, 0);
    EXPECT_EQ(got.err, "");
    EXPECT_TRUE(got.out.starts_with(path("out") + ":")) << got.out;
    return tensor::load_safetensors(path("out"), tensor::FileAccess::read).tensors;
  }
};

}  // namespace cli
