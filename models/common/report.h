// How findings are shown: as lines for people and as JSON for programs.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "models/common/cli.h"

namespace models {

/// "  98.7 %  cat  (12, 40) to (380, 211)" for each finding.
void print_findings(std::ostream& out, const std::vector<Finding>& findings);

/// [{"label": "cat", "id": 3, "score": 0.987, "box": [...]}, ...]; `score_name` is the key.
void print_findings_json(std::ostream& out, const std::vector<Finding>& findings,
                         const std::string& score_name);

/// A text between quotes with JSON's escapes; bytes that are not UTF-8 become U+FFFD.
std::string json_text(std::string_view text);

/// The text on one line, control characters blanked, lines joined by "; ".
std::string one_line(std::string_view text);

}  // namespace models
