"""Reading a Hugging Face `config.json` into a TransformerSpec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlsys.checks import unknown
from dlsys.transformer.spec import LatentAttention, MixtureOfExperts, TransformerSpec

# What a spec calls it, and what each family's configuration does.
_GPT2 = {
    "layers": "n_layer",
    "hidden": "n_embd",
    "heads": "n_head",
    "vocab": "vocab_size",
    "sequence": "n_positions",
}
_COMMON = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "vocab": "vocab_size",
    "sequence": "max_position_embeddings",
    "ffn_hidden": "intermediate_size",
}
_KEYS = {"gpt2": _GPT2} | dict.fromkeys(("llama", "mistral", "mixtral", "bert"), _COMMON)
_KEYS |= {"deepseek_v3": _COMMON, "qwen3_moe": _COMMON, "llama4": {}}
_KEYS["llama4_text"] = _COMMON | {"ffn_hidden": "intermediate_size_mlp"}
# What a mixture calls it.
_MIXTRAL = {"experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"}
_MIXTURES = {
    "mixtral": _MIXTRAL,
    "deepseek_v3": {
        "experts": "n_routed_experts",
        "experts_per_token": "num_experts_per_tok",
        "shared": "n_shared_experts",
        "ffn_hidden": "moe_intermediate_size",
        "dense_layers": "first_k_dense_replace",
    },
    "qwen3_moe": {
        "experts": "num_experts",
        "experts_per_token": "num_experts_per_tok",
        "ffn_hidden": "moe_intermediate_size",
        "every": "decoder_sparse_step",
    },
    "llama4_text": _MIXTRAL
    | {"ffn_hidden": "intermediate_size", "every": "interleave_moe_layer_step"},
}
# Settings that a spec has no name for, with the one value that it means.
_FIXED = {
    "attention_bias": False,
    "mlp_bias": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "moe_layer_freq": 1,
    "mlp_only_layers": [],
}


def spec_of(config: Mapping[str, Any]) -> TransformerSpec:
    """The spec of `config`; raises ValueError naming the key that is missing or not supported."""
    family = _need(config, "model_type", "every")
    if family not in _KEYS:
        raise ValueError(unknown("supported model_type", family, _KEYS))
    for key, only in _FIXED.items():
        if config.get(key, only) != only:
            raise ValueError(f"{key} = {config[key]!r} is not supported; it must be {only!r}.")
    if family == "llama4":
        return spec_of(_need(config, "text_config", "a llama4"))
    common = {ours: _need(config, theirs, f"a {family}") for ours, theirs in _KEYS[family].items()}
    name = str(config.get("_name_or_path", ""))
    tied = bool(config.get("tie_word_embeddings", family in ("gpt2", "bert")))
    if family == "gpt2":
        common["ffn_hidden"] = config.get("n_inner")
        return TransformerSpec(**common, tied=tied, name=name)
    if family == "bert":
        return TransformerSpec(
            **common,
            tied=tied,
            name=name,
            post_norm=True,
            pooler=True,
            token_types=_need(config, "type_vocab_size", "a bert"),
        )
    llama: dict[str, Any] = {**common, "gated": True, "tied": tied, "name": name}
    if family in _MIXTURES:
        read = {ours: _need(config, key, f"a {family}") for ours, key in _MIXTURES[family].items()}
        shared = {"shared": 1} if family == "llama4_text" else {}  # its config has no word for it
        llama["moe"] = MixtureOfExperts(**shared, **read)
    if family == "deepseek_v3":
        return TransformerSpec(**llama, latent=_latent(config))
    llama |= {"kv_heads": config.get("num_key_value_heads"), "head_size": config.get("head_dim")}
    return TransformerSpec(**llama, query_key_norm=family == "qwen3_moe")


def _latent(config: Mapping[str, Any]) -> LatentAttention:
    keys = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return LatentAttention(*(_need(config, key, "a deepseek_v3") for key in keys))


def _need(config: Mapping[str, Any], key: str, owner: str) -> Any:
    if config.get(key) is None:
        raise ValueError(f"The config has no {key!r}, which {owner} config needs.")
    return config[key]
