/* What docs/c.md shows: opens a checkpoint and says what it sees in a picture. */
#include <stdio.h>
#include <stdlib.h>
#include <tensor_c.h>

static void check(tc_status status) {
  if (status == TC_OK) return;
  fprintf(stderr, "%s: %s\n", tc_status_name(status), tc_error());
  exit(1);
}

static size_t read_file(const char* path, void* bytes, size_t capacity) {
  FILE* file = fopen(path, "rb");
  if (!file) return 0;
  const size_t size = fread(bytes, 1, capacity, file);
  fclose(file);
  return size;
}

int main(int argc, char** argv) {
  static char bytes[1 << 20];
  if (argc != 3) return fprintf(stderr, "usage: %s CHECKPOINT PICTURE\n", argv[0]), 1;
  const size_t size = read_file(argv[2], bytes, sizeof bytes);

  tc_options* options = NULL;
  check(tc_options_new(&options));
  check(tc_options_set(options, "threads", "1"));
  tc_model* model = NULL;
  check(tc_model_open(argv[1], options, &model));

  tc_answer* answer = NULL;
  check(tc_model_look(model, bytes, size, &answer));
  const char* label = NULL;
  double score = 0;
  check(tc_answer_finding(answer, 0, &label, NULL, &score, NULL));
  printf("%s: %.1f %%\n", label, 100 * score);

  check(tc_answer_free(answer));
  check(tc_model_free(model));
  check(tc_options_free(options));
  return 0;
}
