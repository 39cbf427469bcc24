"""The server: a loaded model behind HTTP, and the page to explore it."""
