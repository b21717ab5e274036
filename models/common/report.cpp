// Printing findings.
#include "models/common/report.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <ostream>

#include "models/common/text.h"
#include "tensor/text.h"

namespace models {

namespace {

/// A number that reads back as the same float; JSON has no NaN or infinity.
std::string json_number(double number) {
  if (!std::isfinite(number)) return "null";
  tensor::TextWriter text;
  text << std::setprecision(std::numeric_limits<float>::max_digits10) << number;
  return text.str();
}

}  // namespace

std::string score_text(const Finding& finding) {
  constexpr int kDigits = 6;
  tensor::TextWriter text;
  if (finding.is_share)
    text << std::fixed << std::setprecision(1) << finding.score * 100 << " %";
  else
    text << std::setprecision(kDigits) << finding.score;
  return text.str();
}

void print_findings(std::ostream& out, const std::vector<Finding>& findings) {
  if (findings.empty()) out << "  nothing found\n";
  for (const Finding& finding : findings) {
    out << std::setw(9) << score_text(finding) << "  " << one_line(finding.label);
    if (finding.box) {
      const auto& box = *finding.box;
      out << std::fixed << std::setprecision(0) << "  (" << box[0] << ", " << box[1] << ") to ("
          << box[2] << ", " << box[3] << ")";
    }
    out << "\n";
  }
}

void print_findings_json(std::ostream& out, const std::vector<Finding>& findings,
                         const std::string& score_name) {
  out << "[";
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    out << (i == 0 ? "" : ", ") << "{\"label\": " << json_text(finding.label)
        << ", \"id\": " << finding.id << ", " << json_text(score_name) << ": "
        << json_number(finding.score);
    if (finding.box) {
      const auto& box = *finding.box;
      out << ", \"box\": [" << json_number(box[0]) << ", " << json_number(box[1]) << ", "
          << json_number(box[2]) << ", " << json_number(box[3]) << "]";
    }
    out << "}";
  }
  out << "]";
}

bool print_checks(std::ostream& out, const std::vector<tensor::GroupCheck>& checks) {
  using tensor::GroupCheck;
  const auto share = [](const GroupCheck& c) { return c.error / c.bound; };
  const auto diverges = [](const GroupCheck& c) { return !c.ok(); };
  const auto line = [&](const char* which, const GroupCheck& c) {
    out << "  " << which << std::scientific << std::setprecision(1) << "  error " << c.error
        << "  bound " << c.bound << "  " << c.operators << (c.where.empty() ? "" : " @ ") << c.where
        << " [" << c.kernel << "]\n";
  };
  const auto wrong = std::ranges::count_if(checks, diverges);
  out << "verify: " << checks.size() << " groups against the reference operators, " << wrong
      << " out of bound\n";
  if (!checks.empty()) line("worst", *std::ranges::max_element(checks, {}, share));
  if (wrong > 0) line("first", *std::ranges::find_if(checks, diverges));
  return wrong == 0;
}

}  // namespace models
