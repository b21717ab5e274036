// The log: who hears what.
#include "tensor/log.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tn = tensor;

namespace {

struct Log : testing::Test {
  ~Log() override { tn::set_log(nullptr); }
  void listen(tn::LogLevel least) {
    tn::set_log(
        [this](tn::LogLevel level, std::string_view text) {
          tn::TextWriter line;
          line << level << ": " << text;
          lines.push_back(line.str());
        },
        least);
  }
  std::vector<std::string> lines;
};

TEST_F(Log, IsSilentAtFirst) {
  EXPECT_FALSE(tn::is_logged(tn::LogLevel::warning));
  tn::log(tn::LogLevel::warning, "unheard");
}

TEST_F(Log, HearsItsLevelAndAbove) {
  listen(tn::LogLevel::warning);
  EXPECT_FALSE(tn::is_logged(tn::LogLevel::info));
  tn::log(tn::LogLevel::info, "unheard");
  tn::log(tn::LogLevel::warning, "a ", 2, "nd word");
  listen(tn::LogLevel::info);
  tn::log(tn::LogLevel::info, "heard");
  EXPECT_EQ(lines, (std::vector<std::string>{"warning: a 2nd word", "info: heard"}));
  tn::set_log(nullptr);
  tn::log(tn::LogLevel::warning, "unheard");
  EXPECT_EQ(lines.size(), 2u);
}

TEST_F(Log, DropsWhatTheSinkThrows) {
  tn::set_log([](tn::LogLevel, std::string_view) { throw std::runtime_error("no"); });
  tn::log(tn::LogLevel::warning, "x");
}

TEST_F(Log, MayChangeWhileOthersLog) {
  std::jthread other([](const std::stop_token& stop) {
    while (!stop.stop_requested()) tn::log(tn::LogLevel::warning, "again");
  });
  for (int i = 0; i < 1000; ++i) {
    tn::set_log([](tn::LogLevel, std::string_view) {});
    tn::set_log(nullptr);
  }
}

}  // namespace
