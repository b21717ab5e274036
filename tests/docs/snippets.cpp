// Running snippets of the documentation and comparing what they print.
#include "tests/docs/snippets.h"
#include "tests/temporary_folder.h"

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>

namespace docs {

namespace fs = std::filesystem;

namespace {

/// The current folder while it lives: an empty one, but for models/ and examples/.
class Workplace {
 public:
  Workplace() : before_(fs::current_path()) {
    for (const char* link : {"models", "examples"})
      fs::create_symlink(fs::path(DOCS_SOURCE) / link, folder_ / link);
    fs::current_path(folder_.path());
  }
  ~Workplace() { fs::current_path(before_); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

 private:
  const fs::path before_;
  const tensor::check::TemporaryFolder folder_;
};

}  // namespace

Output printed(const std::function<void()>& code) {
  const Workplace workplace;
  std::ostringstream out;
  std::streambuf* before = std::cout.rdbuf(out.rdbuf());
  Output result;
  try {
    code();
  } catch (const std::exception& error) {
    out << "threw: " << error.what() << "\n";
    result.good = false;
  }
  std::cout.rdbuf(before);
  result.text = out.str();
  return result;
}

Output shell(const std::string& commands) {
  const Workplace workplace;
  std::ofstream("commands.sh") << commands;
  Output result;
  FILE* pipe =
      popen("PATH=\"" DOCS_PROGRAMS ":$PATH\" bash -euo pipefail commands.sh 2>&1 </dev/null", "r");
  if (!pipe) return {"cannot start a shell", false};
  char bytes[4096];
  for (std::size_t n; (n = fread(bytes, 1, sizeof bytes, pipe)) > 0;) result.text.append(bytes, n);
  const int status = pclose(pipe);
  result.good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return result;
}

void expect_success(const Output& got) { EXPECT_TRUE(got.good) << got.text; }

void expect_equal(const Output& got, const std::string& want) {
  expect_success(got);
  EXPECT_EQ(got.text, want);
}

void expect_like(const Output& got, const std::string& want) {
  expect_success(got);
  const auto shape = [](const std::string& text) {
    const std::string numbers = std::regex_replace(text, std::regex("[0-9][0-9.,]*"), "0");
    const std::string rules = std::regex_replace(numbers, std::regex("-{2,}"), "--");
    return std::regex_replace(rules, std::regex(" +"), " ");
  };
  EXPECT_EQ(shape(got.text), shape(want)) << "which is, with its numbers:\n" << got.text;
}

void expect_quoted(const std::string& file, const std::string& lines) {
  std::ifstream in(fs::path(DOCS_SOURCE) / file);
  ASSERT_TRUE(in) << file;
  std::ostringstream text;
  text << "\n" << in.rdbuf();
  EXPECT_NE(text.str().find("\n" + lines), std::string::npos) << "not in " << file << ":\n"
                                                              << lines;
}

std::string on_one_line(const std::string& text) {
  std::string line;
  for (const char letter : text) {
    const bool space = letter == ' ' || letter == '\n';
    if (space && (line.empty() || line.back() == ' ' || line.back() == '[')) continue;
    if (letter == ']' && line.ends_with(' ')) line.pop_back();
    line += space ? ' ' : letter;
  }
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

}  // namespace docs
