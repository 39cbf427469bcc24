"""What tests compare with, written independently of the package."""
