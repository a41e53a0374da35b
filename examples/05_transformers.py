"""A transformers model on flagos: saved and loaded as safetensors, trained by accelerate's loop, asked for text.

Needs transformers and accelerate; nothing is downloaded: the model is made here with random weights. Prints where the
parts are, five losses, the last below the first, and that the CPU writes the same tokens.
"""

import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, vocab_size=128, pad_token_id=0
)
with tempfile.TemporaryDirectory() as folder:
    LlamaForCausalLM(config).save_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder, device_map="flagos")
    weights = torch.flagos.load_file(os.path.join(folder, "model.safetensors"))
print(f"model on {model.device}, {len(weights)} tensors of the file on {next(iter(weights.values())).device}")

torch.flagos.use_in_accelerate()  # else accelerate takes the CPU
accelerator = Accelerator()
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
tokens = torch.randint(1, 128, (4, 16), device=accelerator.device)
for _ in range(5):
    loss = model(input_ids=tokens, labels=tokens).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.4f} on {loss.device}")

model.eval()
prompt = tokens[:1, :4]
written = model.generate(prompt, max_new_tokens=8, do_sample=False)
print("tokens", written.tolist())
print(
    "the CPU writes the same:",
    written.tolist() == model.cpu().generate(prompt.cpu(), max_new_tokens=8, do_sample=False).tolist(),
)
