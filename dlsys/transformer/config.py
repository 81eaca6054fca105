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
_KEYS["deepseek_v3"] = _COMMON
# Settings that a spec has no name for, with the one value that it means.
_FIXED = {
    "attention_bias": False,
    "mlp_bias": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "moe_layer_freq": 1,
}


def spec_of(config: Mapping[str, Any]) -> TransformerSpec:
    """The spec of `config`; raises ValueError naming the key that is missing or not supported."""
    family = _need(config, "model_type", "every")
    if family not in _KEYS:
        raise ValueError(unknown("supported model_type", family, _KEYS))
    for key, only in _FIXED.items():
        if config.get(key, only) != only:
            raise ValueError(f"{key} = {config[key]!r} is not supported; it must be {only!r}.")
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
    if family == "deepseek_v3":
        return TransformerSpec(**llama, latent=_latent(config), moe=_deepseek_experts(config))
    llama |= {"kv_heads": config.get("num_key_value_heads"), "head_size": config.get("head_dim")}
    if family == "mixtral":
        experts = _need(config, "num_local_experts", "a mixtral")
        visited = _need(config, "num_experts_per_tok", "a mixtral")
        llama["moe"] = MixtureOfExperts(experts, visited)
    return TransformerSpec(**llama)


def _latent(config: Mapping[str, Any]) -> LatentAttention:
    keys = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return LatentAttention(*(_need(config, key, "a deepseek_v3") for key in keys))


def _deepseek_experts(config: Mapping[str, Any]) -> MixtureOfExperts:
    return MixtureOfExperts(
        _need(config, "n_routed_experts", "a deepseek_v3"),
        _need(config, "num_experts_per_tok", "a deepseek_v3"),
        shared=_need(config, "n_shared_experts", "a deepseek_v3"),
        ffn_hidden=_need(config, "moe_intermediate_size", "a deepseek_v3"),
        dense_layers=_need(config, "first_k_dense_replace", "a deepseek_v3"),
    )


def _need(config: Mapping[str, Any], key: str, owner: str) -> Any:
    if config.get(key) is None:
        raise ValueError(f"The config has no {key!r}, which {owner} config needs.")
    return config[key]
