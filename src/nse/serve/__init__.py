"""HTTP server of a model, with a page to explore its memory."""
