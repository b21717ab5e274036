#pragma once

namespace bench {

/// What this program was built from, as git describes it: "01b2c2c", "01b2c2c-dirty" after changes,
/// or "unknown" where git does not know the sources.
const char* commit();

}  // namespace bench
