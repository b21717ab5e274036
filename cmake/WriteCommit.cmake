# cmake -DSOURCE=FOLDER -DOUT=FILE -P WriteCommit.cmake: FILE says from what commit it is built; it is touched only when
# that has changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
#include "bench/commit.h"

const char* bench::commit() { return "@commit@"; }
]] @ONLY)
