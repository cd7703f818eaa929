"""A Hugging Face Hub in one process, for a laptop, a cluster without internet, and tests.

Stock clients work with it: `huggingface_hub`, `hf`, `datasets`, `transformers`, `peft`, `evaluate`, `openenv`. It
stores repositories of models, datasets and Spaces, with branches, tags and pull requests. It does not
support git's protocol, Xet, Jobs, builds of Spaces, search and the dataset viewer, and answers 501 with a sentence.
"""
