"""Read published data sets, and files of your own."""
