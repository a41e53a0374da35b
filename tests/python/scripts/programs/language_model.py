"""Trains a tiny GPT-2 of transformers with dropout and gradient checkpointing, then writes text with it, on cuda.

It names cuda on purpose: the tests run it with `flagos run --as-cuda`.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

torch.manual_seed(0)
config = GPT2Config(
    n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=64, bos_token_id=0, eos_token_id=0, pad_token_id=0
)
model = GPT2LMHeadModel(config)
model.gradient_checkpointing_enable()
model.cuda()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
schedule = get_linear_schedule_with_warmup(optimizer, 1, 8)

generator = torch.Generator().manual_seed(1)
batches = torch.randint(1, 64, (6, 4, 16), generator=generator)
torch.manual_seed(2)
for batch in batches:
    inputs = {"input_ids": batch, "labels": batch}
    inputs = {name: tensor.to("cuda") for name, tensor in inputs.items()}
    loss = model(**inputs, use_cache=False).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print("loss", loss.item().hex())

model.eval()
prompt = torch.tensor([[1, 2, 3]], device="cuda")
torch.manual_seed(3)
print("greedy", model.generate(prompt, max_new_tokens=12, do_sample=False).tolist())
print("sampled", model.generate(prompt, max_new_tokens=12, do_sample=True, top_k=8).tolist())
