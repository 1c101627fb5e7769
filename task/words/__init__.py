"""What people read: branch names, commit messages, proposals and summaries. Pure: values in, text out."""
