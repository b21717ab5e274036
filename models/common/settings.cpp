// Settings against a reader's table of them.
#include "models/common/settings.h"

#include <algorithm>
#include <set>

#include "models/common/text.h"
#include "tensor/error.h"

namespace models {

using tensor::Json;

namespace {

/// What transformers and training programs write into any settings: how a text is generated, how a
/// model was trained or stored, and what its classes are called.
const std::set<std::string_view>& bookkeeping() {
  static const std::set<std::string_view> kKeys = {
      "add_cross_attention",
      "architectures",
      "attn_implementation",
      "bad_words_ids",
      "begin_suppress_tokens",
      "bos_token_id",
      "chunk_size_feed_forward",
      "cross_attention_hidden_size",
      "decoder_start_token_id",
      "diversity_penalty",
      "do_sample",
      "dtype",
      "early_stopping",
      "encoder_no_repeat_ngram_size",
      "eos_token_id",
      "exponential_decay_length_penalty",
      "finetuning_task",
      "forced_bos_token_id",
      "forced_eos_token_id",
      "gradient_checkpointing",
      "initializer_range",
      "is_decoder",
      "is_encoder_decoder",
      "label2id",
      "length_penalty",
      "license",
      "max_length",
      "min_length",
      "no_repeat_ngram_size",
      "note",
      "notes",
      "num_beam_groups",
      "num_beams",
      "num_return_sequences",
      "output_attentions",
      "output_hidden_states",
      "output_scores",
      "pad_token_id",
      "padding",
      "prefix",
      "remove_invalid_values",
      "repetition_penalty",
      "return_dict",
      "return_dict_in_generate",
      "sep_token_id",
      "suppress_tokens",
      "task_specific_params",
      "temperature",
      "tf_legacy_loss",
      "tie_encoder_decoder",
      "tie_word_embeddings",
      "tokenizer_class",
      "top_k",
      "top_p",
      "torch_dtype",
      "torchscript",
      "transformers_version",
      "typical_p",
      "use_bfloat16",
      "use_cache",
  };
  return kKeys;
}

/// The value as JSON if it is short.
std::string shown(const Json& value) {
  if (value.is_bool()) return value.boolean() ? "true" : "false";
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.is_string()) return json_text(value.text());
  if (value.is_array()) return value.size() == 0 ? "[]" : "a list";
  if (value.is_object()) return value.size() == 0 ? "{}" : "an object";
  return "a number";
}

}  // namespace

void require_setting(const Json& settings, const FixedSetting& fixed) {
  if (!settings.has(fixed.key)) return;
  const Json value = settings[fixed.key];
  const std::string got = shown(value);
  if (std::ranges::find(fixed.values, got) != fixed.values.end()) return;
  std::vector<std::string> needed(fixed.values.begin(), fixed.values.end());
  tensor::fail(value.path(), "is ", got, ", need ", joined(needed, " or "),
               ": nothing else is computed");
}

void check_settings(const Json& settings, const KnownSettings& known) {
  for (const FixedSetting& fixed : known.fixed) require_setting(settings, fixed);
  const auto listed = [](const std::vector<std::string_view>& keys, const std::string& key) {
    return std::ranges::find(keys, key) != keys.end();
  };
  for (const std::string& key : settings.keys()) {
    if (!settings.has(key) || key.starts_with('_') || bookkeeping().contains(key)) continue;
    if (listed(known.used, key) || listed(known.harmless, key)) continue;
    if (std::ranges::find(known.fixed, key, &FixedSetting::key) != known.fixed.end()) continue;
    tensor::fail(settings[key].path(),
                 "is not known here, and may ask for what is not computed: remove it if the "
                 "model's results do not depend on it");
  }
}

}  // namespace models
