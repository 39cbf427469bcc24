"""Models that come with the package, a folder each; a folder's name is the model's name."""
