"""Sentence classification (section 4.3): positive and negative reviews, and sentence vectors."""

import numpy as np

import nse

model = nse.load("sentiment")

reviews = [
    "A film that makes you think.",
    "Two hours too long, and not funny for a minute.",
    "It isn't bad at all.",
    "The actors are wonderful, the story is a gem.",
    "Dull, loud and endless.",
]
for row in model.predict(reviews):
    print(f"{row['label']:>8} {row['probabilities'][row['label']]:4.0%}   {row['text']}")

vectors = model.encode(reviews)  # [5, d]
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
similarity = vectors @ vectors.T - 2 * np.eye(len(reviews))  # each review's own similarity last
print("\nThe most similar other review:")
for text, nearest in zip(reviews, similarity.argmax(axis=1), strict=True):
    print(f"  {text}  ->  {reviews[nearest]}")
