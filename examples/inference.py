"""Natural language inference (section 4.1): does the second sentence follow from the first?"""

import nse

model = nse.load("snli")

pairs = [
    ("Two dogs play in the snow.", "The animals are outdoors."),
    ("Two dogs play in the snow.", "Two cats sleep on a sofa."),
    ("Two dogs play in the snow.", "The dogs are brothers."),
]
for row in model.predict(pairs):
    probability = row["probabilities"][row["label"]]
    print(f"{row['label']:>13} {probability:4.0%}   {' | '.join(row['texts'])}")

reading = model.trace(*pairs[0]).readings[0]  # of the premise
memory = reading.memories[0]
print("\nThe word of the premise with which each word was composed:")
for word, slot, weight in zip(reading.words, memory.composed, memory.weights, strict=True):
    print(f"{word:>8} -> {memory.slots[slot]:<8} z = {weight:.2f}")
