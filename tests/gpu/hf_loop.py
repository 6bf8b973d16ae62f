"""A Hugging Face transformers decode loop without any NVTX or profiler call, as users write it; random weights.

`python hf_loop.py` decodes greedily with a DynamicCache; `--graph` captures the one-token forward in a CUDA graph over
a StaticCache and replays it. Either way the host waits for every token, as a loop that streams text does.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache  # type: ignore[import-not-found,unused-ignore]

PROMPT_TOKENS = 64
WARMUP_TOKENS = 3  # before capture, on a side stream; they are real tokens of the answer
DIMENSIONS = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}


def main() -> None:
    """Prefill, decode, print the host's time per token in ms."""
    parser = argparse.ArgumentParser(description="transformers decode loop without NVTX")
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.manual_seed(0)
    with torch.inference_mode():
        model = build_model(options.device, DIMENSIONS)
        prompt = torch.randint(0, model.config.vocab_size, (1, PROMPT_TOKENS), device=options.device)
        next_token = graph_decoder(model, prompt, options.tokens) if options.graph else eager_decoder(model, prompt)
        generate(next_token, options.tokens)


def build_model(device: str, dimensions: dict[str, int]) -> Any:
    """A bf16 Llama with random weights, made on the device itself."""
    config = LlamaConfig(**dimensions, attn_implementation="sdpa")
    with torch.device(device):
        return LlamaForCausalLM(config).to(torch.bfloat16).eval()


def generate(next_token: Callable[[], int], tokens: int) -> list[int]:
    """Decode `tokens` tokens and report the median and the total time."""
    answer, times_ms = [], []
    for _ in range(tokens):
        start = time.perf_counter()
        answer.append(next_token())
        times_ms.append((time.perf_counter() - start) * 1e3)
    print(f"{tokens} tokens, median {sorted(times_ms)[tokens // 2]:.2f} ms a token, total {sum(times_ms):.0f} ms")
    return answer


def eager_decoder(model: Any, prompt: torch.Tensor) -> Callable[[], int]:
    """Prefill with a DynamicCache; each call then decodes one token and returns it."""
    out = model(input_ids=prompt, use_cache=True)
    state = {"token": out.logits[:, -1:].argmax(-1), "cache": out.past_key_values}

    def decode() -> int:
        out = model(input_ids=state["token"], past_key_values=state["cache"], use_cache=True)
        state["token"] = out.logits[:, -1:].argmax(-1)
        return int(state["token"].item())

    return decode


def graph_decoder(model: Any, prompt: torch.Tensor, tokens: int) -> Callable[[], int]:
    """Prefill with a StaticCache, capture the one-token step; each call then replays it and returns the token."""
    step, token = static_step(model, prompt, PROMPT_TOKENS + WARMUP_TOKENS + tokens)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP_TOKENS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def decode() -> int:
        graph.replay()
        return int(token.item())

    return decode


def static_step(model: Any, prompt: torch.Tensor, capacity: int) -> tuple[Callable[[], None], torch.Tensor]:
    """A one-token step whose inputs (token, position, cache) stay at their addresses, and the token's tensor.

    The mask is given in its final form, [1, 1, 1, capacity]: making it from the cache's length would read the GPU.
    """
    cache = StaticCache(config=model.config, max_cache_len=capacity)
    token = model(input_ids=prompt, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
    position = torch.full((1, 1), prompt.shape[1], device=prompt.device)
    slots = torch.arange(capacity, device=prompt.device)

    def step() -> None:
        mask = (slots <= position)[None, None]
        out = model(input_ids=token, past_key_values=cache, position_ids=position, attention_mask=mask, use_cache=True)
        token.copy_(out.logits[:, -1:].argmax(-1))
        position.add_(1)

    return step, token


if __name__ == "__main__":
    main()
