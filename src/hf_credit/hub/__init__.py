"""The Hugging Face Hub: publishing, loading, and a Hub of one's own."""
