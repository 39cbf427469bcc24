"""Rows in and answers out, as they come: files and standard input, many formats, in constant memory."""
