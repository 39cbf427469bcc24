"""Translation (section 4.5): an NSE encodes English, and another decodes German from its memory."""

import nse

model = nse.load("translate-en-de")

for row in model.translate(
    ["A dog runs across the snow.", "Three children build a castle in the sand."], beam=5
):
    print(f"{row['text']}\n  -> {row['translation']}")

decoder = model.trace("A dog runs across the snow.").readings[-1]
memory = decoder.memories[0]  # of the encoder
print("\nThe English word with the largest weight for each German subword:")
for word, slot in zip(decoder.outputs, memory.read, strict=True):
    print(f"  {word:>10}  {memory.slots[slot]}")
