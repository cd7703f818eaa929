"""The Hub: what is published, loaded and served."""
