"""A Hugging Face Hub in one process, for a laptop, a cluster without internet, and tests.

Stock clients talk to it: `huggingface_hub`, `hf`, `datasets`, `transformers`, `peft`, `evaluate`, `openenv`. It stores
repositories of models, datasets and Spaces, with branches, tags, pull requests and leaderboards. git's protocol, Xet,
Jobs, builds of Spaces, search and the dataset viewer it does not have: it answers 501 and says so.
"""
