"""Models that come with the package: a folder each (see `nse.hub`). A folder's name is the model's name."""
