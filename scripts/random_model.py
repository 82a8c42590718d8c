"""Makes a small model with random weights for tests with real engines: random_model.py OUT.

Writes config.json, a tokenizer trained on this repository's own texts, a chat template in the manner of ChatML, and no
weights: engines are told to make them up (vLLM: ``--load-format dummy``). Equal texts make an equal model. Needs the
package tokenizers, which comes with vLLM.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 8_192
START, END, FILL = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
TEMPLATE = (
    "{% for message in messages %}"
    f"{START}" + "{{ message['role'] }}\n{{ message['content'] }}" + f"{END}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}" + f"{START}assistant\n" + "{% endif %}"
)


def main() -> None:
    """Write the model's files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="folder; made if it is not there")
    parser.add_argument("--hidden", type=int, default=256, help="width")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--longest", type=int, default=32_768, metavar="TOKENS", help="longest prompt")
    options = parser.parse_args()
    make(options.out, hidden=options.hidden, layers=options.layers, longest=options.longest)


def make(out: Path, *, hidden: int = 256, layers: int = 4, longest: int = 32_768) -> None:
    """Write the model's files into a folder.

    Args:
        out: made if it is not there.
        hidden: width, a multiple of 64.
        layers: how many.
        longest: tokens of the longest prompt.
    """
    out.mkdir(parents=True, exist_ok=True)
    ids = _tokenizer(out / "tokenizer.json")
    _write(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": FILL,
            "bos_token": None,
            "unk_token": None,
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": longest,
            "chat_template": TEMPLATE,
        },
    )
    _write(
        out / "config.json",
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": hidden // 64,
            "num_key_value_heads": max(1, hidden // 128),
            "head_dim": 64,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": longest,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "torch_dtype": "bfloat16",
            "eos_token_id": ids[END],
            "pad_token_id": ids[FILL],
            "bos_token_id": None,
            "use_cache": True,
            "use_sliding_window": False,
        },
    )
    _write(out / "generation_config.json", {"eos_token_id": ids[END], "pad_token_id": ids[FILL]})


def _tokenizer(file: Path) -> dict[str, int]:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True, normalized=False) for text in (FILL, START, END)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.save(str(file))
    return {text: tokenizer.token_to_id(text) for text in (FILL, START, END)}


def _texts() -> list[str]:
    """The repository's documents and sources, in an order that does not depend on the machine."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    files += (ROOT / "contextpilot_rag").rglob("*.py")
    return [file.read_text(encoding="utf-8") for file in sorted(files, key=lambda file: file.as_posix())]


def _write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
