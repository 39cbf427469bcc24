"""Ask a trained model: load, predict, rank, translate, encode, trace."""
