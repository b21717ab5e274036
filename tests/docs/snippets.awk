# From the Markdown files on the command line to one C++ file of tests.
#
#   ```cpp run            compiled and run. With a main function or a type of its own it is a file, otherwise the
#                         body of a function.
#   ```cpp given          variables that the table rows after it use, fresh for every row
#   ```cpp quote=FILE     stands in FILE as it stands here
#   ```sh run             run by bash, where models/, examples/ and the programs are at hand
#   ```python run         run by package.wheel (tests/package/wheel_test.py); "python given" by scripts/numpy_table.py
#   ```text               right after one of those that run: exactly what it prints. With "text like", digits and
#                         the width of columns may differ.
#   | NumPy | tensor | value |    rows whose tensor expression prints the value (scripts/numpy_table.py)
#   | It says | Do this |         rows that begin with an error's text in backticks: the sources throw it, … being what differs
#
# Any other C++ and Python, and any other shell block that names a checkpoint of ours, is an error: nothing stands untested.

function complain(what) {
  print FILENAME ":" FNR ": " what > "/dev/stderr"
  failed = 1
  exit 1
}

function raw(text) { return "R\"~~~(" text ")~~~\"" }

function trimmed(text) {
  gsub(/^[ \t]+|[ \t]+$/, "", text)
  return text
}

# The code of a table's cell: `a \| b` is a | b.
function code_of(cell) {
  cell = trimmed(cell)
  gsub(/^`|`$/, "", cell)
  gsub(/\\\|/, "|", cell)
  return cell
}

function test(line) { return "TEST(" suite ", Line" line ") " }

function place(line) { return "#line " line " \"" FILENAME "\"\n" }

# One row of a table. Escaped bars are not borders.
function row(text, cells) {
  gsub(/\\\|/, "\001", text)
  split(text, cells, "|")
  for (i in cells) gsub(/\001/, "\\|", cells[i])
  if (!given) complain("a table without a \"cpp given\" block before it")
  body = body test(FNR) "{\n  struct Row : " given " {\n    auto operator()() {\n" place(FNR) "return " \
         code_of(cells[3]) ";\n    }\n  };\n  docs::expect_row<Row>(" raw(code_of(cells[4])) ");\n}\n"
}

# A block that ended: `kind` is its info string, `block` its text, `start` its first line.
function ended() {
  if (kind == "cpp run") {
    name = suite "_" start
    if (block ~ /(^|\n)(int main\(|struct )/) {
      sub(/int main\(/, "void main(", block)
      body = body "namespace " name " {\n" place(start) block "}\n"
      call = name "::main"
    } else {
      body = body "static void " name "() {\n" place(start) block "}\n"
      call = name
    }
    pending = "docs::printed(" call ")"
  } else if (kind == "cpp given") {
    given = "Given_" suite "_" start
    body = body "struct " given " {\n" place(start) block "};\n"
  } else if (kind ~ /^cpp quote=/) {
    body = body test(start) "{ docs::expect_quoted(" raw(substr(kind, 11)) ", " raw(block) "); }\n"
  } else if (kind == "sh run") {
    pending = "docs::shell(" raw(block) ")"
  } else if (kind ~ /^cpp/) {
    complain("a C++ block that is not tested: mark it \"cpp run\" or \"cpp quote=FILE\"")
  } else if (kind ~ /^python/ && kind !~ /^python (run|given)$/) {
    complain("a Python block that is not tested: mark it \"python run\"")
  } else if (kind ~ /^(sh|bash)/ && block ~ /\/pretrained\//) {
    complain("a shell block with a checkpoint of ours that is not tested: mark it \"sh run\"")
  }
  if (pending) waiting = start
}

# The test of a block that runs, now that it is known whether its output follows.
function flush(expectation) {
  if (!pending) return
  body = body test(waiting) "{ " expectation " }\n"
  pending = ""
}

FNR == 1 {
  flush("docs::expect_success(" pending ");")
  suite = FILENAME
  sub(/.*\//, "", suite)
  sub(/\.md$/, "", suite)
  gsub(/[^A-Za-z0-9]/, "_", suite)
  inside = table = errors = 0
  given = ""
}

/^```/ && !inside {
  inside = 1
  kind = substr($0, 4)
  start = FNR + 1
  block = ""
  if (kind !~ /^text/) flush("docs::expect_success(" pending ");")
  next
}

/^```$/ && inside {
  inside = 0
  if (kind ~ /^text/ && pending)
    flush((kind == "text like" ? "docs::expect_like(" : "docs::expect_equal(") pending ", " raw(block) ");")
  else
    ended()
  next
}

inside && kind == "cpp run" && /^#include </ {
  if (!seen[$0]++) includes = includes $0 "\n"
  block = block "\n"
  next
}

inside { block = block $0 "\n"; next }

/^\| NumPy \| tensor \| value \|$/ { table = 1; next }
table && /^\|[-| :]+\|$/ { next }
table && /^\|/ { row($0); next }
/^\| It says \| Do this \|$/ { errors = 1; next }
errors && /^\|[-| :]+\|$/ { next }
errors && /^\| `[^`]+`/ { body = body test(FNR) "{ docs::expect_thrown(" raw(substr($0, 4, index(substr($0, 4), "`") - 1)) "); }\n"; next }
errors && /^\|/ { complain("a row without an error's text in backticks") }
{ table = errors = 0 }

END {
  if (failed) exit 1
  flush("docs::expect_success(" pending ");")
  print "// Made by tests/docs/snippets.awk: do not edit."
  print "#include \"tests/docs/snippets.h\"\n" includes
  print "namespace tn = tensor;\nnamespace {\n" body "}  // namespace"
}
