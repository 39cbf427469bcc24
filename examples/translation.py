"""Translation (section 4.5): an NSE reads English, another decodes German out of the first one's memory."""

import nse

model = nse.load("translate-en-de")

for row in model.translate(
    ["A dog runs across the snow.", "Three children build a castle in the sand."], beam=5
):
    print(f"{row['text']}\n  -> {row['translation']}")

decoder = model.trace("A dog runs across the snow.").readings[-1]
memory = decoder.memories[0]  # as the encoder left it
print("\nThe slot of the English sentence that was read most for each piece of the German one:")
for word, slot in zip(decoder.outputs, memory.read, strict=True):
    print(f"  {word:>10}  {memory.slots[slot]}")
