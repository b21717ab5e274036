# Writes the page's files into a C++ source: cmake -DFOLDER=... -DOUTPUT=... -P embed.cmake
set(text "// The page's files, by embed.cmake.\n#include \"models/server/server.h\"\n\nnamespace models::server {\n\n")
string(APPEND text "const std::vector<PageFile>& page_files() {\n  static const std::vector<PageFile> files = {\n")
foreach(entry "/|index.html|text/html" "/style.css|style.css|text/css" "/app.js|app.js|text/javascript"
              "/icon.svg|icon.svg|image/svg+xml")
  string(REPLACE "|" ";" entry "${entry}")
  list(GET entry 0 path)
  list(GET entry 1 file)
  list(GET entry 2 type)
  file(READ ${FOLDER}/${file} content)
  string(APPEND text "      {\"${path}\", \"${type}; charset=utf-8\", R\"page(${content})page\"},\n")
endforeach()
string(APPEND text "  };\n  return files;\n}\n\n}  // namespace models::server\n")
file(WRITE ${OUTPUT} "${text}")
