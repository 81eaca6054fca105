"""Published models, each with the paper or configuration that its shape is from."""

from __future__ import annotations

from dlsys.transformer.spec import LatentAttention, MixtureOfExperts, TransformerSpec
from dlsys.units import Catalogue

_GPT2 = "Radford et al. 2019 and the released weights' configuration"
_GPT3 = "Brown et al. 2020, arXiv 2005.14165, table 2.1; every layer counted as dense attention"
_MEGATRON = "Korthikanti et al. 2022, arXiv 2205.05198, table 3"
_LLAMA1 = "Touvron et al. 2023, arXiv 2302.13971, table 2, and the released weights' configuration"
_MPT = "MosaicML 2023, llm-foundry's training configurations; the vocabulary padded as there"
_LLAMA2 = "Touvron et al. 2023, arXiv 2307.09288, and the released weights' configuration"
_LLAMA3 = "Grattafiori et al. 2024, arXiv 2407.21783, table 3"
_QWEN3 = "Yang et al. 2025, arXiv 2505.09388, table 2, and the released weights' configuration"
_LLAMA4 = (
    "the released weights' configuration (Meta 2025); without what sees images, and every layer "
    "counted as full attention"
)


def _gpt2(name: str, layers: int, hidden: int, heads: int) -> TransformerSpec:
    return TransformerSpec(layers, hidden, heads, 50257, 1024, name=name, source=_GPT2)


def _gpt3(name: str, layers: int, hidden: int, heads: int, note: str = "") -> TransformerSpec:
    return TransformerSpec(layers, hidden, heads, 50257, 2048, name=name, source=_GPT3 + note)


def _megatron(name: str, layers: int, hidden: int, heads: int) -> TransformerSpec:
    return TransformerSpec(layers, hidden, heads, 51200, 2048, name=name, source=_MEGATRON)


def _llama1(name: str, layers: int, hidden: int, heads: int, ffn: int) -> TransformerSpec:
    return TransformerSpec(
        layers, hidden, heads, 32000, 2048, ffn, heads, True, False, name=name, source=_LLAMA1
    )


def _mpt(name: str, layers: int, hidden: int, heads: int, sequence: int) -> TransformerSpec:
    return TransformerSpec(
        layers, hidden, heads, 50432, sequence, bias=False, positions="none", name=name, source=_MPT
    )


def _llama2(
    name: str, layers: int, hidden: int, heads: int, ffn: int, kv: int | None = None
) -> TransformerSpec:
    return TransformerSpec(
        layers, hidden, heads, 32000, 4096, ffn, kv or heads, True, False, name=name, source=_LLAMA2
    )


def _llama3(name: str, layers: int, hidden: int, heads: int, ffn: int) -> TransformerSpec:
    return TransformerSpec(
        layers, hidden, heads, 128256, 8192, ffn, 8, True, False, name=name, source=_LLAMA3
    )


def _qwen3(name: str, layers: int, hidden: int, heads: int, expert: int) -> TransformerSpec:
    return TransformerSpec(
        layers,
        hidden,
        heads,
        151936,
        32768,
        3 * hidden,  # of no layer: each is a mixture
        4,
        True,
        False,
        name=name,
        source=_QWEN3,
        head_size=128,
        query_key_norm=True,
        moe=MixtureOfExperts(128, 8, ffn_hidden=expert),
    )


def _llama4(name: str, experts: int, every: int, sequence: int) -> TransformerSpec:
    return TransformerSpec(
        48,
        5120,
        40,
        202048,
        sequence,
        16384,
        8,
        True,
        False,
        name=name,
        source=_LLAMA4,
        moe=MixtureOfExperts(experts, 1, shared=1, ffn_hidden=8192, every=every),
    )


CATALOGUE: Catalogue[TransformerSpec] = Catalogue(
    "model",
    {
        "gpt2-small": _gpt2("GPT-2 small", 12, 768, 12),
        "gpt2-xl": _gpt2("GPT-2 XL", 48, 1600, 25),
        "gpt3-small": _gpt3("GPT-3 small", 12, 768, 12),
        "gpt3-medium": _gpt3("GPT-3 medium", 24, 1024, 16),
        "gpt3-large": _gpt3("GPT-3 large", 24, 1536, 16),
        "gpt3-xl": _gpt3(
            "GPT-3 XL", 24, 2048, 16, "; it prints 24 heads of 128, which do not make 2,048"
        ),
        "gpt3-2.7b": _gpt3("GPT-3 2.7B", 32, 2560, 32),
        "gpt3-6.7b": _gpt3("GPT-3 6.7B", 32, 4096, 32),
        "gpt3-13b": _gpt3(
            "GPT-3 13B", 40, 5120, 40, "; it prints a width of 5,140, but 40 heads of 128 are 5,120"
        ),
        "gpt3-175b": _gpt3("GPT-3 175B", 96, 12288, 96),
        "megatron-22b": _megatron("Megatron 22B", 48, 6144, 64),
        "megatron-175b": _megatron("Megatron 175B", 96, 12288, 96),
        "megatron-530b": _megatron("Megatron 530B", 105, 20480, 128),
        "megatron-1t": _megatron("Megatron 1T", 128, 25600, 160),
        "palm-540b": TransformerSpec(
            118,
            18432,
            48,
            256000,
            2048,
            ffn_hidden=4 * 18432,
            kv_heads=1,
            gated=True,
            head_size=256,
            norm="layer",
            parallel=True,
            name="PaLM 540B",
            source="Chowdhery et al. 2022, arXiv 2204.02311, section 2 and table 1",
        ),
        "opt-175b": TransformerSpec(
            96,
            12288,
            96,
            50272,
            2048,
            name="OPT-175B",
            source="Zhang et al. 2022, arXiv 2205.01068, table 1, and the released configuration",
        ),
        "bloom-176b": TransformerSpec(
            70,
            14336,
            112,
            250880,
            2048,
            positions="none",
            embedding_norm=True,
            name="BLOOM 176B",
            source="BigScience 2022, arXiv 2211.05100, table 3, and the released configuration; "
            "ALiBi has no parameters",
        ),
        "llama1-7b": _llama1("LLaMA 7B", 32, 4096, 32, 11008),
        "llama1-13b": _llama1("LLaMA 13B", 40, 5120, 40, 13824),
        "llama1-33b": _llama1("LLaMA 33B", 60, 6656, 52, 17920),
        "llama1-65b": _llama1("LLaMA 65B", 80, 8192, 64, 22016),
        "mpt-7b": _mpt("MPT-7B", 32, 4096, 32, 2048),
        "mpt-30b": _mpt("MPT-30B", 48, 7168, 64, 8192),
        "llama2-7b": _llama2("Llama 2 7B", 32, 4096, 32, 11008),
        "llama2-13b": _llama2("Llama 2 13B", 40, 5120, 40, 13824),
        "llama2-70b": _llama2("Llama 2 70B", 80, 8192, 64, 28672, kv=8),
        "llama3-8b": _llama3("Llama 3 8B", 32, 4096, 32, 14336),
        "llama3-70b": _llama3("Llama 3 70B", 80, 8192, 64, 28672),
        "llama3-405b": _llama3("Llama 3 405B", 126, 16384, 128, 53248),
        "chinchilla-70b": TransformerSpec(
            80,
            8192,
            64,
            32000,
            2048,
            norm="rms",
            positions="relative",
            name="Chinchilla 70B",
            source="Hoffmann et al. 2022, arXiv 2203.15556, table 4; otherwise as Gopher, "
            "Rae et al. 2021, arXiv 2112.11446, section 3.1; biases are an assumption",
        ),
        "bert-large": TransformerSpec(
            24,
            1024,
            16,
            30522,
            512,
            post_norm=True,
            token_types=2,
            pooler=True,
            name="BERT-large",
            source="Devlin et al. 2019 and the released uncased weights, without the pre-training "
            "heads' own parameters",
        ),
        "mixtral-8x7b": TransformerSpec(
            32,
            4096,
            32,
            32000,
            32768,
            14336,
            8,
            gated=True,
            tied=False,
            moe=MixtureOfExperts(8, 2),
            name="Mixtral 8x7B",
            source="Jiang et al. 2024, arXiv 2401.04088, table 1",
        ),
        "deepseek-v3": TransformerSpec(
            61,
            7168,
            128,
            129280,
            4096,
            18432,
            gated=True,
            tied=False,
            moe=MixtureOfExperts(256, 8, shared=1, ffn_hidden=2048, dense_layers=3),
            latent=LatentAttention(1536, 512, plain_size=128, rotary_size=64, value_size=128),
            name="DeepSeek-V3",
            source="DeepSeek-AI 2024, arXiv 2412.19437, section 4.2; without the multi-token "
            "prediction module and the routers' balancing biases",
        ),
        "qwen3-30b-a3b": _qwen3("Qwen3 30B-A3B", 48, 2048, 32, 768),
        "qwen3-235b-a22b": _qwen3("Qwen3 235B-A22B", 94, 4096, 64, 1536),
        "llama4-scout": _llama4("Llama 4 Scout", 16, every=1, sequence=262_144),
        "llama4-maverick": _llama4("Llama 4 Maverick", 128, every=2, sequence=1_048_576),
    },
)
