// How findings are shown: as lines for people and as JSON for programs.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "models/common/cli.h"
#include "tensor/compile.h"

namespace models {

/// A finding's score for people: "98.7 %", or a measure as it is.
std::string score_text(const Finding& finding);

/// "  98.7 %  cat  (12, 40) to (380, 211)" for each finding.
void print_findings(std::ostream& out, const std::vector<Finding>& findings);

/// [{"label": "cat", "id": 3, "score": 0.987, "box": [...]}, ...]; `score_name` is the key.
void print_findings_json(std::ostream& out, const std::vector<Finding>& findings,
                         const std::string& score_name);

/// What `verify` found: how many groups, the worst, and the first that is out of its bound. False
/// if one is.
bool print_checks(std::ostream& out, const std::vector<tensor::GroupCheck>& checks);

}  // namespace models
