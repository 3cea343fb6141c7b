"""The keys of config.json that are no fields of ``BertConfig``: fixed, ignored with a reason, or read by others."""

from __future__ import annotations

# key -> (the values that mean "a plain BERT encoder", why no other value is taken)
FIXED_KEYS: dict[str, tuple[tuple[object, ...], str]] = {
    "model_type": (("bert", None), "another model_type is another architecture"),
    "is_decoder": ((False, None), "this is an encoder library"),
    "is_encoder_decoder": ((False, None), "this is an encoder library"),
    "add_cross_attention": ((False, None), "this is an encoder library"),
    "position_embedding_type": (("absolute", None), "relative positions change every attention score"),
    "pruned_heads": (({}, None), "layers with fewer heads have other shapes; save the model with its heads in place"),
    "quantization_config": ((None,), "quantised weights need their own kernels; use the original checkpoint"),
    "embedding_size": ((None,), "factorised embeddings are another architecture"),
}

# key -> why nothing here depends on it
IGNORED_KEYS: dict[str, str] = {
    "_name_or_path": "where the file once was",
    "name_or_path": "where the file once was",
    "_commit_hash": "where the file once was",
    "transformers_version": "who wrote the file",
    "use_cache": "only a decoder has a cache",
    "return_dict": "outputs are always named, and outputs[0] reads them as a tuple",
    "bos_token_id": "the tokenizer decides; an encoder generates nothing",
    "eos_token_id": "the tokenizer decides; an encoder generates nothing",
    "gradient_checkpointing": "a choice of the training run: model.gradient_checkpointing_enable()",
    "chunk_size_feed_forward": "trades time for memory, not numbers",
    "torchscript": "a choice of the exporting run",
    "auto_map": "code that comes with a checkpoint is never run",
    "_num_labels": "written beside id2label by old versions; id2label decides",
    "directionality": "left over from the TensorFlow release",
    "pooler_fc_size": "left over from the TensorFlow release, which builds no such layers for text",
    "pooler_num_attention_heads": "left over from the TensorFlow release, which builds no such layers for text",
    "pooler_num_fc_layers": "left over from the TensorFlow release, which builds no such layers for text",
    "pooler_size_per_head": "left over from the TensorFlow release, which builds no such layers for text",
    "pooler_type": "left over from the TensorFlow release, which builds no such layers for text",
}
# Ignored keys that describe a file or a run that is over: not written back.
NOT_WRITTEN_BACK = {"_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "auto_map", "_num_labels"}
# Generation defaults that old transformers wrote into every config.json; an encoder generates nothing.
_GENERATION_KEYS = (
    "bad_words_ids", "begin_suppress_tokens", "cross_attention_hidden_size", "decoder_start_token_id",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_past", "output_scores", "prefix",
    "remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "sep_token_id", "suppress_tokens",
    "temperature", "tie_encoder_decoder", "tokenizer_class", "top_k", "top_p", "typical_p", "use_bfloat16",
)  # fmt: skip
IGNORED_KEYS.update(dict.fromkeys(_GENERATION_KEYS, "a default of text generation or of another framework"))

# Read by tasks or by other libraries, and kept in `extra` for them.
KNOWN_ELSEWHERE = {
    "finetuning_task", "task_specific_params", "sentence_transformers", "sbert_ce_default_activation_function",
}  # fmt: skip
